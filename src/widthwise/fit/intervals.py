# SciPy comes without types; everything else here is checked strictly.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
"""Estimates: numbers with confidence intervals.

Intervals use Student's t, not a normal distribution. With three seeds or widths, a normal distribution would make them
too narrow by a factor of two.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number and its confidence interval; the interval is infinite if there was too little data.

    >>> str(Estimate(value=0.02, low=-0.05, high=0.09))
    '0.02 [-0.05, 0.09]'
    >>> str(Estimate(value=-0.001, low=-0.05, high=0.05))
    '0.00 [-0.05, 0.05]'
    """

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, error: float, *, freedom: float, confidence: float = CONFIDENCE) -> "Estimate":
        """Return an estimate from a standard error that was itself estimated with `freedom` degrees of freedom."""
        if not freedom > 0 or not math.isfinite(error):
            return cls(value=value, low=-math.inf, high=math.inf)
        reach = student(freedom, confidence) * error
        return cls(value=value, low=value - reach, high=value + reach)

    @property
    def interval(self) -> tuple[float, float]:
        """The lower and the upper end of the interval."""
        return self.low, self.high

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2

    def through(self, function: Callable[[float], float]) -> "Estimate":
        """Return the estimate of a rising function of the number.

        >>> str(Estimate(value=1, low=0, high=2).through(math.exp2))
        '2.00 [1.00, 4.00]'
        """
        return Estimate(value=function(self.value), low=function(self.low), high=function(self.high))

    def __neg__(self) -> "Estimate":
        return Estimate(value=-self.value, low=-self.high, high=-self.low)

    def contains(self, value: float) -> bool:
        """Return whether a value lies in the interval."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        # Adding 0.0 turns -0.0 into 0.0.
        value, low, high = (f"{round(each, 2) + 0.0:.2f}" for each in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


UNKNOWN = Estimate(value=math.nan, low=-math.inf, high=math.inf)
"""The estimate of a number about which nothing is known."""


def student(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors a two-sided interval extends to each side."""
    return float(special.stdtrit(freedom, 0.5 + confidence / 2))


def average(estimates: Iterable[Estimate]) -> Estimate:
    """Estimate the mean of several numbers that were measured independently.

    >>> str(average([Estimate(value=1, low=0.7, high=1.3), Estimate(value=2, low=1.6, high=2.4)]))
    '1.50 [1.25, 1.75]'
    """
    each = list(estimates)
    value = sum(one.value for one in each) / len(each)
    reach = math.hypot(*(one.half_width for one in each)) / len(each)
    return Estimate(value=value, low=value - reach, high=value + reach)


def mean_of(samples: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """Estimate a mean from independent samples, such as one slope per seed.

    >>> str(mean_of([0.9, 1.0, 1.1]))
    '1.00 [0.75, 1.25]'
    >>> str(mean_of([1.0]))
    '1.00 [-inf, inf]'
    """
    if not len(samples):
        raise ValueError("no samples: expected one or more")
    values = np.asarray(samples, float)
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.inf
    return Estimate.around(float(values.mean()), error, freedom=len(values) - 1, confidence=confidence)
