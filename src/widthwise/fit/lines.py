"""Straight lines through logarithms: how a quantity scales with width."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A least-squares line."""

    slope: float
    intercept: float

    def at(self, x: float) -> float:
        """Return the height at x."""
        return self.intercept + self.slope * x


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Fit a line by least squares.

    >>> fit_line([0, 1, 2], [1, 3, 5])
    Line(slope=2.0, intercept=1.0)
    """
    if len(x) != len(y) or len(set(x)) < 2:
        raise ValueError(f"{len(x)} positions and {len(y)} heights: expected as many of each, at two places or more")
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    centred = xs - xs.mean()
    slope = float(centred @ ys / (centred @ centred))
    return Line(slope=slope, intercept=float(ys.mean() - slope * xs.mean()))


def exponent(widths: Sequence[float], sizes: Sequence[float]) -> float:
    """Return the slope of log size against log width: 1/2 if sizes grow as √n, NaN if a size is 0 or not finite.

    >>> exponent([64, 128, 256], [8.0, 8 * 2**0.5, 16.0])
    0.5
    """
    if any(not (math.isfinite(size) and size > 0) for size in sizes):
        return math.nan
    return round(fit_line([math.log(n) for n in widths], [math.log(size) for size in sizes]).slope, 12)
