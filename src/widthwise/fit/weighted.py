"""Means and lines through values with individual errors.

The seeds of a width and the widths of a sweep are combined in the same way. Three things keep the intervals honest
with only three to five values. Errors that were estimated from few points are shrunk towards their common size, so that
a value that looks exact by luck does not dominate. Scatter beyond the errors widens all of them by one factor (Birge's
ratio). And as in Welch's test, the degrees of freedom move from those of the errors to those of the scatter as the
scatter dominates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widthwise.fit.intervals import Array, Estimate

SHRINKAGE = 4.0
"""The weight of the common size of the errors, in degrees of freedom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A number, its standard error, and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float

    @property
    def estimate(self) -> Estimate:
        """The number with its 95 % interval."""
        return Estimate.around(self.value, self.error, freedom=self.freedom)

    def plus(self, variance: float, freedom: float) -> "Measured":
        """Add an independent error and combine the degrees of freedom (Welch and Satterthwaite)."""
        own = self.error**2
        spread = own**2 / self.freedom + variance**2 / freedom
        total = own + variance
        return Measured(value=self.value, error=math.sqrt(total), freedom=total**2 / spread)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Combination:
    """A weighted least-squares fit, which can be evaluated at any linear function of its coefficients.

    Attributes:
        solution: The contribution of every value to every coefficient.
        values: The values.
        variances: Their variances as given.
        freedoms: Their degrees of freedom.
        drawn: The variances after shrinkage.
        inflation: Birge's ratio, by which scatter multiplies the variances; 1 if the errors explain the scatter.
        spare: The number of values minus the number of coefficients.
    """

    solution: Array
    values: Array
    variances: Array
    freedoms: Array
    drawn: Array
    inflation: float
    spare: int

    def at(self, point: Sequence[float]) -> Measured:
        """Return the scalar product of the coefficients with a point."""
        row = np.asarray(point, float) @ self.solution
        squares = row**2
        own = self.freedoms / (SHRINKAGE + self.freedoms)
        common = float(squares @ (1 - own)) * self.freedoms / self.freedoms.sum()
        variance = float(squares @ self.drawn)
        spread = float(np.sum((squares * own + common) ** 2 * self.variances**2 / self.freedoms)) / variance**2
        if self.spare:
            spread += (self.inflation - 1) ** 2 / self.spare
        return Measured(
            value=float(row @ self.values),
            error=math.sqrt(variance * self.inflation),
            freedom=self.inflation**2 / spread,
        )

    @property
    def excess(self) -> float:
        """The variance of a single value that its error does not explain."""
        return (self.inflation - 1) * float(self.drawn.mean())


def combine(measured: Sequence[Measured], design: Sequence[Sequence[float]]) -> Combination:
    """Fit values as linear functions of the rows of a design matrix, weighted by their errors."""
    values, errors, freedoms = (
        np.array([getattr(each, name) for each in measured]) for name in ("value", "error", "freedom")
    )
    variances = errors**2
    shared = float(freedoms @ variances) / float(freedoms.sum())
    drawn = (SHRINKAGE * shared + freedoms * variances) / (SHRINKAGE + freedoms)
    rows = np.asarray(design, float)
    solution = np.asarray(np.linalg.solve((rows.T / drawn) @ rows, rows.T / drawn), float)
    spare = rows.shape[0] - rows.shape[1]
    residuals = values - rows @ (solution @ values)
    return Combination(
        solution=solution,
        values=values,
        variances=variances,
        freedoms=freedoms,
        drawn=drawn,
        inflation=max(1.0, float(np.sum(residuals**2 / drawn)) / spare) if spare else 1.0,
        spare=spare,
    )
