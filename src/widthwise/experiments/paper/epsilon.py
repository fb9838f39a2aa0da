"""Epsilon underflow ("Epsilon Underflow in Adaptive Optimizers", §4.3, and its additional experiments).

Adam with rates for full alignment and optimal constants: constant epsilons and epsilons per layer, three mitigations
against a baseline, and the columns of the table of eval losses with epsilons per layer. The paper has six epsilons of
each kind, in figures. Its text names 1e-30, 1e-15 and 1e-9 of the constant ones and 1e-12 and 1e-4 of the others; the
rest are chosen here to lie between.

Gradients shrink with width, and only models wider than a CPU or one GPU can train bring them down to 1e-9. At smaller
scales every epsilon is multiplied by a factor, chosen from measured gradients: at the largest width the baseline is
above those of mean-field's hidden layers (n^-3/2) and below those of the standard parameterization (n^-1/2).
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import NEGLIGIBLE, alike, changes, difference, distance, improves, percent_interval
from widthwise.experiments.paper.epsilon_exhibits import Fits, at, by_title, exhibits, title
from widthwise.experiments.paper.values import PARAMETERIZATIONS, cell, losses_of
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import PAPER_WIDTHS, SIZES, Scale
from widthwise.experiments.stages import optimal
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called, percent
from widthwise.study.fits import best_losses
from widthwise.study.setting import Setting
from widthwise.theory import Aligned

FACTORS: dict[Scale, float] = {"smoke": 1e6, "cpu": 1e5, "gpu": 1e3, "paper": 1.0}
"""The factor on the paper's epsilons at each scale."""
CONSTANT = (1e-30, 1e-18, 1e-15, 1e-12, 1e-9, 1e-6)
PER_LAYER = (1e-18, 1e-15, 1e-12, 1e-9, 1e-6, 1e-4)
"""Base epsilons, of those that follow the gradients' exponents."""
BASELINE, SMALL_CONSTANT, SMALL_PER_LAYER = 1e-9, 1e-15, 1e-12
SENSITIVE = ("ntk", "mean_field")
"""The parameterizations that the mitigations improve; they leave the others unchanged."""
EQUIVALENT = (("standard", "ntk"), ("mup", "mean_field"))


def adam(scale: Scale, epsilon: float, *, per_layer: bool = False) -> Setting:
    """Return Adam with what stands for one of the paper's epsilons at a scale.

    >>> adam("cpu", 1e-9).epsilon
    0.0001
    """
    scaled = float(f"{epsilon * FACTORS[scale]:.6g}")
    return Setting(constants=optimal(scale), epsilon=scaled, epsilon_per_parameter=per_layer)


def baseline(scale: Scale) -> Setting:
    """Return the setting that the mitigations are compared with."""
    return adam(scale, BASELINE)


def mitigations(scale: Scale) -> tuple[Setting, Setting, Setting]:
    """Return the three mitigations: a small constant epsilon, epsilons per layer, and Adam-atan2."""
    atan2 = Setting(optimizer="adam_atan2", constants=optimal(scale))
    return adam(scale, SMALL_CONSTANT), adam(scale, SMALL_PER_LAYER, per_layer=True), atan2


def tried(scale: Scale) -> dict[str, list[Setting]]:
    """Return the constant epsilons and those per layer, six of each; at `smoke` those that the claims are about."""
    smoke = scale == "smoke"
    return {
        "constant": [adam(scale, epsilon) for epsilon in ((SMALL_CONSTANT, BASELINE) if smoke else CONSTANT)],
        "per-layer": [adam(scale, epsilon, per_layer=True) for epsilon in ((SMALL_PER_LAYER,) if smoke else PER_LAYER)],
    }


def settings_at(scale: Scale) -> list[Setting]:
    """Return every parameterization with every epsilon, and with what the table of eval losses has besides."""
    full, none = Aligned("full"), Aligned("none")
    columns = (baseline(scale), mitigations(scale)[1])
    kinds = (
        *(kind for some in tried(scale).values() for kind in some),
        mitigations(scale)[2],
        *(replace(kind, rates=none) for kind in columns),
        *(replace(kind, rates=rates, optimizer="adam_ps") for rates in (full, none) for kind in columns),
    )
    return [replace(kind, parameterization=name) for kind in kinds for name in PARAMETERIZATIONS]


def read(results: Results) -> Reading:
    """Compare epsilons."""
    fits, scale = results.of(settings_at(results.scale)), results.scale
    if not fits:
        return Reading(findings=(), exhibits=())
    notes = (
        f"Every epsilon here is {FACTORS[scale]:.0e} times the paper's: {baseline(scale).epsilon:.0e} stands for "
        f"{BASELINE:.0e}. Gradients of models this small never come near the paper's epsilons; with larger ones "
        "underflow is reached on purpose, in mean-field first, as the paper's largest models reach it.",
        "Epsilons too small to prevent numerical instability, such as 1e-30 in the paper's largest model, are not "
        "reached.",
    )
    return Reading(
        findings=(
            *_mitigated(fits, scale),
            *_grows(fits, scale),
            *_similar(fits, scale),
            *_nearer(fits, scale),
            *_sensitive(fits, scale),
        ),
        exhibits=exhibits(results, fits, tried(scale), baseline(scale), mitigations(scale)),
        notes=notes if FACTORS[scale] != 1 else (),
    )


def _mitigated(fits: Fits, scale: Scale) -> Iterator[Finding]:
    """Judge what each mitigation does in each parameterization."""
    before = baseline(scale)
    for kind in mitigations(scale):
        for name in PARAMETERIZATIONS:
            pair = at(fits, name, kind), at(fits, name, before)
            of = f"{called(name)}, {title(kind)} against {title(before)}"
            cells = (cell(replace(setting, parameterization=name)) for setting in (before, kind))
            paper = losses_of(*cells) if kind.epsilon_per_parameter else None
            if name in SENSITIVE:
                yield from improves("the mitigation improves the eval loss", of, *pair, paper)
            else:
                claim = f"the mitigation changes the eval loss by {100 * NEGLIGIBLE:g} % or less"
                yield from alike(claim, of, *pair, paper=paper)


def _grows(fits: Fits, scale: Scale) -> Iterator[Finding]:
    """Judge whether the improvement of mean-field grows with width."""
    _, per_layer, _ = mitigations(scale)
    gap = changes(at(fits, "mean_field", per_layer), at(fits, "mean_field", baseline(scale)))
    if len(gap) > 1:
        first, last = gap[min(gap)], gap[max(gap)]
        more = difference(last, first)
        yield Finding(
            claim="the improvement grows with size",
            of=f"{called('mean_field')}, {title(per_layer)}",
            verdict=Judgement.below_zero(more),
            measured=f"{percent_interval(more)}, from {percent(first.value)} at width {min(gap)} to "
            f"{percent(last.value)} at width {max(gap)}",
            losses_of=_named("mean_field", per_layer, baseline(scale)),
        )


def _similar(fits: Fits, scale: Scale) -> Iterator[Finding]:
    """Judge how far the three mitigations are apart, at worst."""
    for name in PARAMETERIZATIONS:
        pairs = combinations((at(fits, name, kind) for kind in mitigations(scale)), 2)
        gaps = [distance(changes(*pair)) for pair in pairs]
        if all(math.isfinite(gap.value) for gap in gaps):
            largest = max(gaps, key=lambda gap: gap.value)
            yield Finding(
                claim=f"the three mitigations are within {100 * NEGLIGIBLE:g} % of each other",
                of=called(name),
                verdict=Judgement.at_most(NEGLIGIBLE, largest),
                measured=f"apart by {percent_interval(largest)} at most",
                losses_of=_named(name, *mitigations(scale)),
            )


def _nearer(fits: Fits, scale: Scale) -> Iterator[Finding]:
    """Judge whether equivalent parameterizations come nearer to each other when epsilon is mitigated."""
    kinds = baseline(scale), mitigations(scale)[1]
    for first, second in EQUIVALENT:
        before, after = (distance(changes(at(fits, first, kind), at(fits, second, kind))) for kind in kinds)
        if math.isfinite(before.value + after.value):
            yield Finding(
                claim="equivalent parameterizations are nearer to each other with epsilons per layer",
                of=f"{called(first)} and {called(second)}",
                verdict=Judgement.below_zero(difference(after, before)),
                measured=f"apart by {percent_interval(after)} with epsilons per layer, "
                f"{percent_interval(before)} at the baseline",
                losses_of=(*_named(first, *kinds), *_named(second, *kinds)),
            )


def _named(name: str, *kinds: Setting) -> tuple[Setting, ...]:
    return tuple(replace(kind, parameterization=name) for kind in kinds)


def _sensitive(fits: Fits, scale: Scale) -> Iterator[Finding]:
    """Judge which parameterization a constant epsilon matters most to, at the largest width."""
    spans: dict[str, float] = {}
    for name in PARAMETERIZATIONS:
        losses = [best_losses(fit) for fit in by_title(fits, name, *tried(scale)["constant"]).values()]
        width = max((width for each in losses for width in each), default=None)
        known = [each[width] for each in losses if width in each]
        if len(known) > 1:
            spans[name] = max(known) / min(known) - 1
    if len(spans) > 1 and "mean_field" in spans:
        yield Finding(
            claim="mean-field is the most sensitive to a constant epsilon",
            of=called("adam"),
            verdict=Judgement.of(max(spans, key=lambda name: spans[name]) == "mean_field"),
            measured="worst against best at the largest width: "
            + ", ".join(f"{called(name)} {percent(span)}" for name, span in spans.items()),
        )


EXPERIMENT = Experiment(
    name="epsilon",
    title="When does epsilon get in the way?",
    claim=(
        "Gradients shrink with width until a constant epsilon dominates them, first in mean-field. A smaller constant, "
        "epsilons per layer and Adam-atan2 improve NTK and mean-field alike, leave standard and muP as they are, and "
        "make equivalent parameterizations perform alike (§4.3)."
    ),
    sizes={
        "smoke": replace(
            SIZES["smoke"],
            starts={**SIZES["smoke"].starts, "adam": 2**-3.5, "adam_atan2": 2**-3.5},
            octaves=1.5,
            parameterizations=("standard", "mean_field"),
        ),
        "cpu": replace(SIZES["cpu"].at_widths(32, 64, 128), trials=32),
        "gpu": replace(SIZES["gpu"], widths=(128, 256, 512)),
        "paper": replace(SIZES["paper"], widths=PAPER_WIDTHS[-6:]),
    },
    settings=settings_at,
    read=read,
)
