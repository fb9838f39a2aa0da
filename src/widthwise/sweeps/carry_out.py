"""Sweeps and searches for constants, carried out.

A sweep proceeds in rounds, in which every setting requests the runs it wants to see next. All requests of a round are
computed together, since runs of different settings at one width often share a program.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from widthwise.fit.design import Sample
from widthwise.fit.intervals import UNKNOWN
from widthwise.parameterize import Constants
from widthwise.search.lattice import Proposal
from widthwise.study.fits import TUNING
from widthwise.study.setting import Setting
from widthwise.sweeps.budget import Account
from widthwise.sweeps.constants import look_up
from widthwise.sweeps.driver import Driver, OutOfTime
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.sweep import ConstantsLookup, Sweep
from widthwise.sweeps.tuning import ConstantsTrial, Tuning
from widthwise.train import Run, Spec


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Where the search of one setting at one width, or size along another axis, ended.

    Attributes:
        setting: The setting.
        width: The width, or the size.
        proposal: What was found, and what is missing.
        best: The specification with the best rate; None if every rate diverged.
    """

    setting: Setting
    width: int
    proposal: Proposal
    best: Spec | None = field(compare=False, default=None)


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """Where the search of one setting ended.

    Attributes:
        setting: The setting.
        searches: Where it ended at every width that was begun.
        runs: How many runs it asked for.
        half_width: Half the length of the interval of the exponent; infinite if unknown.
        reached: What was asked for and reached: the precision, or a verdict before that; None if neither.
        out_of: What was used up before the search was over: time, runs or FLOPs.
        precision: The precision that was asked for, if any.
        failed: Whether the search is over because a run failed.
        axis: What grows.
    """

    setting: Setting
    searches: tuple[SearchResult, ...]
    runs: int
    half_width: float
    reached: Literal["precision", "verdict"] | None
    out_of: str | None
    precision: float | None
    failed: bool
    axis: str = "width"

    @property
    def missing(self) -> list[str]:
        """What is missing of a complete sweep, a line each."""
        lines = [f"{self.axis} {one.width}: {what}" for one in self.searches for what in one.proposal.missing]
        known = f"exponent known to ±{self.half_width:.2f}" if self.half_width < math.inf else "exponent unknown"
        if self.out_of is not None:
            lines.append(f"out of {self.out_of} after {self.runs} runs, {known}")
        elif self.failed:
            lines.append(f"a run failed, and the search ended there after {self.runs} runs, {known}")
        elif self.precision is not None and self.reached is None:
            lines.append(f"{known} after {self.runs} runs, and no more to try")
        return [f"{self.setting.title}, {line}" for line in lines]


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


class _Group:
    """The search of one setting while it is carried out."""

    def __init__(self, job: Job, label: str, setting: Setting, constants: Constants) -> None:
        self.job, self.label, self.setting, self._constants = job, label, setting, constants
        self.search = job.sweep.group_search(setting, functools.cache(self._flops))
        self.out_of: str | None = None
        self._rounds = self.search.rounds()
        self._requested = 0
        self.wanted = self._named(next(self._rounds, ()))

    def take(self, losses: dict[str, float]) -> None:
        """Take the losses of what was wanted, those that failed missing, and decide what is wanted next."""
        known = {point: losses[run.id] for point, run in self.wanted.items() if run.id in losses}
        self._requested += len(self.wanted)
        try:
            self.wanted = self._named(self._rounds.send(known))
        except StopIteration:
            self.wanted = {}

    def stop(self, out_of: str) -> None:
        """Want nothing more."""
        self.wanted, self.out_of = {}, out_of

    def result(self) -> GroupResult:
        """Return where it ended."""
        exponent = self.search.law.exponent if self.search.known else UNKNOWN
        reached = self.search.reached(exponent)
        return GroupResult(
            setting=self.setting,
            searches=tuple(
                SearchResult(setting=self.setting, width=width, proposal=proposal, best=self._best(width, proposal))
                for width, proposal in self.search.proposals.items()
            ),
            runs=self._requested,
            half_width=exponent.half_width,
            reached=reached,
            out_of=None if reached else self.out_of,
            precision=self.job.sweep.precision,
            failed=self.search.failed,
            axis=self.job.sweep.axis,
        )

    def _named(self, points: Sequence[Sample]) -> dict[Sample, Run]:
        return {point: self._run(point) for point in points}

    def _flops(self, width: int) -> float:
        return self._run(Sample(width, 0.0, self.job.sweep.all_seeds[0])).flops

    def _run(self, point: Sample) -> Run:
        names = {"constants": self.setting.constants, "horizon": self.setting.horizon, **self.job.sweep.names}
        return self.job.data.run(self._spec(point), probe=self.job.probe, **names)

    def _spec(self, point: Sample) -> Spec:
        return self.job.sweep.spec(
            self.setting,
            size=point.width,
            learning_rate=2.0**point.octave,
            seed=point.seed,
            vocabulary=self.job.data.vocabulary,
            constants=self._constants,
        )

    def _best(self, width: int, proposal: Proposal) -> Spec | None:
        if proposal.optimum is None:
            return None
        sweep = self.job.sweep
        return self._spec(Sample(width, proposal.optimum * sweep.search.step, sweep.all_seeds[0]))


def run_sweeps(jobs: Sequence[Job], driver: Driver, *, account: Account | None = None) -> list[list[GroupResult]]:
    """Carry out several sweeps at once, round by round; return where the searches of each ended."""
    study, account = driver.study, account or Account()
    groups: list[_Group] = []
    for job in jobs:
        label = job.label or job.sweep.id
        constants = job.sweep.constants(job.constants or (lambda *names: look_up(study, *names)))
        study.put(f"sweep/{label}", job.sweep.to_json())
        groups += [_Group(job, label, *one) for one in constants.items()]
    while _admit(groups, account):
        for label in dict.fromkeys(group.label for group in groups):
            mine = [run for group in groups if group.label == label for run in group.wanted.values()]
            if mine:
                study.ask(mine, label=label)
        together = [run for group in groups for run in group.wanted.values()]
        try:
            losses = driver.compute(together, until=account.until)
        except OutOfTime:
            for group in groups:
                if group.wanted:
                    group.stop("time")
            break
        for group in groups:
            if group.wanted:
                group.take(losses)
    return [[group.result() for group in groups if group.job is job] for job in jobs]


def _admit(groups: Sequence[_Group], account: Account) -> bool:
    """Stop the groups whose wishes exceed the budget, and note those of the others; return whether there are any."""
    for group in groups:
        if out_of := account.admit({run.id: run.flops for run in group.wanted.values()}):
            group.stop(out_of)
    return any(group.wanted for group in groups)


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
