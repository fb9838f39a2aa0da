"""Sweeps and searches for constants, carried out.

A sweep proceeds in rounds, in which every setting requests the learning rates it wants to see next. Within a setting
widths follow each other from the smallest up: the optimum of one, moved by the theory's exponent, is where the search
at the next begins. All requests of a round are computed together, since runs of different settings at one width often
share a program. Each search is a pure function of the losses it has seen, so a sweep that was killed, and one that
finds its runs in the study, takes the same path as one that ran through.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from widthwise.fit import mean_loss
from widthwise.parameterize import Constants
from widthwise.sweep.constants import look_up
from widthwise.sweep.driver import Driver
from widthwise.sweep.fits import TUNING
from widthwise.sweep.requests import SweepData
from widthwise.sweep.search import Proposal
from widthwise.sweep.setting import Setting
from widthwise.sweep.sweep import ConstantsLookup, Sweep, expected_exponent
from widthwise.sweep.tuning import ConstantsTrial, Tuning
from widthwise.train import Run, Spec


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Where the search of one setting at one width ended.

    Attributes:
        setting: The setting.
        width: The width.
        proposal: What was found, and what is missing.
        best: The specification with the best rate; None if every rate diverged.
    """

    setting: Setting
    width: int
    proposal: Proposal
    best: Spec | None = field(compare=False, default=None)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A sweep to be carried out.

    Attributes:
        sweep: The sweep.
        data: Its data.
        probe: Whether to measure alignment during training.
        constants: Looks constants up by name; in the study unless given.
        label: What the runs are requested for; the sweep's id unless given.
    """

    sweep: Sweep
    data: SweepData
    probe: bool = False
    constants: ConstantsLookup | None = None
    label: str | None = None


@dataclass
class _Known:
    """Losses by run; a run that failed has none."""

    losses: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)


_Search = Generator[Sequence[Run], None, None]


def run_sweeps(jobs: Sequence[Job], driver: Driver) -> list[list[SearchResult]]:
    """Carry out several sweeps at once, round by round; return where the searches of each ended."""
    study, known = driver.study, _Known()
    found: list[dict[tuple[Setting, int], SearchResult]] = []
    searches: list[tuple[str, _Search]] = []
    for job in jobs:
        label = job.label or job.sweep.id
        constants = job.sweep.constants(job.constants or (lambda *names: look_up(study, *names)))
        study.put(f"sweep/{label}", job.sweep.to_json())
        found.append({})
        searches += [(label, _search(job, *one, known, found[-1])) for one in constants.items()]
    requested = [next(search, None) for _, search in searches]
    while any(requested):
        for label in dict.fromkeys(label for label, _ in searches):
            mine = [runs for (of, _), runs in zip(searches, requested, strict=True) if of == label and runs]
            study.ask([run for runs in mine for run in runs], label=label)
        together = [run for runs in requested if runs for run in runs]
        losses = driver.compute(together)
        known.losses |= losses
        known.failed |= {run.id for run in together} - losses.keys()
        requested = [
            next(search, None) if runs else None for (_, search), runs in zip(searches, requested, strict=True)
        ]
    return [
        [results[setting, width] for setting in job.sweep.all_settings for width in job.sweep.all_widths]
        for job, results in zip(jobs, found, strict=True)
    ]


def _search(
    job: Job,
    setting: Setting,
    constants: Constants,
    known: _Known,
    found: dict[tuple[Setting, int], SearchResult],
) -> _Search:
    """Request the runs of one setting, batch by batch; those of a batch are known, or failed, when it resumes."""
    sweep, data, lattice = job.sweep, job.data, job.sweep.search
    start, before = lattice.index(sweep.start(setting)), sweep.all_widths[0]

    def spec(width: int, point: int, seed: int) -> Spec:
        rate, vocabulary = lattice.rate(point), data.vocabulary
        return sweep.spec(
            setting, width=width, learning_rate=rate, seed=seed, vocabulary=vocabulary, constants=constants
        )

    for width in sweep.all_widths:
        start = lattice.start_from(start, width_ratio=width / before, exponent=expected_exponent(setting))
        losses: dict[int, float] = {}
        while (proposal := lattice.propose(losses, start)).points:
            names = {"constants": setting.constants, "horizon": setting.horizon}
            batch = {
                point: [data.run(spec(width, point, seed), probe=job.probe, **names) for seed in sweep.all_seeds]
                for point in proposal.points
            }
            yield [run for runs in batch.values() for run in runs]
            if any(run.id in known.failed for runs in batch.values() for run in runs):
                break  # without these losses there is nothing to decide on
            losses |= {point: mean_loss(known.losses[run.id] for run in runs) for point, runs in batch.items()}
        best = None if proposal.optimum is None else spec(width, proposal.optimum, sweep.all_seeds[0])
        found[setting, width] = SearchResult(setting=setting, width=width, proposal=proposal, best=best)
        start, before = (start if proposal.optimum is None else proposal.optimum), width


def run_tuning(
    tuning: Tuning, spec: Spec, driver: Driver, data: SweepData, *, label: str = TUNING
) -> list[ConstantsTrial]:
    """Compute the trials that are not known yet; return all of them, up to a batch in which one failed.

    Args:
        tuning: How to search.
        spec: What to train.
        driver: What computes.
        data: The data.
        label: What the runs are requested for.
    """
    tried: list[ConstantsTrial] = []
    while batch := tuning.propose(tried):
        runs = [data.run(spec.with_constants(each), constants=TUNING, horizon="fixed") for each in batch]
        losses = driver.compute(runs, label=label)
        if any(run.id not in losses for run in runs):
            break
        tried += [ConstantsTrial(constants=each, loss=losses[run.id]) for each, run in zip(batch, runs, strict=True)]
    return tried
