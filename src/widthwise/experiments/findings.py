"""What an experiment says about the paper's claims, from its own runs.

A finding states a claim, the number measured here, and whether the claim holds here. The paper's number stands beside
it and never in its place. Losses are compared as the paper compares trials: within 0.1 % they are the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from widthwise.fit import Estimate, judge
from widthwise.fit.transfer import Outcome

SAME = 1e-3
"""The relative difference of eval losses that is noise, as in the paper's choice of constants."""


class Verdict(StrEnum):
    """Whether a claim holds here."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "cannot tell"
    MISSING = "not measured"

    @classmethod
    def of(cls, holds: bool, *numbers: float) -> "Verdict":
        """Say whether something holds; that it was not measured where one of the numbers it rests on is NaN."""
        if any(math.isnan(number) for number in numbers):
            return cls.MISSING
        return cls.HOLDS if holds else cls.FAILS


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim of the paper, and what was measured here.

    Attributes:
        claim: What the paper claims, in a few words.
        of: What it was measured of, such as "standard, adam".
        verdict: Whether it holds here.
        measured: The number measured here, with its interval where it has one; empty where nothing was.
        paper: The paper's number; None where it has none.
    """

    claim: str
    of: str
    verdict: Verdict
    measured: str = ""
    paper: str | None = None

    def __str__(self) -> str:
        measured = f": {self.measured}" if self.measured else ""
        return f"{self.claim} ({self.of}){measured}: {self.verdict}"


def near_zero(exponent: Estimate) -> Verdict:
    """Say whether an exponent is near zero: all of its interval, as for transfer.

    >>> str(near_zero(Estimate(value=0.02, low=-0.05, high=0.09)))
    'holds'
    """
    if math.isnan(exponent.value):
        return Verdict.MISSING
    outcomes = {Outcome.TRANSFERS: Verdict.HOLDS, Outcome.DRIFTS: Verdict.FAILS, Outcome.CANNOT_TELL: Verdict.UNCLEAR}
    return outcomes[judge(exponent)]


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Estimate the first number less the second, both measured independently.

    >>> str(difference(Estimate(value=1, low=0.7, high=1.3), Estimate(value=0, low=-0.4, high=0.4)))
    '1.00 [0.50, 1.50]'
    """
    value = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value=value, low=value - below, high=value + above)


def below_zero(estimate: Estimate) -> Verdict:
    """Say whether a number is below zero."""
    if math.isnan(estimate.value):
        return Verdict.MISSING
    return Verdict.HOLDS if estimate.high < 0 else Verdict.FAILS if estimate.low > 0 else Verdict.UNCLEAR


def better(losses: Sequence[float], than: Sequence[float]) -> Verdict:
    """Say whether losses, width by width, are better than others: on the whole, and beyond what is noise.

    >>> str(better([1.90, 1.80], than=[2.00, 1.90])), str(better([2.00, 1.90], than=[2.001, 1.8995]))
    ('holds', 'cannot tell')
    """
    change = relative_change(losses, than)
    if math.isnan(change):
        return Verdict.MISSING
    return Verdict.HOLDS if change < -SAME else Verdict.FAILS if change > SAME else Verdict.UNCLEAR


def relative_change(losses: Sequence[float], than: Sequence[float]) -> float:
    """Give the mean relative change of losses against others, width by width; NaN where nothing is comparable."""
    pairs = [(loss, other) for loss, other in zip(losses, than, strict=True) if math.isfinite(loss + other)]
    return sum(loss / other - 1 for loss, other in pairs) / len(pairs) if pairs else math.nan
