"""What an experiment says about the paper's claims, from its own runs.

A finding states a claim, the number measured here, and whether the claim holds here. The paper's number stands beside
it and never replaces it. Best eval losses are compared width by width and, as in the paper's choice of constants, count
as the same within 0.1 %. Only optima that lie inside the range that was tried count: the best of rates that were all
too small says nothing.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from widthwise.experiments.results import best_losses
from widthwise.experiments.showing import percent
from widthwise.fit import Estimate, judge
from widthwise.fit.transfer import TransferOutcome
from widthwise.study.fits import GroupFit

SAME = 1e-3
"""The relative difference of eval losses that counts as noise, as in the paper's choice of constants."""


class Judgement(StrEnum):
    """Whether a claim holds here."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "cannot tell"
    MISSING = "not measured"

    @classmethod
    def of(cls, holds: bool, *numbers: float) -> "Judgement":
        """Judge a claim; it is not measured if one of the numbers that it rests on is NaN."""
        if any(math.isnan(number) for number in numbers):
            return cls.MISSING
        return cls.HOLDS if holds else cls.FAILS

    @classmethod
    def below_zero(cls, estimate: Estimate) -> "Judgement":
        """Judge whether a number is below zero by its whole interval.

        >>> str(Judgement.below_zero(Estimate(value=-1, low=-1.5, high=-0.5)))
        'holds'
        """
        if math.isnan(estimate.value):
            return cls.MISSING
        return cls.HOLDS if estimate.high < 0 else cls.FAILS if estimate.low > 0 else cls.UNCLEAR

    @classmethod
    def near_zero(cls, exponent: Estimate) -> "Judgement":
        """Judge whether an exponent is near zero, as for transfer.

        >>> str(Judgement.near_zero(Estimate(value=0.02, low=-0.05, high=0.09)))
        'holds'
        >>> str(Judgement.near_zero(Estimate(value=0.12, low=0.03, high=0.20)))
        'cannot tell'
        """
        if math.isnan(exponent.value):
            return cls.MISSING
        return {
            TransferOutcome.TRANSFERS: cls.HOLDS,
            TransferOutcome.DRIFTS: cls.FAILS,
            TransferOutcome.CANNOT_TELL: cls.UNCLEAR,
        }[judge(exponent)]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim of the paper, and what was measured here.

    Attributes:
        claim: What the paper claims, in a few words.
        of: What it was measured of, such as "standard, adam".
        verdict: Whether it holds here.
        measured: The number measured here, with its interval where it has one; empty where nothing was measured.
        paper: The paper's number; None where it has none.
    """

    claim: str
    of: str
    verdict: Judgement
    measured: str = ""
    paper: str | None = None

    def __str__(self) -> str:
        measured = f": {self.measured}" if self.measured else ""
        return f"{self.claim} ({self.of}){measured}: {self.verdict}"


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Estimate the first number minus the second, both measured independently.

    >>> str(difference(Estimate(value=1, low=0.7, high=1.3), Estimate(value=0, low=-0.4, high=0.4)))
    '1.00 [0.50, 1.50]'
    """
    value = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value=value, low=value - below, high=value + above)


def exponent_difference(fit: GroupFit, than: GroupFit) -> Estimate:
    """Estimate by how much the exponent of one setting's optimal rate is larger than that of another's."""
    return difference(fit.transfer.law.exponent, than.transfer.law.exponent)


def changes(fit: GroupFit | None, than: GroupFit | None) -> dict[int, float]:
    """Return the relative change of the best loss from one setting to another, for each width known of both."""
    losses, others = (best_losses(one) if one else {} for one in (fit, than))
    return {width: losses[width] / others[width] - 1 for width in losses if width in others}


def improves(
    claim: str, of: str, fit: GroupFit | None, than: GroupFit | None, paper: str | None = None
) -> list[Finding]:
    """Judge whether one setting's losses are better than another's; nothing where one of them was not trained."""
    if fit is None or than is None:
        return []
    change = changes(fit, than)
    mean = fmean(change.values()) if change else math.nan
    verdict = Judgement.below_zero(Estimate(value=mean, low=mean - SAME, high=mean + SAME))
    return [Finding(claim=claim, of=of, verdict=verdict, measured=written(change), paper=paper)]


def alike(
    claim: str, of: str, fit: GroupFit | None, than: GroupFit | None, *, within: float, paper: str | None = None
) -> list[Finding]:
    """Judge whether two settings' losses are within a fraction of each other, on average over widths."""
    if fit is None or than is None:
        return []
    change = changes(fit, than)
    gap = distance(change)
    return [
        Finding(claim=claim, of=of, verdict=Judgement.of(gap <= within, gap), measured=written(change), paper=paper)
    ]


def distance(change: dict[int, float]) -> float:
    """Return the mean size of changes, whatever their sign; NaN where there are none."""
    return fmean(map(abs, change.values())) if change else math.nan


def written(change: dict[int, float]) -> str:
    """Write changes: their mean, and those of the smallest and the largest width.

    >>> written({64: -0.01, 128: -0.02, 256: -0.06})
    '−3.00 % on average: −1.00 % at width 64, −6.00 % at width 256'
    """
    if not change:
        return ""
    ends = dict.fromkeys((min(change), max(change)))
    at = ", ".join(f"{percent(change[width])} at width {width}" for width in ends)
    return f"{percent(fmean(change.values()))} on average: {at}" if len(change) > 1 else at
