"""The power law of the optimal learning rate against width.

The fit is a line in log2 through the widths' optima, weighted by their errors (`weighted.py` says why that is honest
with three to five widths). Two widths give an exponent whose interval rests on their errors alone; one gives none.
With one seed, errors do not know how far optima spread over seeds; only their scatter around the line does, and three
widths show little of it: where that spread exceeds the noise, give widths two seeds or more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from widthwise.fit.intervals import UNKNOWN, Estimate
from widthwise.fit.optimum import as_learning_rate
from widthwise.fit.weighted import Combination, Measured, combine


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """How the optimal learning rate changes with width.

    Attributes:
        exponent: The exponent; -1 says that twice the width wants half the learning rate.
        widths: The widths it rests on.
        line: The fit behind it; None with fewer than two widths.
    """

    exponent: Estimate
    widths: tuple[int, ...]
    line: Combination | None = field(repr=False, compare=False)

    @property
    def scatter(self) -> float:
        """How much farther the optima lie from the line than their errors explain: 1 where they do explain it."""
        return math.nan if self.line is None else math.sqrt(self.line.inflation)

    def predict(self, width: int) -> Estimate:
        """Predict the optimal learning rate of a width, with a 95 % prediction interval."""
        if width < 1:
            raise ValueError(f"width is {width}: expected 1 or more")
        if self.line is None:
            return Estimate(value=math.nan, low=0.0, high=math.inf)
        on_line = self.line.at([1.0, math.log2(width)])
        # The line's error and the new width's distance from it rest on the same scatter: no freedom is gained.
        error = math.hypot(on_line.error, math.sqrt(self.line.excess))
        return as_learning_rate(Estimate.around(on_line.value, error, freedom=on_line.freedom))


def fit_power_law(widths: Sequence[int], octaves: Sequence[Measured]) -> PowerLaw:
    """Fit a power law to optimal learning rates, given as log2 with their errors.

    >>> optima = [Measured(value=-0.5 * octave, error=0.1, freedom=5) for octave in (6, 7, 8, 9)]
    >>> str(fit_power_law([64, 128, 256, 512], optima).exponent)
    '-0.50 [-0.59, -0.41]'
    """
    if len(set(widths)) < len(widths) or len(widths) != len(octaves):
        raise ValueError(f"widths are {list(widths)} for {len(octaves)} optima: expected as many, each width once")
    if any(not (each.error > 0 and each.freedom > 0 and math.isfinite(each.error)) for each in octaves):
        raise ValueError("an optimum without a finite error above 0: expected only optima that are interior")
    if len(widths) < 2:
        return PowerLaw(exponent=UNKNOWN, widths=tuple(widths), line=None)
    line = combine(octaves, [[1.0, math.log2(width)] for width in widths])
    return PowerLaw(exponent=line.at([0.0, 1.0]).estimate, widths=tuple(widths), line=line)
