"""The search for constants ("Hyperparameter tuning for constant per-layer learning rate factors", appendix).

The three constants γ are searched together, on a log scale, at the base width. When the number of trials is spent and
an optimum lies at or near an edge of its range, that range is moved to 0.01 to 100 times the optimum, and as many
trials follow. The result is an average over all trials that are as good as the best.

The paper does not say which average. Ours is the geometric mean: what is searched on a log scale is averaged there,
and a common factor or the inverse of constants makes no difference.

What to try next is a pure function of the trials so far, in the order of batches. The batch in progress is proposed
from the batches before it, however much of it is known, so a search that was stopped resumes as if it had not been. The
price is that a batch waits for its slowest trial; in lanes, all trials of a batch end together anyway.

The sampler sees trials that diverged as infinitely bad, so that it stays away from them. Leaving them out as failures
costs up to a factor of five in excess loss on the function of `benchmarks/tuning.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from widthwise.parameterize import Constants
from widthwise.theory import Role

Ranges = Mapping[Role, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantsTrial:
    """Constants that were tried, and their eval loss; NaN or infinite if training diverged."""

    constants: Constants
    loss: float


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The result of a search for constants.

    Attributes:
        constants: The average over the best trials.
        loss: The smallest loss of a trial.
        averaged: How many trials are as good as the best.
        ranges: The range searched last, for each role.
        extended: The roles whose range had to be moved.
        at_edge: The roles whose constant lies at or near an edge of its range all the same.
    """

    constants: Constants
    loss: float
    averaged: int
    ranges: Ranges
    extended: tuple[Role, ...]
    at_edge: tuple[Role, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all but the constants as values that `json.dumps` takes."""
        return {
            "eval_loss": self.loss,
            "averaged": self.averaged,
            "ranges": {role.value: list(ends) for role, ends in self.ranges.items()},
            "extended": [role.value for role in self.extended],
            "at_edge": [role.value for role in self.at_edge],
        }


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A search for constants."""

    trials: int = 800
    """Trials to run, and again after each move of a range; 60 are sensible on a CPU."""
    batch: int = 32
    """Trials to propose at a time."""
    low: float = 1e-2
    """The lower end of the range of each constant, at first."""
    high: float = 1e2
    """The upper end."""
    near: float = 2.0
    """An optimum within this factor of an end of its range is near the edge."""
    extensions: int = 2
    """How many times ranges may be moved."""
    tolerance: float = 1e-3
    """How much worse than the best, as a fraction, a trial may be to count as good as the best."""
    seed: int = 0
    """The seed of the sampler."""

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("batch", 1), ("extensions", 0), ("seed", 0), ("tolerance", 0), ("near", 1)):
            if not (value := getattr(self, name)) >= least:
                raise ValueError(f"{name} is {value}: expected {least} or more")
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"constants from {self.low} to {self.high}: expected 0 < low < high")

    def propose(self, tried: Sequence[ConstantsTrial]) -> list[Constants]:
        """Return the constants to try next, side by side: the rest of the batch in progress; nothing at the end.

        Args:
            tried: All trials so far, batch after batch; within a batch, the order does not matter.
        """
        ranges, over = self._ranges(tried)
        if over:
            return []
        stage, spent = divmod(len(tried), self.trials)
        start = stage * self.trials + spent // self.batch * self.batch
        size = min(self.batch, (stage + 1) * self.trials - start)
        before = sorted(range(start), key=lambda i: (self._batch_of(i), astuple(tried[i].constants)))
        batch = _sample([tried[i] for i in before], ranges, size, seed=[self.seed, start])
        if start == 0 and self.low <= 1 <= self.high:
            # The default comes first, so that the gain over it is known.
            batch[0] = Constants()
        known = [trial.constants for trial in tried[start:]]
        # As many as are left, even if what is known was proposed by other settings.
        return [constants for constants in batch if constants not in known][: size - len(known)]

    def result(self, tried: Sequence[ConstantsTrial]) -> Tuned | None:
        """Return what was found so far; None if every trial diverged."""
        best = self._best(tried)
        if not best:
            return None
        constants, ranges = _average(best), self._ranges(tried)[0]
        return Tuned(
            constants=constants,
            loss=min(trial.loss for trial in best),
            averaged=len(best),
            ranges=ranges,
            extended=tuple(role for role in Role if ranges[role] != self._first_range),
            at_edge=tuple(role for role in Role if self._near_edge(constants.of(role), ranges[role])),
        )

    @property
    def _first_range(self) -> tuple[float, float]:
        return _rounded(self.low), _rounded(self.high)

    def _batch_of(self, number: int) -> tuple[int, int]:
        stage, spent = divmod(number, self.trials)
        return stage, spent // self.batch

    def _ranges(self, tried: Sequence[ConstantsTrial]) -> tuple[Ranges, bool]:
        """Return the ranges to search in now, and whether the search is over."""
        ranges = dict.fromkeys(Role, self._first_range)
        for stage in range(1, len(tried) // self.trials + 1):
            best = self._best(tried[: stage * self.trials])
            optimum = _average(best) if best else Constants()
            moved = [role for role in Role if best and self._near_edge(optimum.of(role), ranges[role])]
            if stage > self.extensions or not moved:
                return ranges, True
            ranges |= {role: (_rounded(optimum.of(role) / 100), _rounded(optimum.of(role) * 100)) for role in moved}
        return ranges, False

    def _best(self, tried: Sequence[ConstantsTrial]) -> list[ConstantsTrial]:
        losses = [trial.loss for trial in tried if math.isfinite(trial.loss)]
        return [trial for trial in tried if trial.loss <= min(losses) * (1 + self.tolerance)] if losses else []

    def _near_edge(self, constant: float, ends: tuple[float, float]) -> bool:
        return constant <= ends[0] * self.near or constant >= ends[1] / self.near


def _average(trials: Sequence[ConstantsTrial]) -> Constants:
    # An exact sum, so that the order of trials cannot show.
    sums = {role.value: math.fsum(math.log(trial.constants.of(role)) for trial in trials) for role in Role}
    return Constants(**{name: _rounded(math.exp(total / len(trials))) for name, total in sums.items()})


def _rounded(number: float) -> float:
    """Keep six digits, so that constants look the same wherever they are written."""
    return float(f"{number:.6g}")


def _sample(history: Sequence[ConstantsTrial], ranges: Ranges, count: int, seed: Sequence[int]) -> list[Constants]:
    """Ask Optuna for a batch: a tree-structured Parzen estimator that keeps away from trials in flight."""
    import optuna

    space: dict[str, optuna.distributions.BaseDistribution] = {
        role.value: optuna.distributions.FloatDistribution(low, high, log=True) for role, (low, high) in ranges.items()
    }
    seed_of_batch = int(np.random.SeedSequence(seed).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(multivariate=True, constant_liar=True, seed=seed_of_batch)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(sampler=sampler)
    finally:
        optuna.logging.set_verbosity(verbosity)
    for trial in history:
        if all(low <= trial.constants.of(role) <= high for role, (low, high) in ranges.items()):
            value = trial.loss if math.isfinite(trial.loss) else math.inf
            study.add_trial(optuna.trial.create_trial(params=asdict(trial.constants), distributions=space, value=value))
    asked = [study.ask(space).params for _ in range(count)]
    return [Constants(**{name: _rounded(value) for name, value in params.items()}) for params in asked]
