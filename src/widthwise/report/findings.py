"""Findings: a claim, the number measured here, and whether the claim holds here.

The paper's number stands beside it and never replaces it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from widthwise.fit import Estimate, TransferOutcome, judge
from widthwise.study.setting import Setting


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
    def below_zero(cls, estimate: Estimate, *, negligible: float = 0.0) -> "Judgement":
        """Judge whether a number is below zero by its whole interval; it is not if it is above −negligible.

        >>> str(Judgement.below_zero(Estimate(value=-1, low=-1.5, high=-0.5)))
        'holds'
        >>> str(Judgement.below_zero(Estimate(value=0.1, low=-0.3, high=0.5), negligible=0.5))
        'does not hold'
        """
        if math.isnan(estimate.value):
            return cls.MISSING
        return cls.HOLDS if estimate.high < 0 else cls.FAILS if estimate.low > -negligible else cls.UNCLEAR

    @classmethod
    def at_most(cls, limit: float, estimate: Estimate) -> "Judgement":
        """Judge whether a number is at most as large as a limit by its whole interval."""
        return cls.below_zero(estimate.through(lambda value: value - limit))

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
    """A claim, and what was measured here.

    Attributes:
        claim: What the paper claims, in a few words.
        of: What it was measured of, such as "standard, adam".
        verdict: Whether it holds here.
        measured: The number measured here, with its interval where it has one; empty where nothing was measured.
        paper: The paper's number; None where it has none.
        losses_of: The settings whose losses it compares; empty if it is about something else.
    """

    claim: str
    of: str
    verdict: Judgement
    measured: str = ""
    paper: str | None = None
    losses_of: tuple[Setting, ...] = ()

    def __str__(self) -> str:
        measured = f": {self.measured}" if self.measured else ""
        return f"{self.claim} ({self.of}){measured}: {self.verdict}"
