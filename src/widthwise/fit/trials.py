"""The measurements of a sweep: trials, and the trials of one width arranged by learning rate.

All fits use octaves (log2 of the learning rate) and the logarithm of the loss, in which the curves of different widths
have about the same shape. A learning rate at which any seed diverged counts as diverged.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from widthwise.fit.intervals import Array

UNSTABLE = math.log(1.2)
"""Above the optimal learning rate, a log loss this far above the minimum is unstable: 20 %, as in the paper."""
PASSES = 20
"""Rounds of alternately fitting seeds and learning rates, if seeds tried different learning rates."""
EDGE_OCTAVES = 0.5
"""The largest distance between the learning rates on both sides of the stability edge, as in the paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A finished run: its learning rate and its final eval loss, NaN or infinite if it diverged.

    Fits compare runs of different sizes, which are widths unless `fit_transfer` is told of another axis.
    """

    width: int
    learning_rate: float
    eval_loss: float
    seed: int = 0
    parameters: int | None = None

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width is {self.width}: expected 1 or more")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate is {self.learning_rate}: expected a number above 0")
        if self.eval_loss <= 0:
            raise ValueError(f"eval_loss is {self.eval_loss}: expected a number above 0, NaN or infinity")
        if self.parameters is not None and self.parameters < 1:
            raise ValueError(f"parameters is {self.parameters}: expected 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The two learning rates between which training stops being stable; None where none was tried."""

    largest_stable: float | None
    smallest_unstable: float | None

    @property
    def located(self) -> bool:
        """Whether both are known and at most 2^0.5 apart."""
        if self.largest_stable is None or self.smallest_unstable is None:
            return False
        return math.log2(self.smallest_unstable / self.largest_stable) <= EDGE_OCTAVES + 1e-6

    def octaves_above(self, learning_rate: float) -> float | None:
        """Return how far the edge lies above a learning rate, in octaves; None if no edge was found."""
        if self.largest_stable is None or self.smallest_unstable is None:
            return None
        return math.log2(self.largest_stable * self.smallest_unstable) / 2 - math.log2(learning_rate)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The losses of one width against learning rate.

    Attributes:
        width: The width.
        octaves: log2 of the learning rates, in ascending order.
        seeds: The seeds, ascending.
        losses: Log losses, one row per seed, one column per learning rate; infinite if diverged, NaN if not tried.
        level: The mean over seeds, infinite if any diverged. Seeds that tried fewer learning rates are first aligned
            with the others.
        parameters: The number of parameters, if known.
    """

    width: int
    octaves: Array
    seeds: tuple[int, ...]
    losses: Array
    level: Array
    parameters: int | None

    @property
    def best(self) -> int:
        """The index of the lowest level."""
        return int(np.argmin(self.level))

    @property
    def edge(self) -> Edge:
        """The stability edge, just below the smallest unstable learning rate above the best one."""
        if not math.isfinite(self.level[self.best]):
            return Edge(largest_stable=None, smallest_unstable=2.0 ** float(self.octaves[0]))
        first = first_unstable(self.level)
        return Edge(
            largest_stable=2.0 ** float(self.octaves[-1 if first is None else first - 1]),
            smallest_unstable=None if first is None else 2.0 ** float(self.octaves[first]),
        )

    def level_at(self, octave: float) -> float:
        """Interpolate the level.

        It is infinite next to a diverged learning rate, and above all learning rates if one was unstable. Elsewhere
        outside the range that was tried, it is NaN.
        """
        right = int(np.searchsorted(self.octaves, octave))
        if right == len(self.octaves):
            return math.nan if self.edge.smallest_unstable is None else math.inf
        if math.isclose(self.octaves[right], octave, abs_tol=1e-6):
            return float(self.level[right])
        if right == 0:
            return math.nan
        (low, high), (below, above) = self.octaves[right - 1 : right + 1], self.level[right - 1 : right + 1]
        if not (math.isfinite(below) and math.isfinite(above)):
            return math.inf
        return float(below + (above - below) * (octave - low) / (high - low))


def first_unstable(level: Array) -> int | None:
    """Return the place of the first unstable rate above the best one: it diverged, or lost more than 20 %.

    Args:
        level: Mean log losses by ascending learning rate, infinite where training diverged.
    """
    best = int(np.argmin(level))
    above = np.flatnonzero(level[best + 1 :] > level[best] + UNSTABLE)
    return best + 1 + int(above[0]) if above.size else None


def mean_loss(losses: Iterable[float]) -> float:
    """Return the mean over seeds, taken of logarithms as fits do; NaN if any seed diverged.

    >>> mean_loss([1.0, 4.0]), mean_loss([1.0, math.inf])
    (2.0, nan)
    """
    each = list(losses)
    return math.exp(sum(map(math.log, each)) / len(each)) if all(map(math.isfinite, each)) else math.nan


def curves(trials: Iterable[Trial]) -> tuple[Curve, ...]:
    """Arrange the trials of one setting by width, ascending."""
    groups: dict[int, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.width].append(trial)
    return tuple(_curve(width, groups[width]) for width in sorted(groups))


def _curve(width: int, trials: list[Trial]) -> Curve:
    # Grids computed in different ways differ in the last digits: round them to the same learning rate.
    octaves = np.round(np.log2([trial.learning_rate for trial in trials]), 6)
    places, columns = np.unique(octaves, return_inverse=True)
    seeds, rows = np.unique([trial.seed for trial in trials], return_inverse=True)
    losses = np.full((len(seeds), len(places)), np.nan)
    tried = np.array([trial.eval_loss for trial in trials])
    losses[rows, columns] = np.where(np.isfinite(tried), np.log(np.where(np.isfinite(tried), tried, 1.0)), np.inf)
    if np.isfinite(losses).sum() + np.isinf(losses).sum() < len(trials):
        places_taken = np.bincount(rows * len(places) + columns)
        row, column = divmod(int(np.argmax(places_taken > 1)), len(places))
        raise ValueError(
            f"width {width} has learning rate {2 ** places[column]:.6g} with seed {seeds[row]} twice: expected once"
        )
    sizes = sorted({trial.parameters for trial in trials if trial.parameters is not None})
    if len(sizes) > 1:
        raise ValueError(f"width {width} has {sizes[0]} and {sizes[1]} parameters: expected one number")
    return Curve(
        width=width,
        octaves=np.asarray(places, float),
        seeds=tuple(seeds.tolist()),
        losses=losses,
        level=_level(losses),
        parameters=sizes[0] if sizes else None,
    )


def _level(losses: Array) -> Array:
    """Average over seeds, so that a seed tried only around the optimum does not raise or lower the curve there."""
    offsets = np.zeros((len(losses), 1))
    if np.isnan(losses).any():
        known = np.where(np.isinf(losses).any(axis=0), np.nan, losses)
        seeds, places = ~np.isnan(known).all(axis=1), ~np.isnan(known).all(axis=0)
        known = known[seeds][:, places]
        for _ in range(PASSES if known.size else 0):
            level = np.nanmean(known - offsets[seeds], axis=0)
            offsets[seeds] = np.nanmean(known - level, axis=1, keepdims=True)
    return np.nanmean(losses - (offsets - offsets.mean()), axis=0)
