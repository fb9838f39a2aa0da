# SciPy comes without types; everything else here is checked strictly.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
"""A parabola in log loss against octaves of learning rate, around the lowest loss tried.

The curves are flat on the left and end in a cliff on the right, so a parabola through everything finite would be
pushed away from the cliff. The window starts as the learning rates within 20 % of the lowest loss, and loses the point
at an end for as long as the others do not predict it. Where that happened the curve is no parabola, and leaving each
learning rate out in turn says more about the error than residuals do: the larger of the two counts.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from widthwise.fit.intervals import Array
from widthwise.fit.trials import UNSTABLE, Curve
from widthwise.fit.weighted import Measured, combine

SURPRISE = 0.02
"""The probability below which a point at an end of the window is taken to lie off the parabola."""
FEWEST = 4
"""Points without which there is no parabola with an error."""
RESOLUTION = 0.01
"""The least standard error of a vertex, in steps of the grid: no curve is a parabola to the last digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The learning rates a parabola is fitted to, as first and last place on the curve.

    Attributes:
        first: The first place.
        last: The last place.
        cut: Whether points within 20 % of the lowest loss were left out because the others did not predict them.
    """

    first: int
    last: int
    cut: bool

    @property
    def places(self) -> slice:
        """The places."""
        return slice(self.first, self.last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parabola:
    """A fitted parabola.

    Attributes:
        vertex: Where it is lowest, in octaves, over seeds.
        bottom: The log loss there, the mean over seeds.
        bend: The factor of the square of octaves.
        seeds: How many seeds it rests on.
    """

    vertex: Measured
    bottom: float
    bend: Measured
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """One bend for all seeds; vertices are the seeds' own.

    `gains` are the variances of the vertices over that of the noise, at a given bend; `drift` is how the vertices move
    with the bend.
    """

    vertices: Array
    gains: Array
    drift: Array
    bottoms: Array
    bend: Array
    bend_error: Array
    noise: Array
    freedom: int


def find_window(curve: Curve) -> Window:
    """Find the learning rates around the lowest loss on which the curve is a parabola."""
    level, best = curve.level, curve.best
    first, last = best, best
    while first > 0 and level[first - 1] <= level[best] + UNSTABLE:
        first -= 1
    while last < len(level) - 1 and level[last + 1] <= level[best] + UNSTABLE:
        last += 1
    while last - first + 1 < FEWEST:
        below = level[first - 1] if first > 0 else math.inf
        above = level[last + 1] if last < len(level) - 1 else math.inf
        if not math.isfinite(min(below, above)):
            break
        first, last = (first - 1, last) if below <= above else (first, last + 1)
    cut = False
    while last - first > FEWEST:
        low, high = _surprise(curve.octaves[first : last + 1], level[first : last + 1])
        # The lowest point itself is never given up.
        low, high = low if first < best else 1.0, high if last > best else 1.0
        if min(low, high) > SURPRISE:
            break
        first, last, cut = (first + 1, last, True) if low < high else (first, last - 1, True)
    return Window(first=first, last=last, cut=cut)


def fit_parabola(curve: Curve, window: Window) -> Parabola | None:
    """Fit a parabola to a window; None where there are too few points or where it does not open upwards.

    Every seed has a vertex of its own. Their spread and the noise of the points both enter the error.
    """
    octaves, losses = curve.octaves[window.places], curve.losses[:, window.places]
    losses = losses[np.isfinite(losses).sum(axis=1) >= FEWEST - 1]
    seeds = len(losses)
    if not seeds or np.isfinite(losses).sum() <= 2 * seeds + 1:
        return None
    fit = _fit(octaves, losses)
    if not fit.bend > 0:
        return None
    bend = Measured(value=float(fit.bend), error=float(fit.bend_error), freedom=fit.freedom)
    least = RESOLUTION * float(np.median(np.diff(octaves)))
    errors = np.maximum(least, np.sqrt(fit.noise * fit.gains)).tolist()
    vertices = [
        Measured(value=vertex, error=error, freedom=fit.freedom / seeds)
        for vertex, error in zip(fit.vertices.tolist(), errors, strict=True)
    ]
    mean = combine(vertices, [[1.0]] * seeds)
    shared = (bend.error * float(mean.solution[0] @ fit.drift)) ** 2
    if window.cut:
        explained = float(mean.solution[0] ** 2 @ mean.variances) + shared
        shared += max(0.0, _variance_by_leaving_out(octaves, losses) - explained)
    return Parabola(
        vertex=mean.at([1.0]).plus(shared, fit.freedom), bottom=float(fit.bottoms.mean()), bend=bend, seeds=seeds
    )


def _surprise(octaves: Array, level: Array) -> tuple[float, float]:
    """Give the probabilities that the first and the last point lie as far from the parabola through the others."""
    centred = octaves - octaves.mean()
    basis, _ = np.linalg.qr(np.stack([np.ones_like(centred), centred, centred**2], axis=1))
    residuals = level - basis @ (basis.T @ level)
    room = 1 - np.sum(basis**2, axis=1)
    freedom = len(octaves) - 4
    noise = np.maximum((residuals @ residuals - residuals**2 / room) / freedom, 1e-24)
    low, high = special.stdtr(freedom, -np.abs(residuals / np.sqrt(noise * room))[[0, -1]]) * 2
    return float(low), float(high)


def _fit(octaves: Array, losses: Array) -> _Fit:
    """Fit the last axis, learning rates, of all seeds of the axis before it; further axes are fits side by side."""
    there = np.isfinite(losses)
    counts = there.sum(axis=-1)
    x = octaves - octaves.mean()
    y = np.where(there, losses, 0.0)

    def centred(values: Array) -> Array:
        return np.where(there, values - ((values * there).sum(axis=-1) / counts)[..., None], 0.0)

    # Every seed's level and slope are projected out, which leaves one number to fit: the bend.
    line, squares, heights = centred(x), centred(x**2), centred(y)
    norm = (line**2).sum(axis=-1)
    tilt = (line * squares).sum(axis=-1) / norm
    slope = (line * heights).sum(axis=-1) / norm
    curved = squares - tilt[..., None] * line
    weight = (curved**2).sum(axis=(-2, -1))
    freedom = int(counts.sum(axis=-1).min()) - 2 * losses.shape[-2] - 1
    # A curve without any bend has no vertex; who asks looks at the bend first.
    with np.errstate(divide="ignore", invalid="ignore"):
        bend = (curved * heights).sum(axis=(-2, -1)) / weight
        each = bend[..., None]
        residuals = heights - slope[..., None] * line - each[..., None] * curved
        noise = (residuals**2).sum(axis=(-2, -1)) / max(1, freedom)
        vertices = tilt / 2 - slope / (2 * each)
        bottoms = ((y - each[..., None] * (x - vertices[..., None]) ** 2) * there).sum(axis=-1) / counts
        return _Fit(
            vertices=vertices + octaves.mean(),
            gains=1 / (4 * each**2 * norm),
            drift=slope / (2 * each**2),
            bottoms=bottoms,
            bend=bend,
            bend_error=np.sqrt(noise / weight),
            noise=noise,
            freedom=freedom,
        )


def _variance_by_leaving_out(octaves: Array, losses: Array) -> float:
    """Give the variance of the mean vertex from leaving out one learning rate at a time (the jackknife)."""
    without = np.eye(len(octaves), dtype=bool)[:, None, :]
    fit = _fit(octaves, np.where(without, np.nan, losses))
    vertices = fit.vertices.mean(axis=-1)[fit.bend > 0]
    return (len(vertices) - 1) * float(vertices.var()) if len(vertices) > 1 else 0.0
