"""How an experiment judges claims, from its own runs.

Losses are compared at the optimum that was fitted, at the largest width and seed by seed, with the interval of the fit.
As in the paper's choice of constants, they count as the same within 0.1 %. Seeds seldom tell so little apart. So the
claim that something improves holds once it is clear that it improves at all; and if that is not clear, it does not hold
once it is clear that it improves by less than 0.5 %. Only optima that lie inside the range that was tried count: the
best of rates that were all too small says nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from widthwise.fit import Estimate
from widthwise.fit.intervals import UNKNOWN, average, student
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import percent, signed
from widthwise.study.fits import GroupFit

SAME = 1e-3
"""The relative difference of eval losses that counts as noise, as in the paper's choice of constants."""
NEGLIGIBLE = 5e-3
"""The relative change of eval losses that counts as none when a claim is about one."""
SCATTER, CERTAINTY = 2.0, 4
"""How much more differences vary between seeds than the fit says, as a variance, where nothing is known of it; and how
many degrees of freedom that counts for. Without SGD, it is 2.0 on average over the comparisons in docs/results.md."""


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


def changes(fit: GroupFit | None, than: GroupFit | None) -> dict[int, Estimate]:
    """Estimate the relative change of the loss at the optimum from one setting to another, by width.

    Runs with the same seed start alike and see the same data, so seeds are compared one by one. Where they differ by
    more than the fit says, the interval is as much wider. Widths are left out whose optimum lies at an end of what was
    tried in either setting.
    """
    if fit is None or than is None:
        return {}
    others = {optimum.width: optimum.levels for optimum in than.transfer.optima}
    found: dict[int, list[Estimate]] = {}
    for optimum in fit.transfer.optima:
        other = others.get(optimum.width, {})
        pairs = [(level, other[seed]) for seed, level in optimum.levels.items() if seed in other]
        if pairs:
            found[optimum.width] = [difference(*pair) for pair in pairs]
    return {width: change.through(math.expm1) for width, change in over_seeds(found).items()}


def over_seeds(found: Mapping[int, Sequence[Estimate]]) -> dict[int, Estimate]:
    """Estimate the mean over seeds at each width, from one estimate per seed."""
    factor = _widening(list(found.values()))
    return {width: _widened(average(each), factor) for width, each in found.items()}


def _widening(found: Sequence[Sequence[Estimate]]) -> float:
    """Return by how much intervals have to be wider than the fit says, from how seeds scatter in several groups.

    A fit knows how runs of one seed scatter around a curve. That a change of the setting does more for one seed than
    for another shows only between seeds.
    """
    squares, freedom = SCATTER * CERTAINTY, CERTAINTY
    for each in found:
        errors = [one.half_width / student(math.inf) for one in each]
        if len(each) > 1 and all(0 < error < math.inf for error in errors):
            weights = [error**-2 for error in errors]
            mean = sum(weight * one.value for weight, one in zip(weights, each, strict=True)) / sum(weights)
            squares += sum(weight * (one.value - mean) ** 2 for weight, one in zip(weights, each, strict=True))
            freedom += len(each) - 1
    return math.sqrt(max(1.0, squares / freedom)) * student(freedom) / student(math.inf)


def _widened(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate whose interval reaches further to both sides."""
    below, above = estimate.value - estimate.low, estimate.high - estimate.value
    return replace(estimate, low=estimate.value - factor * below, high=estimate.value + factor * above)


def improves(
    claim: str, of: str, fit: GroupFit | None, than: GroupFit | None, paper: str | None = None
) -> list[Finding]:
    """Judge whether one setting is better than another at the largest width; nothing where one was not trained."""
    if fit is None or than is None:
        return []
    change = changes(fit, than)
    largest = change[max(change)] if change else UNKNOWN
    same = Estimate(
        value=largest.value, low=min(largest.low, largest.value - SAME), high=max(largest.high, largest.value + SAME)
    )
    return [
        Finding(
            claim=claim,
            of=of,
            verdict=Judgement.below_zero(same, negligible=NEGLIGIBLE),
            measured=written(change),
            paper=paper,
            losses_of=(fit.setting, than.setting),
        )
    ]


def alike(
    claim: str,
    of: str,
    fit: GroupFit | None,
    than: GroupFit | None,
    *,
    within: float = NEGLIGIBLE,
    paper: str | None = None,
) -> list[Finding]:
    """Judge whether two settings' losses are within a fraction of each other at the largest width."""
    if fit is None or than is None:
        return []
    change = changes(fit, than)
    verdict = Judgement.at_most(within, distance(change))
    settings = fit.setting, than.setting
    return [Finding(claim=claim, of=of, verdict=verdict, measured=written(change), paper=paper, losses_of=settings)]


def distance(change: Mapping[int, Estimate]) -> Estimate:
    """Estimate the size of the change at the largest width, whatever its sign; unknown where there is none."""
    if not change:
        return UNKNOWN
    largest = change[max(change)]
    return largest if largest.value >= 0 else -largest


def reuse_cost(fit: GroupFit) -> Estimate:
    """Estimate the part of its loss that the largest run loses with the optimal rate of the smallest.

    The interval follows from those of the two optima and from the curvature of the log of the loss; unknown where one
    of the optima is.
    """
    first, last, reuse = fit.transfer.optima[0], fit.transfer.optima[-1], fit.transfer.reuse
    if not (first.interior and last.interior and len(reuse) > 1):
        return UNKNOWN
    cost = reuse[-1].given_up / last.eval_loss
    if not math.isfinite(cost):  # it diverges, or lies too far from what was tried
        return Estimate(value=cost, low=cost, high=cost)
    apart = difference(first.octaves, last.octaves)
    ends = [math.expm1(last.curvature.value / 2 * end**2) for end in (apart.low, apart.high)]
    return Estimate(value=cost, low=min(cost, 0.0 if apart.contains(0.0) else min(ends)), high=max(cost, *ends))


def written(change: Mapping[int, Estimate]) -> str:
    """Write changes: that of the largest width with its interval, and the mean over all widths.

    >>> small, large = (Estimate(value=value, low=value - 0.01, high=value + 0.01) for value in (-0.02, -0.06))
    >>> written({64: small, 256: large})
    '−6.00 % [−7.00, −5.00] at width 256, −4.00 % on average'
    """
    if not change:
        return ""
    largest = change[max(change)]
    at = f"{percent_interval(largest)} at width {max(change)}"
    return f"{at}, {percent(fmean(one.value for one in change.values()))} on average" if len(change) > 1 else at


def percent_interval(change: Estimate) -> str:
    """Write a relative change with its interval.

    >>> percent_interval(Estimate(value=-0.012, low=-0.02, high=0.001))
    '−1.20 % [−2.00, 0.10]'
    """
    return f"{percent(change.value)} [{signed(100 * change.low)}, {signed(100 * change.high)}]"
