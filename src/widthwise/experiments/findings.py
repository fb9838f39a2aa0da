"""How an experiment judges the paper's claims, from its own runs.

Best eval losses are compared width by width and, as in the paper's choice of constants, count
as the same within 0.1 %. Only optima that lie inside the range that was tried count: the best of rates that were all
too small says nothing.
"""

import math
from statistics import fmean

from widthwise.fit import Estimate
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import percent
from widthwise.study.fits import GroupFit, best_losses

SAME = 1e-3
"""The relative difference of eval losses that counts as noise, as in the paper's choice of constants."""


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
