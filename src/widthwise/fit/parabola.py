# SciPy comes without types; everything else here is checked strictly.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
"""A parabola, or a cubic, fitted to log loss against log2 of the learning rate, around the lowest loss.

The curves are flat on the left and end in a cliff on the right, so a parabola through all finite losses would be pushed
away from the cliff. The window starts with the learning rates within 10 % of the lowest loss, and drops the point at an
end as long as the other points do not predict it. If that happens, the curve is not a parabola, and the jackknife
(leaving out one learning rate at a time) estimates the error better than the residuals do. The larger one counts.

Even near the optimum, one side is steeper than the other. A parabola then misses the optimum by more than its own
interval: on lopsided curves, 95 % intervals contained it in a quarter of the cases. With enough points, a cubic term
corrects for that.
"""

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy import special

from widthwise.fit.intervals import Array
from widthwise.fit.trials import Curve
from widthwise.fit.weighted import Measured, combine

SURPRISE = 0.02
"""A point at an end of the window is dropped if its distance from the parabola is less probable than this."""
FEWEST = 4
"""The number of points needed for a parabola with an error."""
LEANING = 6
"""The number of points from which on a cubic term is fitted."""
NEAR = math.log(1.1)
"""The window contains log losses up to this far above the lowest: 10 %."""
RESOLUTION = 0.01
"""The smallest standard error of a vertex, in grid steps, because no curve is exactly a parabola."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The learning rates that a parabola is fitted to.

    Attributes:
        first: The index of the first one on the curve.
        last: The index of the last one.
        cut: Whether points within 10 % of the lowest loss were dropped because the others did not predict them.
    """

    first: int
    last: int
    cut: bool

    @property
    def places(self) -> slice:
        """The indices as a slice."""
        return slice(self.first, self.last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parabola:
    """A fitted parabola.

    Attributes:
        vertex: The position of the minimum in octaves, combined over seeds.
        bottom: The log loss at the minimum, averaged over seeds.
        bend: The quadratic coefficient, in octaves from the minimum.
        lean: The cubic coefficient.
        seeds: The number of seeds used.
    """

    vertex: Measured
    bottom: float
    bend: Measured
    lean: float
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """A fit in which all seeds share the shape (quadratic and cubic coefficient); each has its own vertex and level.

    Vertices are NaN where the curve has no minimum. `gains` are the variances of the vertices relative to the noise,
    for a fixed shape. `drift` is the derivative of the vertices with respect to the coefficients of the shape, and
    `spread` the covariance of the coefficients.
    """

    vertices: Array
    gains: Array
    drift: Array
    bottoms: Array
    bends: Array
    shape: Array
    spread: Array
    noise: Array
    freedom: int


def find_window(curve: Curve) -> Window:
    """Find the learning rates around the lowest loss where the curve is a parabola."""
    level, best = curve.level, curve.best
    first, last = best, best
    while first > 0 and level[first - 1] <= level[best] + NEAR:
        first -= 1
    while last < len(level) - 1 and level[last + 1] <= level[best] + NEAR:
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
        # Never drop the lowest point itself.
        low, high = low if first < best else 1.0, high if last > best else 1.0
        if min(low, high) > SURPRISE:
            break
        first, last, cut = (first + 1, last, True) if low < high else (first, last - 1, True)
    return Window(first=first, last=last, cut=cut)


def fit_parabola(curve: Curve, window: Window) -> Parabola | None:
    """Fit a parabola to a window; return None if there are too few points or if it does not open upwards.

    Every seed has its own vertex. The error includes both their spread and the noise of the points.
    """
    octaves, losses = curve.octaves[window.places], curve.losses[:, window.places]
    losses = losses[np.isfinite(losses).sum(axis=1) >= FEWEST - 1]
    seeds = len(losses)
    if not seeds or np.isfinite(losses).sum() <= 2 * seeds + 1:
        return None
    for powers in ((2, 3), (2,)) if np.isfinite(losses).any(axis=0).sum() >= LEANING else ((2,),):
        fit = _fit(octaves, losses, powers)
        inside = (octaves[0] <= fit.vertices) & (fit.vertices <= octaves[-1])
        if fit.freedom > 0 and np.all(np.isfinite(fit.vertices)) and (powers == (2,) or np.all(inside)):
            return _parabola(octaves, losses, powers, fit, cut=window.cut)
    return None


def _parabola(octaves: Array, losses: Array, powers: tuple[int, ...], fit: _Fit, *, cut: bool) -> Parabola:
    seeds = len(losses)
    least = RESOLUTION * float(np.median(np.diff(octaves)))
    errors = np.maximum(least, np.sqrt(fit.noise * fit.gains)).tolist()
    vertices = [
        Measured(value=vertex, error=error, freedom=fit.freedom / seeds)
        for vertex, error in zip(fit.vertices.tolist(), errors, strict=True)
    ]
    mean = combine(vertices, [[1.0]] * seeds)
    moved = fit.drift @ mean.solution[0]
    shared = float(moved @ fit.spread @ moved)
    if cut:
        explained = float(mean.solution[0] ** 2 @ mean.variances) + shared
        shared += max(0.0, _variance_by_leaving_out(octaves, losses, powers) - explained)
    vertex = mean.at([1.0]).plus(shared, fit.freedom)
    at_vertex = np.array([power * (power - 1) / 2 * (vertex.value - octaves.mean()) ** (power - 2) for power in powers])
    bend_error = math.sqrt(max(0.0, float(at_vertex @ fit.spread @ at_vertex)))
    return Parabola(
        vertex=vertex,
        bottom=float(fit.bottoms.mean()),
        bend=Measured(value=float(fit.bends.mean()), error=bend_error, freedom=fit.freedom),
        lean=float(fit.shape[1]) if len(powers) > 1 else 0.0,
        seeds=seeds,
    )


def _surprise(octaves: Array, level: Array) -> tuple[float, float]:
    """Return how probable the distances of the first and the last point from the parabola through the others are."""
    degree = 3 if len(octaves) > LEANING else 2
    basis, _ = np.linalg.qr(np.vander(octaves - octaves.mean(), degree + 1))
    residuals = level - basis @ (basis.T @ level)
    room = 1 - np.sum(basis**2, axis=1)
    freedom = len(octaves) - degree - 2
    noise = np.maximum((residuals @ residuals - residuals**2 / room) / freedom, 1e-24)
    low, high = special.stdtr(freedom, -np.abs(residuals / np.sqrt(noise * room))[[0, -1]]) * 2
    return float(low), float(high)


def _fit(octaves: Array, losses: Array, powers: tuple[int, ...]) -> _Fit:
    """Fit losses with axes (..., seeds, learning rates); leading axes are independent fits."""
    there = np.isfinite(losses)
    counts = there.sum(axis=-1)
    x = octaves - octaves.mean()

    def mean(values: Array) -> Array:
        return np.where(there, values, 0.0).sum(axis=-1) / counts

    def centred(values: Array) -> Array:
        return np.where(there, values - mean(values)[..., None], 0.0)

    # Projecting out the level and slope of every seed leaves the shape to fit.
    line, heights = centred(x), centred(losses)
    norm = (line**2).sum(axis=-1)
    slope = (line * heights).sum(axis=-1) / norm
    raised = np.stack([centred(x**power) for power in powers], axis=-3)
    tilts = (line[..., None, :, :] * raised).sum(axis=-1) / norm[..., None, :]
    curved = raised - tilts[..., None] * line[..., None, :, :]
    products = np.einsum("...isr,...jsr->...ij", curved, curved)
    inverse = cast(Array, np.linalg.pinv(products))  # singular if every seed has too few points
    shape = np.einsum("...ij,...jsr,...sr->...i", inverse, curved, heights)
    # Coefficients around the middle of the window; without a cubic term, that coefficient is 0.
    rise = slope - np.einsum("...i,...is->...s", shape, tilts)
    square, cube = shape[..., :1], shape[..., 1:].sum(axis=-1, keepdims=True)
    along = rise[..., None] * x + square[..., None] * x**2 + cube[..., None] * x**3
    freedom = int(counts.sum(axis=-1).min()) - 2 * losses.shape[-2] - len(powers)
    noise = (centred(losses - along) ** 2).sum(axis=(-2, -1)) / max(1, freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The minimum is where the slope turns positive, if anywhere; `bends` is half the second derivative there.
        bends = np.sqrt(square**2 - 3 * cube * rise)
        vertices = np.where((bends > 0) & (square + bends > 0), -rise / (square + bends), np.nan)
        moves = [power * vertices ** (power - 1) - tilts[..., i, :] for i, power in enumerate(powers)]
        bottoms = mean(losses - along) + rise * vertices + square * vertices**2 + cube * vertices**3
        return _Fit(
            vertices=vertices + octaves.mean(),
            gains=1 / (4 * bends**2 * norm),
            drift=-np.stack(moves, axis=-2) / (2 * bends[..., None, :]),
            bottoms=bottoms,
            bends=bends,
            shape=shape,
            spread=noise[..., None, None] * inverse,
            noise=noise,
            freedom=freedom,
        )


def _variance_by_leaving_out(octaves: Array, losses: Array, powers: tuple[int, ...]) -> float:
    """Return the jackknife variance of the mean vertex: leave out one learning rate at a time."""
    without = np.eye(len(octaves), dtype=bool)[:, None, :]
    fit = _fit(octaves, np.where(without, np.nan, losses), powers)
    vertices = fit.vertices.mean(axis=-1)
    vertices = vertices[np.isfinite(vertices)]
    return (len(vertices) - 1) * float(vertices.var()) if len(vertices) > 1 else 0.0
