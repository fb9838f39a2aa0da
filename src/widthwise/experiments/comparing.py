"""Findings that compare the best eval losses of two groups, width by width.

Only optima that lie inside what was tried count: the best of rates that were all too small says nothing.
"""

from statistics import fmean

from widthwise.experiments.findings import SAME, Finding, Verdict, better
from widthwise.experiments.results import best_losses
from widthwise.experiments.showing import percent
from widthwise.sweep.fits import GroupFit


def changes(fit: GroupFit, than: GroupFit) -> dict[int, float]:
    """Give the relative change of the best loss against another group, for each width known of both."""
    losses, others = best_losses(fit), best_losses(than)
    return {width: losses[width] / others[width] - 1 for width in losses if width in others}


def improves(
    claim: str, of: str, fit: GroupFit | None, than: GroupFit | None, paper: str | None = None
) -> list[Finding]:
    """Say whether one group's losses are better than another's; nothing where one of them was not asked for."""
    if fit is None or than is None:
        return []
    losses, others = best_losses(fit), best_losses(than)
    widths = sorted(losses.keys() & others.keys())
    verdict = better([losses[width] for width in widths], [others[width] for width in widths])
    return [Finding(claim=claim, of=of, verdict=verdict, measured=written(changes(fit, than)), paper=paper)]


def alike(
    claim: str, of: str, fit: GroupFit | None, than: GroupFit | None, *, within: float, paper: str | None = None
) -> list[Finding]:
    """Say whether two groups' losses are within a fraction of each other, on average over widths."""
    if fit is None or than is None:
        return []
    change = changes(fit, than)
    return [Finding(claim=claim, of=of, verdict=small(change, within), measured=written(change), paper=paper)]


def small(change: dict[int, float], within: float = SAME) -> Verdict:
    """Say whether changes are small: on average, whatever their sign."""
    return Verdict.of(fmean(map(abs, change.values())) <= within) if change else Verdict.MISSING


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
