# SciPy comes without types; everything else here is checked strictly.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
"""The loss against learning rate and width, fitted to all runs of a group at once.

The log loss of a run is a level, plus a shape that rises exponentially on both sides of the optimum, plus noise:

    log L = level + g(x - v),    g(u) = c / (p + r) · ((exp(-p·u) - 1) / p + (exp(r·u) - 1) / r)

Here x is log2 of the learning rate, v the position of the optimum, c the curvature there, and p and r are how fast the
loss rises below and above it. The shape varies a little from width to width. Every pair of a width and a seed, a
*block*, has a level of its own, and its optimum lies off v by a random amount, since seeds move it.

The model is made linear around its best fit. What is left to estimate is the noise and the spread of optima over
seeds. Both are integrated out on a grid, so that intervals are honest where a few runs say little about either.
docs/statistics.md derives all of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from widthwise.fit.intervals import CONFIDENCE, Array, Estimate, student

Places: TypeAlias = NDArray[np.intp]

HIGH, NEXT = 0.2, 0.5
"""Log losses further than this above the lowest one of their block are not fitted; next to it, further than that."""
NEAR, MOST = 0.03, 10.0
"""At this height above the optimum, the standard deviation of a run counts as twice the noise: far from the optimum
runs are noisier, and the shape is less exact. It counts as this many times the noise at most."""
SPREAD = 0.2
"""How far seeds move the optimum, in octaves: the scale of a half-normal prior."""
SHAPE, SHAPE_SPREAD = (math.log(0.1), math.log(0.6), math.log(1.2)), (1.0, 0.7, 0.8)
"""The priors of the logarithms of c, p and r: their means and standard deviations."""
WIDTH_SPREAD = (0.3, 0.3, 0.4)
"""How much these logarithms vary from width to width: standard deviations."""
MISFIT = 0.03
"""How far the fitted optimum of a width is off, in octaves, however many runs it has: no curve has this very shape."""
NOISE, NOISE_SPREAD = 0.007, math.log(3)
"""The prior of the standard deviation of a log loss: its logarithm is normal, with this spread around this size."""

NEGLIGIBLE = 1e-5
"""Parts of the mixture with less weight are left out."""

_FLAT = 1e-4
_SPREADS = np.array([0.005, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.55])
_COARSE, _FINE = np.exp2(np.arange(-8.0, 5)), np.exp2(np.arange(-1.75, 2.3, 0.25))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs:
    """Runs to fit, one entry per run.

    Attributes:
        octaves: log2 of the learning rates.
        losses: Log losses, all finite.
        blocks: The place of each run's block.
        widths: The width of each block.
        brackets: For each block, the rate with the lowest loss at its width, and the distance between the rates next
            to it, in octaves. The optimum is expected around there, give or take that distance.
    """

    octaves: Array
    losses: Array
    blocks: Places
    widths: Array
    brackets: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landscape:
    """A fitted landscape: a posterior of its coefficients, as a mixture of normal distributions.

    Attributes:
        centre: log2 of the width at which positions are given.
        widths: The widths.
        positions: How many coefficients determine the positions.
        best: The best fit: positions, the logarithms of c, p and r, and the deviations of each width from these three.
        levels: The log loss at the optimum of each block.
        level_errors: Their standard errors.
        noise: The standard deviation of a log loss, the posterior mean.
        spread: The standard deviation of optima over seeds, the posterior mean.
        misfit: The covariance of the positions that comes from the shape, in addition to that of the runs.
        weights: The weights of the mixture.
        means: The mean of the coefficients for each of them.
        covariances: Their covariance for each of them.
    """

    centre: float
    widths: tuple[float, ...]
    positions: int
    best: Array
    levels: Array
    level_errors: Array
    noise: float
    spread: float
    misfit: Array
    weights: Array
    means: Array
    covariances: Array

    def estimate(self, direction: Sequence[float], *, seeds: int | None = None) -> Estimate:
        """Return the scalar product of the coefficients with a direction.

        Args:
            direction: The factors; missing ones are 0.
            seeds: Predict the mean over this many new seeds; over all possible ones if None.
        """
        factors = np.zeros(self.best.size)
        factors[: len(direction)] = direction
        means = self.means @ factors
        variances = np.einsum("i,kij,j->k", factors, self.covariances, factors)
        variances += self.least(direction) ** 2 + (self.spread**2 / seeds if seeds else 0.0)
        return mixture_estimate(self.weights, means, np.sqrt(variances))

    def least(self, direction: Sequence[float]) -> float:
        """Return the standard error that no number of runs removes."""
        factors = np.asarray(direction[: self.positions], float)
        return math.sqrt(float(factors @ self.misfit[: factors.size, : factors.size] @ factors))

    def curvature(self, width: float) -> Estimate:
        """Return the second derivative of the log loss at the optimum of a width that was fitted."""
        direction = np.zeros(self.best.size)
        direction[[self.positions, self.positions + 3 + 3 * self.widths.index(width)]] = 1.0
        log = self.estimate(direction.tolist())
        return Estimate(value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high))

    def shape_of(self, width: float) -> Array:
        """Return the logarithms of c, p and r of the best fit at a width."""
        common, varied = self.best[self.positions : self.positions + 3], self.best[self.positions + 3 :].reshape(-1, 3)
        return common + varied[self.widths.index(width)] if width in self.widths else common

    def rise(self, away: float, width: float) -> float:
        """Return how much larger the log loss is this many octaves away from the optimum of a width."""
        return float(shape(np.array([away]), self.shape_of(width)[None])[0][0])


def mixture_estimate(weights: Array, means: Array, errors: Array, confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean of a mixture of normal distributions, and its central interval."""
    value = float(weights @ means)
    ends: list[float] = []
    for share in ((1 - confidence) / 2, (1 + confidence) / 2):
        low, high = float((means - 40 * errors).min()), float((means + 40 * errors).max())
        for _ in range(80):
            middle = (low + high) / 2
            below = float(weights @ special.ndtr((middle - means) / errors))
            low, high = (middle, high) if below < share else (low, middle)
        ends.append((low + high) / 2)
    return Estimate(value=value, low=ends[0], high=ends[1])


def shape(away: Array, logs: Array) -> tuple[Array, Array, Array]:
    """Return the shape at these distances from the optimum, and its derivatives.

    Args:
        away: Distances in octaves.
        logs: The logarithms of c, p and r: a row for each distance.

    Returns:
        The shape, its derivative by distance, and its derivatives by the three logarithms, a row for each distance.
    """
    c, p, r = np.exp(logs).T
    low, high = np.exp(np.minimum(-p * away, 50.0)), np.exp(np.minimum(r * away, 50.0))
    below, above = (low - 1) / p, (high - 1) / r
    scale = c / (p + r)
    rise = scale * (below + above)
    by_p = -scale * (away * low + below) - rise * p / (p + r)
    by_r = scale * (away * high - above) - rise * r / (p + r)
    return rise, scale * (high - low), np.stack([rise, by_p, by_r], axis=1)


def precisions(positions: int, widths: int, blocks: int, spread: float) -> Array:
    """Return the precisions of the priors of all coefficients: positions, shape, deviations, levels, offsets."""
    return np.concatenate(
        [
            np.full(positions, _FLAT),
            np.array(SHAPE_SPREAD + WIDTH_SPREAD * widths) ** -2.0,
            np.full(blocks, _FLAT),
            np.full(blocks, spread**-2),
        ]
    )


def finest(widths: Sequence[int]) -> float:
    """Return the narrowest interval of the exponent that these widths allow, as its half-width.

    >>> round(finest([64, 128]), 2), round(finest([64, 128, 256, 512]), 2)
    (0.08, 0.03)
    """
    logs = np.log2(sorted(set(widths)))
    return student(math.inf) * MISFIT / math.sqrt(float(np.sum((logs - logs.mean()) ** 2)))


def errors_at(heights: Array) -> Array:
    """Return the standard deviations of runs this far above the optimum, relative to the noise."""
    return np.minimum(1 + (np.maximum(heights, 0.0) / NEAR) ** 2, MOST)


def fit_landscape(runs: Runs, design: Array) -> Landscape:
    """Fit a landscape.

    Args:
        runs: The runs.
        design: A row per block: how its position follows from the coefficients of positions.
    """
    return _Fit(runs, design).landscape()


def _near(runs: Runs) -> tuple[Array, NDArray[np.bool_]]:
    """Return the lowest log loss of each block, and which runs are fitted: those near it, and those next to it."""
    lowest, kept = np.full(len(runs.widths), np.inf), np.zeros(len(runs.losses), bool)
    for block in range(len(lowest)):
        mine = np.flatnonzero(runs.blocks == block)
        mine = mine[np.argsort(runs.octaves[mine])]
        best = int(np.argmin(runs.losses[mine]))
        lowest[block] = runs.losses[mine[best]]
        height = runs.losses[mine] - lowest[block]
        next_to = np.abs(np.arange(len(mine)) - best) <= 1
        kept[mine] = (height <= HIGH) | (next_to & (height <= NEXT))
    return lowest, kept


class _Fit:
    """One fit. Coefficients are in this order: positions, shape, deviations of widths, levels and offsets of blocks."""

    def __init__(self, runs: Runs, design: Array) -> None:
        lowest, kept = _near(runs)
        self.octaves, self.losses, self.blocks = runs.octaves[kept], runs.losses[kept], runs.blocks[kept]
        self.widths, first, places = np.unique(runs.widths, return_index=True, return_inverse=True)
        self.places = places[self.blocks]
        self.design, self.positions, self.count = design, design.shape[1], len(runs.widths)
        self.shape_at = slice(self.positions, self.positions + 3)
        self.deviations_at = slice(self.shape_at.stop, self.shape_at.stop + 3 * len(self.widths))
        self.levels_at = slice(self.deviations_at.stop, self.deviations_at.stop + self.count)
        self.offsets_at = slice(self.levels_at.stop, self.levels_at.stop + self.count)
        # One row per width says where its optimum is expected.
        expected, reach = runs.brackets[first].T
        self.rows = design[first]
        self.bracket = np.zeros((len(first), self.offsets_at.stop))
        self.bracket[:, : self.positions] = self.rows / reach[:, None]
        self.bracketed = expected / reach
        starts = np.asarray(np.linalg.pinv(self.bracket[:, : self.positions]), float) @ self.bracketed
        zeros = np.zeros(3 * len(self.widths)), np.zeros(self.count)
        self.best: Array = np.concatenate([starts, np.array(SHAPE), zeros[0], lowest, zeros[1]])
        self.prior = self.best.copy()
        self.errors = np.ones_like(self.losses)
        self.measure(lowest)

    def measure(self, levels: Array) -> None:
        """Set the standard deviations of the runs relative to the noise, given the levels."""
        self.errors = errors_at(self.losses - levels[self.blocks])

    def model(self, values: Array) -> tuple[Array, Array]:
        """Return the residuals and the derivatives of the model, both over the standard deviations."""
        position = (self.design @ values[: self.positions] + values[self.offsets_at])[self.blocks]
        logs = (values[self.shape_at] + values[self.deviations_at].reshape(-1, 3))[self.places]
        rise, slope, shapes = shape(self.octaves - position, logs)
        block, width = np.eye(self.count)[self.blocks], np.eye(len(self.widths))[self.places]
        varied = (width[:, :, None] * shapes[:, None, :]).reshape(len(rise), -1)
        slopes = -slope[:, None]
        derivatives = np.hstack([slopes * self.design[self.blocks], shapes, varied, block, slopes * block])
        residuals = self.losses - values[self.levels_at][self.blocks] - rise
        return residuals / self.errors, derivatives / self.errors[:, None]

    def descend(self, noise: float, spread: float) -> None:
        """Move to the best fit for this noise and spread (Levenberg and Marquardt)."""
        weights = precisions(self.positions, len(self.widths), self.count, spread)

        def at(values: Array) -> tuple[float, Array, Array]:
            """Return the cost, its gradient and its hessian, the latter two over -2 and 2."""
            residuals, derivatives = self.model(values)
            off = self.bracketed - self.bracket @ values
            cost = float(residuals @ residuals) / noise**2 + float(weights @ (values - self.prior) ** 2 + off @ off)
            gradient = derivatives.T @ residuals / noise**2 - weights * (values - self.prior) + self.bracket.T @ off
            hessian = derivatives.T @ derivatives / noise**2 + np.diag(weights) + self.bracket.T @ self.bracket
            return cost, gradient, hessian

        damping, (now, gradient, hessian) = 1e-3, at(self.best)
        for _ in range(60):
            step = np.asarray(np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient), float)
            step[: self.positions] = np.clip(step[: self.positions], -1.0, 1.0)
            step[self.shape_at] = np.clip(step[self.shape_at], -0.7, 0.7)
            after, *slopes = at(self.best + step)
            if after < now:
                done = now - after < 1e-7
                self.best, now, damping = self.best + step, after, damping / 5
                gradient, hessian = slopes
                if done:
                    return
            elif damping > 1e6:
                return
            else:
                damping *= 5

    def landscape(self) -> Landscape:
        """Return the posterior."""
        noise, spread = NOISE, 0.1
        for noises in (_COARSE, _FINE, _FINE):
            self.descend(noise, spread)
            self.measure(self.best[self.levels_at])
            weights, means, covariances, level_errors, noise, spread = self.posterior(noise * noises)
        counts = weights > NEGLIGIBLE
        return Landscape(
            centre=float(np.log2(self.widths).mean()),
            widths=tuple(self.widths.tolist()),
            positions=self.positions,
            best=self.best[: self.deviations_at.stop].copy(),
            levels=self.best[self.levels_at].copy(),
            level_errors=level_errors,
            noise=noise,
            spread=spread,
            misfit=MISFIT**2 * np.asarray(np.linalg.inv(self.rows.T @ self.rows), float),
            weights=weights[counts] / weights[counts].sum(),
            means=means[counts],
            covariances=covariances[counts],
        )

    def posterior(self, noises: Array) -> tuple[Array, Array, Array, Array, float, float]:
        """Return the mixture over noises and spreads, the errors of the levels, and the means of both.

        A level meets only its own block's offset, so levels, then offsets, are eliminated one at a time, and what is
        inverted at each noise and spread is as small as if there were no blocks.
        """
        residuals, derivatives = self.model(self.best)
        sure = np.stack(
            [precisions(self.positions, len(self.widths), self.count, float(spread)) for spread in _SPREADS]
        )
        expected, off = self.prior - self.best, self.bracketed - self.bracket @ self.best
        squares, slopes = derivatives.T @ derivatives, derivatives.T @ residuals
        at_levels, at_offsets, kept = self.levels_at, self.offsets_at, slice(self.deviations_at.stop)
        scale = noises[:, None, None] ** -2
        linear = slopes * scale + sure * expected + self.bracket.T @ off
        # Axes are noises, spreads (one where they do not matter), coefficients, and blocks.
        levels = np.diag(squares[at_levels, at_levels]) * scale + sure[0, at_levels]
        per_level = np.diag(squares[at_levels, at_offsets]) * scale / levels
        with_levels = squares[kept, at_levels] * scale[..., None]
        offsets = np.diag(squares[at_offsets, at_offsets]) * scale - per_level**2 * levels
        offsets = np.maximum(offsets, 0.0) + sure[:, at_offsets]  # below 0 by rounding alone
        with_offsets = squares[kept, at_offsets] * scale[..., None] - with_levels * per_level[..., None, :]
        from_levels, from_offsets = with_levels / levels[..., None, :], with_offsets / offsets[..., None, :]
        left = (
            squares[kept, kept] * scale[..., None]
            + np.apply_along_axis(np.diag, 1, sure[:, kept])
            + self.bracket[:, kept].T @ self.bracket[:, kept]
            - from_levels @ with_levels.swapaxes(-1, -2)
            - from_offsets @ with_offsets.swapaxes(-1, -2)
        )
        covariances = np.asarray(np.linalg.inv(left), float)
        by_offset = linear[..., at_offsets] - per_level * linear[..., at_levels]
        by_kept = linear[..., kept] - _times(from_levels, linear[..., at_levels]) - _times(from_offsets, by_offset)
        shifts = _times(covariances, by_kept)
        shifted = (by_offset - _times(with_offsets.swapaxes(-1, -2), shifts)) / offsets
        risen = linear[..., at_levels] / levels - _times(from_levels.swapaxes(-1, -2), shifts) - per_level * shifted
        towards = from_offsets * per_level[..., None, :] - from_levels
        certain = 1 / levels + per_level**2 / offsets + np.einsum("nsib,nsib->nsb", covariances @ towards, towards)
        misfit = (residuals @ residuals) * scale[..., 0] + sure @ expected**2 + off @ off
        gained = (linear * np.concatenate([shifts, risen, shifted], axis=-1)).sum(axis=-1)
        determinants = np.linalg.slogdet(left)[1] + (np.log(levels) + np.log(offsets)).sum(axis=-1)
        likelihood = (
            (np.log(sure).sum(axis=-1) - determinants - misfit + gained) / 2
            - residuals.size * np.log(noises)[:, None]
            - (np.log(noises / NOISE)[:, None] / NOISE_SPREAD) ** 2 / 2
            - (_SPREADS / SPREAD) ** 2 / 2
        )
        weights = np.exp(likelihood - likelihood.max()) * np.gradient(np.log(noises))[:, None] * np.gradient(_SPREADS)
        weights /= weights.sum()
        return (
            weights.ravel(),
            (self.best[kept] + shifts).reshape(-1, shifts.shape[-1]),
            covariances.reshape(-1, *covariances.shape[-2:]),
            np.sqrt(np.einsum("ns,nsb->b", weights, certain + risen**2)),
            float(np.exp(weights.sum(axis=1) @ np.log(noises))),
            float(weights.sum(axis=0) @ _SPREADS),
        )


def _times(matrices: Array, vectors: Array) -> Array:
    """Return the product of each matrix with its vector."""
    return (matrices @ vectors[..., None])[..., 0]
