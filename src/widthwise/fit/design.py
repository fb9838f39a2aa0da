"""Which runs to train next: those that narrow the interval of the exponent most for their cost.

Around its best fit a landscape is a linear model, in which the covariance after another run does not depend on the
run's loss. So the effect of a run is known before it is trained. Runs are chosen one after another, each for the
largest fall of the exponent's log variance per FLOP. A new seed has an unknown level, so its first two runs are chosen
as a pair.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widthwise.fit.intervals import Array
from widthwise.fit.landscape import HIGH, Landscape, errors_at, precisions, shape

LOWEST, HIGHEST = -2.5, 1.75
"""How far from the optimum, in octaves, rates are considered."""
RISE = 0.15
"""Rates at which the log loss is further than this above the optimum are not considered."""


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """A run to train: its width, the log2 of its learning rate, and its seed."""

    width: int
    octave: float
    seed: int


def choose(
    landscape: Landscape,
    known: Iterable[Sample],
    *,
    candidates: Mapping[int, Sequence[float]],
    new_seeds: Mapping[int, int],
    cost: Callable[[int], float],
    factor: float,
    most_cost: float,
) -> list[Sample]:
    """Choose runs until the exponent's error has fallen by a factor, or until they cost too much.

    Args:
        landscape: A fit of a power law: its positions are a position at its centre, and an exponent.
        known: The runs that were trained.
        candidates: The rates that can be tried at each width, as log2.
        new_seeds: The next seed of each width.
        cost: Returns the cost of a run of a width.
        factor: The factor, below 1.
        most_cost: What all of them may cost; at least one run, or a pair, is chosen.
    """
    points = list(known)
    design = _Design(landscape, points, new_seeds)
    tried, chosen, spent = set(points), list[Sample](), 0.0
    goal = design.variance * factor**2
    while design.variance > goal:
        best: tuple[float, tuple[Sample, ...]] | None = None
        for move in design.moves(candidates, tried):
            price = sum(cost(point.width) for point in move)
            gain = -math.log(design.after(move) / design.variance) / price
            if (not chosen or spent + price <= most_cost) and (best is None or gain > best[0]):
                best = gain, move
        if best is None or best[0] <= 0:
            break
        design.add(best[1])
        tried |= set(best[1])
        chosen += best[1]
        spent += sum(cost(point.width) for point in best[1])
    return chosen


def rise_at(landscape: Landscape, point: Sample) -> float:
    """Return how far above that of the optimum the log loss of a run is expected to be."""
    return landscape.rise(_away(landscape, point), point.width)


def near_optimum(landscape: Landscape, point: Sample) -> bool:
    """Return whether a run would say much about the optimum of its width."""
    return LOWEST <= _away(landscape, point) <= HIGHEST and rise_at(landscape, point) <= RISE


def _away(landscape: Landscape, point: Sample) -> float:
    position, exponent = landscape.best[:2].tolist()
    return point.octave - position - exponent * (math.log2(point.width) - landscape.centre)


class _Design:
    """The covariance of all coefficients, as runs are added."""

    def __init__(self, landscape: Landscape, known: Sequence[Sample], new_seeds: Mapping[int, int]) -> None:
        self._landscape = landscape
        blocks = dict.fromkeys([*((point.width, point.seed) for point in known), *new_seeds.items()])
        self._blocks = {block: place for place, block in enumerate(blocks)}
        self._started = {(point.width, point.seed) for point in known}
        prior = precisions(2, len(landscape.widths), len(blocks), landscape.spread)
        rows, errors = self._rows([point for point in known if rise_at(landscape, point) <= HIGH])
        self._covariance = np.linalg.inv((rows.T / errors**2) @ rows + np.diag(prior))

    @property
    def variance(self) -> float:
        """The variance of the exponent."""
        return float(self._covariance[1, 1])

    def moves(self, candidates: Mapping[int, Sequence[float]], tried: set[Sample]) -> Iterator[tuple[Sample, ...]]:
        """Return what can be done next: a run of a seed that has some, or two of one that has none."""
        for width, seed in self._blocks:
            points = [Sample(width, octave, seed) for octave in candidates.get(width, ())]
            free = [point for point in points if point not in tried]
            yield from itertools.combinations(free, 1 if (width, seed) in self._started else 2)

    def after(self, move: Sequence[Sample]) -> float:
        """Return the variance of the exponent with these runs added."""
        return float(self._updated(move, only=1)[0, 0])

    def add(self, move: Sequence[Sample]) -> None:
        """Add runs."""
        self._covariance = self._updated(move, only=None)
        self._started |= {(point.width, point.seed) for point in move}

    def _updated(self, move: Sequence[Sample], only: int | None) -> Array:
        rows, errors = self._rows(move)
        kept = slice(None) if only is None else slice(only, only + 1)
        towards = self._covariance @ rows.T
        inside = rows @ towards + np.diag(errors**2)
        return self._covariance[kept, kept] - towards[kept] @ np.linalg.solve(inside, towards[kept].T)

    def _rows(self, points: Sequence[Sample]) -> tuple[Array, Array]:
        """Return the derivatives of log losses by all coefficients, and their standard deviations."""
        fit = self._landscape
        logs = np.array([math.log2(point.width) - fit.centre for point in points])
        away = np.array([point.octave for point in points]) - fit.best[0] - fit.best[1] * logs
        rise, slope, shapes = shape(away, np.array([fit.shape_of(point.width) for point in points]))
        block = np.eye(len(self._blocks))[[self._blocks[point.width, point.seed] for point in points]]
        width = np.eye(len(fit.widths))[[fit.widths.index(point.width) for point in points]]
        varied = (width[:, :, None] * shapes[:, None, :]).reshape(len(points), -1)
        positions = np.stack([-slope, -slope * logs], axis=1)
        derivatives = np.hstack([positions, shapes, varied, block, -slope[:, None] * block])
        return derivatives, fit.noise * errors_at(rise)
