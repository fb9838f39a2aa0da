"""What epsilons do to the eval loss, against what the paper says of them (§4.3)."""

from itertools import combinations
from statistics import fmean

from widthwise.experiments.comparing import alike, changes, improves
from widthwise.experiments.epsilon_kinds import Groups, baseline, mitigations, tried
from widthwise.experiments.findings import Finding, Verdict
from widthwise.experiments.paper_values import EVAL_LOSSES, PARAMETERIZATIONS
from widthwise.experiments.results import best_losses
from widthwise.experiments.showing import called, percent

SENSITIVE = ("ntk", "mean_field")
"""The parameterizations that the mitigations improve; they leave the others as they are."""
EQUIVALENT = (("standard", "ntk"), ("mup", "mean_field"))
UNCHANGED = 0.003
"""The relative change of eval losses that is called none."""
SIMILAR = 0.005
"""The relative difference of eval losses up to which mitigations are called similar."""


def findings(groups: Groups) -> tuple[Finding, ...]:
    """Judge the claims about mitigations, equivalent parameterizations and sensitivity."""
    return (*_mitigated(groups), *_similar(groups), *_nearer(groups), *_sensitive(groups))


def _mitigated(groups: Groups) -> list[Finding]:
    """Say what each mitigation does in each parameterization."""
    found: list[Finding] = []
    before, (_, per_layer, _) = baseline(groups.scale), mitigations(groups.scale)
    for kind in mitigations(groups.scale):
        for name in PARAMETERIZATIONS:
            fits = groups.get(name, kind), groups.get(name, before)
            of = f"{called(name)}, {kind.title} against {before.title}"
            paper = _paper(name) if kind == per_layer else None
            if name in SENSITIVE:
                found += improves("the mitigation improves the eval loss", of, *fits, paper)
            else:
                claim = f"the mitigation changes the eval loss by {100 * UNCHANGED:g} % or less"
                found += alike(claim, of, *fits, within=UNCHANGED, paper=paper)
    after, base = groups.get("mean_field", per_layer), groups.get("mean_field", before)
    gap = changes(after, base) if after and base else {}
    if len(gap) > 1:
        first, last = gap[min(gap)], gap[max(gap)]
        found.append(
            Finding(
                claim="the improvement grows with size",
                of=f"{called('mean_field')}, {per_layer.title}",
                verdict=Verdict.of(last < first),
                measured=f"{percent(first)} at width {min(gap)}, {percent(last)} at width {max(gap)}",
            )
        )
    return found


def _similar(groups: Groups) -> list[Finding]:
    """Say how far the three mitigations are apart, at worst, on average over widths."""
    found: list[Finding] = []
    for name in PARAMETERIZATIONS:
        fits = [fit for kind in mitigations(groups.scale) if (fit := groups.get(name, kind))]
        gaps = [change for pair in combinations(fits, 2) if (change := changes(*pair))]
        if len(gaps) == 3:
            apart = max(fmean(map(abs, gap.values())) for gap in gaps)
            found.append(
                Finding(
                    claim=f"the three mitigations are within {100 * SIMILAR:g} % of each other",
                    of=called(name),
                    verdict=Verdict.of(apart <= SIMILAR),
                    measured=f"apart by {percent(apart)} at most, on average over widths",
                )
            )
    return found


def _nearer(groups: Groups) -> list[Finding]:
    """Say whether equivalent parameterizations come nearer to each other when epsilon is mitigated."""
    found: list[Finding] = []
    for first, second in EQUIVALENT:
        apart: list[float] = []
        for kind in (baseline(groups.scale), mitigations(groups.scale)[1]):
            one, other = groups.get(first, kind), groups.get(second, kind)
            gap = changes(one, other) if one and other else {}
            apart += [fmean(map(abs, gap.values()))] if gap else []
        if len(apart) == 2:
            found.append(
                Finding(
                    claim="equivalent parameterizations are nearer to each other with epsilons per layer",
                    of=f"{called(first)} and {called(second)}",
                    verdict=Verdict.of(apart[1] < apart[0]),
                    measured=f"apart by {percent(apart[0])} at the baseline, {percent(apart[1])} with those",
                )
            )
    return found


def _sensitive(groups: Groups) -> list[Finding]:
    """Say which parameterization a constant epsilon matters most to, at the largest width."""
    spans: dict[str, float] = {}
    for name in PARAMETERIZATIONS:
        losses = [best_losses(fit) for fit in groups.by_kind(name, tried(groups.scale)[0]).values()]
        width = max((width for each in losses for width in each), default=None)
        known = [each[width] for each in losses if width in each]
        if len(known) > 1:
            spans[name] = max(known) / min(known) - 1
    if len(spans) < 2 or "mean_field" not in spans:
        return []
    return [
        Finding(
            claim="mean-field is the most sensitive to a constant epsilon",
            of=called("adam"),
            verdict=Verdict.of(max(spans, key=lambda name: spans[name]) == "mean_field"),
            measured="worst against best at the largest width: "
            + ", ".join(f"{called(name)} {percent(span)}" for name, span in spans.items()),
        )
    ]


def _paper(name: str) -> str:
    losses = (EVAL_LOSSES["adam", name, f"full + optimal{added}"] for added in ("", " + per-layer epsilon"))
    return "from {:.3f} to {:.3f} at 26.8 B".format(*losses)
