"""The power law of the optimal learning rate against width.

The fit is a line through the optima in log2, weighted by their errors (`weighted.py` explains why this works with three
to five widths). With two widths, the interval of the exponent comes from their errors alone; one width gives no
exponent. With one seed, the errors do not include the spread of optima over seeds; it only shows as scatter around the
line, and three widths show little of it. If that spread exceeds the noise, use two or more seeds.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from widthwise.fit.intervals import UNKNOWN, Estimate
from widthwise.fit.optimum import as_learning_rate
from widthwise.fit.weighted import Combination, Measured, combine


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """How the optimal learning rate changes with width.

    Attributes:
        exponent: The exponent; -1 means that twice the width needs half the learning rate.
        widths: The widths used.
        line: The underlying fit; None with fewer than two widths.
    """

    exponent: Estimate
    widths: tuple[int, ...]
    line: Combination | None = field(repr=False, compare=False)

    @property
    def scatter(self) -> float:
        """The scatter of the optima around the line relative to their errors; 1 if the errors explain it."""
        return math.nan if self.line is None else math.sqrt(self.line.inflation)

    def predict(self, width: int) -> Estimate:
        """Predict the optimal learning rate at a width, with a 95 % prediction interval."""
        if width < 1:
            raise ValueError(f"width is {width}: expected 1 or more")
        if self.line is None:
            return Estimate(value=math.nan, low=0.0, high=math.inf)
        on_line = self.line.at([1.0, math.log2(width)])
        # The error of the line and the distance of a new width from it have the same scatter: no freedom is gained.
        error = math.hypot(on_line.error, math.sqrt(self.line.excess))
        return as_learning_rate(Estimate.around(on_line.value, error, freedom=on_line.freedom))


def fit_power_law(widths: Sequence[int], octaves: Sequence[Measured]) -> PowerLaw:
    """Fit a power law to optimal learning rates, given as log2 with their errors.

    >>> optima = [Measured(value=-0.5 * octave, error=0.1, freedom=5) for octave in (6, 7, 8, 9)]
    >>> str(fit_power_law([64, 128, 256, 512], optima).exponent)
    '-0.50 [-0.59, -0.41]'
    """
    if len(set(widths)) < len(widths) or len(widths) != len(octaves):
        raise ValueError(
            f"widths are {list(widths)} for {len(octaves)} optima: expected one optimum per width, each width once"
        )
    if any(not (each.error > 0 and each.freedom > 0 and math.isfinite(each.error)) for each in octaves):
        raise ValueError("an optimum without a finite error above 0: expected interior optima")
    if len(widths) < 2:
        return PowerLaw(exponent=UNKNOWN, widths=tuple(widths), line=None)
    line = combine(octaves, [[1.0, math.log2(width)] for width in widths])
    return PowerLaw(exponent=line.at([0.0, 1.0]).estimate, widths=tuple(widths), line=line)


def exponent(widths: Sequence[float], sizes: Sequence[float]) -> float:
    """Return the slope of log size against log width: 1/2 if sizes grow as √n, NaN if a size is 0 or not finite.

    >>> exponent([64, 128, 256], [8.0, 8 * 2**0.5, 16.0])
    0.5
    """
    if any(not (math.isfinite(size) and size > 0) for size in sizes):
        return math.nan
    logs = [[math.log(value) for value in values] for values in (widths, sizes)]
    return round(statistics.linear_regression(*logs).slope, 12)
