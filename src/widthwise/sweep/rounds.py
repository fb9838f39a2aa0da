"""A sweep, carried out: rounds in which every group asks for the learning rates it wants to see next.

Within a group widths follow each other from the smallest up: the optimum of one, moved by the theory's exponent, is
where the search at the next begins. All that the groups want in a round is computed together, since runs of different
groups at one width often share a program. Each search is a pure function of the losses it has seen, so a sweep that
was killed, and one that finds its runs in the study, takes the same steps as one that was not.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, kw_only=True)
class Job:
    """A sweep to be carried out.

    Attributes:
        sweep: The sweep.
        wants: Its data.
        probe: Whether to measure alignment on the way.
        constants: Looks constants up by name; in the study unless given.
        label: What the runs are asked for; the sweep's id unless given.
    """

    sweep: Sweep
    wants: Wants
    probe: bool = False
    constants: NamedConstants | None = None
    label: str | None = None


def run_sweep(sweep: Sweep, driver: Driver, wants: Wants, **how: Any) -> list[Finding]:
    """Compute what a sweep needs that is not known yet; give what each search found. `how` is the rest of a `Job`."""
    (findings,) = run_sweeps([Job(sweep=sweep, wants=wants, **how)], driver)
    return findings


def run_sweeps(jobs: Sequence[Job], driver: Driver) -> list[list[Finding]]:
    """Carry out several sweeps at once, round by round; give what the searches of each found."""
    study, known = driver.study, _Known()
    found: list[list[Finding]] = [[] for _ in jobs]
    searches: list[tuple[str, Generator[Sequence[Wanted], None, None]]] = []
    orders: list[list[Group]] = []
    for job, findings in zip(jobs, found, strict=True):
        label = job.label or job.sweep.id
        orders.append(job.sweep.groups(job.constants or (lambda *names: look_up(study, *names))))
        study.put(f"sweep/{label}", job.sweep.to_json())
        searches += [(label, _search(job, group, known, findings)) for group in orders[-1]]
    wanted = [next(search, None) for _, search in searches]
    while any(wanted):
        for label in dict.fromkeys(label for label, _ in searches):
            mine = [want for (of, _), want in zip(searches, wanted, strict=True) if of == label and want]
            study.ask([one.asked for want in mine for one in want], label=label)
        together = [one for want in wanted if want for one in want]
        losses = driver.compute(together)
        known.losses |= losses
        known.failed |= {one.id for one in together} - losses.keys()
        wanted = [next(search, None) if want else None for (_, search), want in zip(searches, wanted, strict=True)]
    return [
        sorted(findings, key=lambda finding: groups.index(finding.group))
        for findings, groups in zip(found, orders, strict=True)
    ]


def _search(job: Job, group: Group, known: _Known, findings: list[Finding]) -> Generator[Sequence[Wanted], None, None]:
    """Ask for the runs of one group, batch by batch; those of a batch are known, or failed, when it goes on."""
    sweep, wants, lattice = job.sweep, job.wants, job.sweep.search
    start, before = lattice.index(group.start(sweep.base)), sweep.all_widths[0]
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
                        probe=job.probe,
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
