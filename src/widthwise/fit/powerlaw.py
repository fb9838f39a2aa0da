"""The power law of the optimal learning rate against width."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from widthwise.fit.intervals import UNKNOWN, Estimate
from widthwise.fit.landscape import Landscape, Runs, fit_landscape
from widthwise.fit.optimum import as_learning_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """How the optimal learning rate changes with width.

    Attributes:
        exponent: The exponent; -1 means that twice the width needs half the learning rate.
        widths: The widths used.
        landscape: The underlying fit; None with fewer than two widths.
    """

    exponent: Estimate
    widths: tuple[int, ...]
    landscape: Landscape | None = field(repr=False, compare=False)

    def at(self, width: float, *, seeds: int | None = None) -> Estimate:
        """Return the optimal learning rate at a width: the mean over this many new seeds, over all if None."""
        if not width >= 1:
            raise ValueError(f"width is {width}: expected 1 or more")
        if self.landscape is None:
            return Estimate(value=math.nan, low=0.0, high=math.inf)
        direction = [1.0, math.log2(width) - self.landscape.centre]
        return as_learning_rate(self.landscape.estimate(direction, seeds=seeds))

    def predict(self, width: int) -> Estimate:
        """Predict the optimal learning rate of one seed at a width, with a 95 % interval."""
        return self.at(width, seeds=1)


def fit_power_law(runs: Runs) -> PowerLaw:
    """Fit a power law of the optimal learning rate to the runs of widths whose optimum is interior."""
    widths = tuple(int(width) for width in np.unique(runs.widths))
    if len(widths) < 2:
        return PowerLaw(exponent=UNKNOWN, widths=widths, landscape=None)
    logs = np.log2(runs.widths)
    landscape = fit_landscape(runs, np.stack([np.ones_like(logs), logs - np.log2(widths).mean()], axis=1))
    return PowerLaw(exponent=landscape.estimate([0.0, 1.0]), widths=widths, landscape=landscape)


def exponent(widths: Sequence[float], sizes: Sequence[float]) -> float:
    """Return the slope of log size against log width: 1/2 if sizes grow as √n, NaN if a size is 0 or not finite.

    >>> exponent([64, 128, 256], [8.0, 8 * 2**0.5, 16.0])
    0.5
    """
    if any(not (math.isfinite(size) and size > 0) for size in sizes):
        return math.nan
    logs = [[math.log(value) for value in values] for values in (widths, sizes)]
    return round(statistics.linear_regression(*logs).slope, 12)
