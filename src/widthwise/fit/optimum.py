"""The optimal learning rate at one width, and how sensitive the loss is to it.

If the best learning rate is the lowest or highest one tried, the optimum is unknown, however well a parabola fits. Its
error is then infinite, and later fits do not use it.
"""

import math
from dataclasses import dataclass

import numpy as np

from widthwise.fit.intervals import UNKNOWN, Estimate
from widthwise.fit.parabola import Window, find_window, fit_parabola
from widthwise.fit.trials import Curve, Edge
from widthwise.fit.weighted import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The optimal learning rate at a width, and how much it matters.

    Attributes:
        width: The width.
        octaves: log2 of the optimal learning rate; its error is infinite if it is not interior.
        eval_loss: The loss at the optimum, the geometric mean over seeds.
        lower_tried: Whether a lower learning rate was tried.
        higher_tried: Whether a higher one was tried; diverged runs count.
        seeds: The number of seeds used.
        fitted: The lowest and the highest learning rate of the fitted parabola; None without one.
        curvature: The second derivative of the log loss with respect to octaves. One octave away from the optimum, the
            loss is larger by half of it, as a fraction.
        lean: By how much that fraction is larger one octave above the optimum, and smaller one octave below.
        edge: The stability edge.
    """

    width: int
    octaves: Measured
    eval_loss: float
    lower_tried: bool = True
    higher_tried: bool = True
    seeds: int
    fitted: tuple[float, float] | None = None
    curvature: Estimate = UNKNOWN
    lean: float = 0.0
    edge: Edge

    @property
    def interior(self) -> bool:
        """Whether the optimum lies between learning rates that were tried; if not, it is unknown."""
        return self.lower_tried and self.higher_tried

    @property
    def learning_rate(self) -> Estimate:
        """The optimal learning rate; if it is not interior, the best one tried, with an interval from 0 to infinity."""
        return as_learning_rate(self.octaves.estimate)

    @property
    def octaves_to_edge(self) -> float | None:
        """How many octaves the stability edge lies above the optimum; None if either is unknown."""
        return self.edge.octaves_above(self.learning_rate.value) if self.interior else None


def as_learning_rate(octaves: Estimate) -> Estimate:
    """Convert log2 of a learning rate to the learning rate."""
    value, low, high = (math.inf if each > 1000 else 2.0**each for each in (octaves.value, octaves.low, octaves.high))
    return Estimate(value=value, low=low, high=high)


def find_optimum(curve: Curve) -> Optimum:
    """Find the optimal learning rate at a width."""
    best, highest = curve.best, len(curve.octaves) - 1
    if not math.isfinite(curve.level[best]):
        return _edge_of_tried(curve, lower_tried=False, higher_tried=True)
    if best in (0, highest):
        return _edge_of_tried(curve, lower_tried=best > 0, higher_tried=best < highest)
    window = find_window(curve)
    parabola = fit_parabola(curve, window)
    if parabola is None:
        return _bracketed(curve, window)
    vertex = parabola.vertex
    lowest_tried, highest_tried = float(curve.octaves[0]), float(curve.octaves[highest])
    if not lowest_tried < vertex.value < highest_tried:
        below = vertex.value <= lowest_tried
        return _edge_of_tried(curve, lower_tried=not below, higher_tried=below)
    low, high = (float(curve.octaves[place]) for place in (window.first, window.last))
    if not low <= vertex.value < curve.octaves[min(window.last + 1, highest)]:
        return _bracketed(curve, window)
    return Optimum(
        width=curve.width,
        octaves=vertex,
        eval_loss=math.exp(parabola.bottom),
        seeds=parabola.seeds,
        fitted=(2.0**low, 2.0**high),
        curvature=Estimate.around(2 * parabola.bend.value, 2 * parabola.bend.error, freedom=parabola.bend.freedom),
        lean=parabola.lean,
        edge=curve.edge,
    )


def _edge_of_tried(curve: Curve, *, lower_tried: bool, higher_tried: bool) -> Optimum:
    known = math.isfinite(curve.level[curve.best])
    best = Measured(value=float(curve.octaves[curve.best]) if known else math.nan, error=math.inf, freedom=0)
    return _without_parabola(curve, best, lower_tried=lower_tried, higher_tried=higher_tried)


def _bracketed(curve: Curve, window: Window) -> Optimum:
    """Return an optimum somewhere in the window, with the error of a uniform distribution over it."""
    first, last = min(window.first, curve.best - 1), max(window.last, curve.best + 1)
    error = float(curve.octaves[last] - curve.octaves[first]) / math.sqrt(12)
    best = Measured(value=float(curve.octaves[curve.best]), error=error, freedom=last - first)
    return _without_parabola(curve, best)


def _without_parabola(curve: Curve, best: Measured, *, lower_tried: bool = True, higher_tried: bool = True) -> Optimum:
    return Optimum(
        width=curve.width,
        octaves=best,
        eval_loss=math.exp(curve.level[curve.best]),
        lower_tried=lower_tried,
        higher_tried=higher_tried,
        seeds=int(np.isfinite(curve.losses[:, curve.best]).sum()),
        edge=curve.edge,
    )
