"""The optimal learning rate of every width, and how sensitive the loss is to it.

If the best learning rate is the lowest or highest one tried, the optimum is unknown, however well a curve fits. Its
interval is then infinite, and the power law does not use it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from widthwise.fit.intervals import UNKNOWN, Estimate, student
from widthwise.fit.landscape import HIGH, Landscape, Runs, fit_landscape
from widthwise.fit.trials import Curve, Edge

SURE = student(math.inf)
"""How many standard errors an interval reaches to each side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The optimal learning rate at a width, and how much it matters.

    Attributes:
        width: The width.
        octaves: log2 of the optimal learning rate; its interval is infinite if it is not interior.
        eval_loss: The loss at the optimum, the geometric mean over seeds.
        levels: The log loss at the optimum of each seed; empty if the optimum is not interior.
        lower_tried: Whether a lower learning rate was tried.
        higher_tried: Whether a higher one was tried; diverged runs count.
        seeds: The number of seeds used.
        fitted: The lowest and the highest learning rate that was fitted; None if the optimum is not interior.
        curvature: The second derivative of the log loss with respect to octaves. One octave away from the optimum, the
            loss is larger by about half of it, as a fraction.
        edge: The stability edge.
    """

    width: int
    octaves: Estimate
    eval_loss: float
    levels: Mapping[int, Estimate] = field(default_factory=dict[int, Estimate])
    lower_tried: bool = True
    higher_tried: bool = True
    seeds: int
    fitted: tuple[float, float] | None = None
    curvature: Estimate = UNKNOWN
    edge: Edge

    @property
    def interior(self) -> bool:
        """Whether the optimum lies between learning rates that were tried; if not, it is unknown."""
        return self.lower_tried and self.higher_tried

    @property
    def learning_rate(self) -> Estimate:
        """The optimal learning rate; if it is not interior, the best one tried, with an interval from 0 to infinity."""
        return as_learning_rate(self.octaves)

    @property
    def octaves_to_edge(self) -> float | None:
        """How many octaves the stability edge lies above the optimum; None if either is unknown."""
        return self.edge.octaves_above(self.learning_rate.value) if self.interior else None


@dataclass(frozen=True, kw_only=True)
class Optima:
    """The optima of all widths, and the landscape that they were read from.

    Attributes:
        each: The optimum of every width, in ascending order.
        runs: The runs of the widths whose optimum is interior.
        landscape: Their fit, with a position for each of these widths; None without any.
    """

    each: tuple[Optimum, ...]
    runs: Runs
    landscape: Landscape | None

    @property
    def known(self) -> tuple[Optimum, ...]:
        """The optima that are interior."""
        return tuple(optimum for optimum in self.each if optimum.interior)


def as_learning_rate(octaves: Estimate) -> Estimate:
    """Convert log2 of a learning rate to the learning rate."""
    value, low, high = (math.inf if each > 1000 else 2.0**each for each in (octaves.value, octaves.low, octaves.high))
    return Estimate(value=value, low=low, high=high)


def find_optima(curves: Sequence[Curve]) -> Optima:
    """Find the optimal learning rates at several widths, from one fit of all of them."""
    beyond: dict[int, int] = {}  # widths whose optimum is not interior, and on which side of what was tried it is
    for curve in curves:
        if not math.isfinite(curve.level[curve.best]) or curve.best == 0:
            beyond[curve.width] = -1
        elif curve.best == len(curve.octaves) - 1:
            beyond[curve.width] = 1
    while True:
        inside = [curve for curve in curves if curve.width not in beyond]
        runs = gather(inside)
        widths = np.array([float(curve.width) for curve in inside])
        landscape = fit_landscape(runs, np.equal.outer(runs.widths, widths).astype(float)) if inside else None
        away = {
            curve.width: -1 if place <= curve.octaves[0] else 1
            for curve, place in zip(inside, [] if landscape is None else landscape.best, strict=False)
            if not curve.octaves[0] < place < curve.octaves[-1]
        }
        if not away:
            break
        beyond |= away
    places = {curve.width: place for place, curve in enumerate(inside)}
    return Optima(
        each=tuple(
            _interior(curve, landscape, runs, places[curve.width])
            if landscape is not None and curve.width in places
            else _at_the_end(curve, beyond[curve.width])
            for curve in curves
        ),
        runs=runs,
        landscape=landscape,
    )


def gather(curves: Sequence[Curve]) -> Runs:
    """Return the runs of these widths that did not diverge; the best rate of each width is an inner one."""
    octaves: list[float] = []
    losses: list[float] = []
    blocks: list[int] = []
    widths: list[float] = []
    brackets: list[tuple[float, float]] = []
    for curve in curves:
        lower, place, upper = curve.octaves[curve.best - 1 : curve.best + 2].tolist()
        for row in curve.losses:
            there = np.isfinite(row)
            if there.any():
                octaves += curve.octaves[there].tolist()
                losses += row[there].tolist()
                blocks += [len(widths)] * int(there.sum())
                widths.append(float(curve.width))
                brackets.append((place, upper - lower))
    return Runs(
        octaves=np.array(octaves),
        losses=np.array(losses),
        blocks=np.array(blocks, np.intp),
        widths=np.array(widths),
        brackets=np.array(brackets).reshape(-1, 2),
    )


def _interior(curve: Curve, landscape: Landscape, runs: Runs, place: int) -> Optimum:
    mine = runs.widths == curve.width
    seeds = [seed for seed, losses in zip(curve.seeds, curve.losses, strict=True) if np.isfinite(losses).any()]
    near = curve.octaves[curve.level <= curve.level[curve.best] + HIGH]
    return Optimum(
        width=curve.width,
        octaves=landscape.estimate([*np.zeros(place), 1.0]),
        eval_loss=math.exp(float(landscape.levels[mine].mean())),
        levels={
            seed: Estimate(value=level, low=level - wide, high=level + wide)
            for seed, level, wide in zip(
                seeds, landscape.levels[mine].tolist(), (SURE * landscape.level_errors[mine]).tolist(), strict=True
            )
        },
        seeds=int(mine.sum()),
        fitted=(2.0 ** float(near[0]), 2.0 ** float(near[-1])),
        curvature=landscape.curvature(curve.width),
        edge=curve.edge,
    )


def _at_the_end(curve: Curve, side: int) -> Optimum:
    known = math.isfinite(curve.level[curve.best])
    best = float(curve.octaves[curve.best]) if known else math.nan
    return Optimum(
        width=curve.width,
        octaves=Estimate(value=best, low=-math.inf, high=math.inf),
        eval_loss=math.exp(curve.level[curve.best]),
        lower_tried=side > 0,
        higher_tried=(side < 0 and len(curve.octaves) > 1) or not known,
        seeds=int(np.isfinite(curve.losses[:, curve.best]).sum()),
        edge=curve.edge,
    )
