# SciPy comes without types; everything else here is checked strictly.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportArgumentType=false
"""Loss against parameters with an irreducible term: L = E + A·N^-p.

The fit minimizes Huber's loss of the residuals of the log, so that one bad size does not bend the law. For a fixed
exponent the law is linear in E and A, so a grid of exponents is solved at once, and a search starts from every local
minimum on it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from widthwise.fit.intervals import UNKNOWN, Array, Estimate

FEWEST = 4
"""The number of sizes needed to determine three numbers and their errors."""
EXPONENTS = np.geomspace(0.02, 3.0, 41)
"""The exponents from which a search can start."""
STEEPEST = 5.0
"""The largest exponent that is looked for."""
HUBER = 1e-3
"""Residuals of the log beyond this count linearly, as is usual for such laws."""
STEPS = 100
"""The step limit of a search; one that reaches it looks for something the losses hardly depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossLaw:
    """How the loss falls with the number of parameters.

    Attributes:
        irreducible: E, the lower bound of the loss at any size.
        exponent: p.
        amplitude: A.
    """

    irreducible: Estimate
    exponent: Estimate
    amplitude: float

    @property
    def determined(self) -> bool:
        """Whether there were enough sizes to fit the law."""
        return math.isfinite(self.exponent.value)

    def at(self, parameters: float) -> float:
        """Return the loss at a size; NaN if the law is not determined."""
        return self.irreducible.value + self.amplitude * parameters**-self.exponent.value


def fit_loss_law(parameters: Sequence[float], losses: Sequence[float]) -> LossLaw:
    """Fit the law to losses at several sizes; with fewer than four, it is not determined.

    >>> law = fit_loss_law([1e6, 2e6, 4e6, 8e6, 16e6], [2 + 1e3 * n**-0.5 for n in (1e6, 2e6, 4e6, 8e6, 16e6)])
    >>> round(law.irreducible.value, 3), round(law.exponent.value, 3)
    (2.0, 0.5)
    """
    from scipy import optimize  # slow to import, and only needed here

    if len(parameters) != len(losses):
        raise ValueError(f"{len(parameters)} sizes and {len(losses)} losses: expected the same number")
    if any(not 0 < value < math.inf for value in (*parameters, *losses)):
        raise ValueError("a size or a loss is not a finite number above 0: leave out what diverged")
    if len(set(parameters)) < FEWEST:
        return LossLaw(irreducible=UNKNOWN, exponent=UNKNOWN, amplitude=math.nan)
    middle = float(np.exp(np.mean(np.log(parameters))))
    sizes, heights = np.log(np.asarray(parameters, float) / middle), np.asarray(losses, float)

    def parts(point: Array) -> tuple[Array, Array]:
        falling = np.exp(point[1] - point[2] * sizes)
        return falling, point[0] + falling

    def residuals(point: Array) -> Array:
        return np.log(parts(point)[1] / heights)

    def slopes(point: Array) -> Array:
        falling, total = parts(point)
        return np.stack([np.ones_like(sizes), falling, -sizes * falling], axis=1) / total[:, None]

    bounds = ([0.0, math.log(heights.min()) - 20, 1e-3], [heights.min(), math.log(heights.max()) + 5, STEEPEST])
    search = {"jac": slopes, "bounds": bounds, "loss": "huber", "f_scale": HUBER, "x_scale": "jac", "max_nfev": STEPS}
    fits = [optimize.least_squares(residuals, start, **search) for start in _starts(sizes, heights)]
    best = min(fits, key=lambda fit: float(fit.cost))
    point = np.asarray(best.x, float)
    errors = _errors(residuals(point), slopes(point)).tolist()
    freedom = len(heights) - 3
    return LossLaw(
        irreducible=_open(Estimate.around(float(point[0]), errors[0], freedom=freedom), float(heights.max())),
        exponent=_open(Estimate.around(float(point[2]), errors[2], freedom=freedom), STEEPEST),
        amplitude=math.exp(point[1] + point[2] * math.log(middle)),
    )


def _open(estimate: Estimate, widest: float) -> Estimate:
    """Return an estimate without its interval, if that is wider than what is searched: then it says nothing."""
    return replace(estimate, low=-math.inf, high=math.inf) if estimate.half_width > widest else estimate


def _starts(sizes: Array, heights: Array) -> list[Array]:
    """Solve for E and A, both at least 0, at every exponent of the grid, and return the local minima."""
    powers = np.exp(-EXPONENTS[:, None] * sizes)
    weights = heights**-2
    total, mean_power = weights.sum(), (powers @ weights) / weights.sum()
    mean_height = float(heights @ weights) / total
    centred = powers - mean_power[:, None]
    amplitude = ((centred * weights) @ (heights - mean_height)) / ((centred**2) @ weights)
    amplitude = np.clip(amplitude, 1e-6 * mean_height, mean_height / mean_power)
    irreducible = np.clip(mean_height - amplitude * mean_power, 1e-6 * heights.min(), (1 - 1e-6) * heights.min())
    errors = np.abs(np.log((irreducible[:, None] + amplitude[:, None] * powers) / heights)).sum(axis=1)
    around = np.pad(errors, 1, constant_values=math.inf)
    places = np.flatnonzero((errors <= around[:-2]) & (errors <= around[2:]))
    return [np.array([irreducible[place], math.log(amplitude[place]), EXPONENTS[place]]) for place in places]


def _errors(residuals: Array, slopes: Array) -> Array:
    """Return the standard errors of the three numbers; infinite if the losses do not determine them."""
    scale = np.linalg.norm(slopes, axis=0)
    if not scale.all() or np.linalg.cond(slopes / scale) > 1e8:
        return np.full(3, math.inf)
    scaled = slopes / scale
    noise = float(residuals @ residuals) / (len(residuals) - 3)
    return np.sqrt(noise * np.diag(np.linalg.inv(scaled.T @ scaled))) / scale
