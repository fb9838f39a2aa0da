"""A sweep, carried out: rounds in which every group asks for the learning rates it wants to see next.

Within a group widths follow each other from the smallest up: the optimum of one, moved by the theory's exponent, is
where the search at the next begins. All that the groups want in a round is computed together, since runs of different
groups at one width often share a program. Each search is a pure function of the losses it has seen, so a sweep that
was killed, and one that finds its runs in the study, takes the same steps as one that was not.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from widthwise.sweep.constants import look_up
from widthwise.sweep.driver import Driver
from widthwise.sweep.packs import Wanted, Wants
from widthwise.sweep.search import Proposal
from widthwise.sweep.sweep import Group, NamedConstants, Sweep


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the search at one width of a group has found.

    Attributes:
        group: The group.
        width: The width.
        proposal: Where the search stands; what it misses, in words.
    """

    group: Group
    width: int
    proposal: Proposal


@dataclass
class _Known:
    """Losses by run; a run that failed has none."""

    losses: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


def run_sweep(
    sweep: Sweep,
    driver: Driver,
    wants: Wants,
    *,
    probe: bool = False,
    constants: NamedConstants | None = None,
    label: str | None = None,
) -> list[Finding]:
    """Compute what a sweep needs that is not known yet; give what each search found.

    Args:
        sweep: The sweep.
        driver: What computes.
        wants: Its data.
        probe: Whether to measure alignment on the way.
        constants: Looks constants up by name; in the study unless given.
        label: What the runs are asked for; the sweep's id unless given.
    """
    study, label = driver.study, label or sweep.id
    groups = sweep.groups(constants or (lambda *names: look_up(study, *names)))
    study.put(f"sweep/{label}", sweep.to_json())
    known, findings = _Known(), list[Finding]()
    searches = [_search(sweep, group, wants, probe, known, findings) for group in groups]
    wanted = [next(search, None) for search in searches]
    while any(wanted):
        together = [one for want in wanted if want for one in want]
        losses = driver.compute(together, label=label)
        known.losses |= losses
        known.failed |= {one.id for one in together} - losses.keys()
        wanted = [next(search, None) if want else None for search, want in zip(searches, wanted, strict=True)]
    return sorted(findings, key=lambda finding: groups.index(finding.group))


def _search(
    sweep: Sweep, group: Group, wants: Wants, probe: bool, known: _Known, findings: list[Finding]
) -> Generator[Sequence[Wanted], None, None]:
    """Ask for the runs of one group, batch by batch; those of a batch are known, or failed, when it goes on."""
    lattice = sweep.search
    start, before = lattice.index(sweep.base.learning_rate), sweep.all_widths[0]
    for width in sweep.all_widths:
        start = lattice.start_from(start, width_ratio=width / before, exponent=group.expected_exponent)
        losses: dict[int, float] = {}
        while True:
            proposal = lattice.propose(losses, start)
            batch = {
                point: [
                    wants.want(
                        group.at(
                            width=width, learning_rate=lattice.rate(point), seed=seed, vocabulary=wants.vocabulary
                        ),
                        probe=probe,
                        **group.names,
                    )
                    for seed in sweep.all_seeds
                ]
                for point in proposal.points
            }
            if not batch:
                break
            yield [one for runs in batch.values() for one in runs]
            if any(one.id in known.failed for runs in batch.values() for one in runs):
                break  # without these losses there is nothing to decide on
            for point, runs in batch.items():
                each = [known.losses[one.id] for one in runs]
                losses[point] = sum(each) / len(each)  # NaN if any seed diverged
        findings.append(Finding(group=group, width=width, proposal=proposal))
        start, before = (start if proposal.optimum is None else proposal.optimum), width
