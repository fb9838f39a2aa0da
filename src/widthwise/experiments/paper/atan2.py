"""The arctangent in place of a division ("Adam-atan2 Code Change", appendix); nothing is trained.

Adam-atan2 updates by a·arctan2(m, b·√v) where Adam updates by m / √v. For every b there are two values of a that keep
Adam's learning rate: a = b where m is far smaller than √v, and a = 1 / arctan(1 / b) where they are of equal size.
"""

import itertools
import math
from collections.abc import Callable

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.paper.values import ARCTAN_CONSTANTS
from widthwise.experiments.results import Results
from widthwise.report.exhibits import Lines, Panel, Series, Table
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import percent

TIMES = tuple(ARCTAN_CONSTANTS)
"""The values of b."""
SMALL = 1e-3
"""An m / √v that is far smaller than 1."""
FACTORS = tuple(10.0**power for power in range(-30, 31, 5))
"""Factors on the gradients, to see whether the update changes."""
EPSILON = 1e-9
"""Adam's epsilon, in the paper."""


def small_regime(b: float) -> float:
    """Return the a that makes a·arctan(x / b) the division near 0: the slope there is a / b."""
    return b


def large_regime(b: float) -> float:
    """Return the a that makes a·arctan(x / b) the division at x = 1.

    >>> round(large_regime(1), 2)
    1.27
    """
    return 1 / math.atan(1 / b)


def read(results: Results) -> Reading:
    """Compute the constants and compare the functions."""
    del results  # there are no runs
    table = Table.of(
        "constants",
        "Constants for the arctangent",
        "For each b, the a that keeps Adam's learning rate, if m is far smaller than √v and if they are of equal size.",
        [
            {
                "b": str(b),
                "a, if m ≪ √v": f"{small_regime(b):g}",
                "a, if m ~ √v": f"{large_regime(b):.2f}",
                "paper: a, if m ≪ √v": f"{small:g}",
                "paper: a, if m ~ √v": f"{large:g}",
            }
            for b, (small, large) in ARCTAN_CONSTANTS.items()
        ],
    )
    return Reading(findings=_findings(), exhibits=(_lines(), table))


def _findings() -> tuple[Finding, ...]:
    apart = [large_regime(b) / small_regime(b) - 1 for b in TIMES]
    near_zero = max(abs(small_regime(b) * math.atan(SMALL / b) / SMALL - 1) for b in TIMES)
    with_arctangent = _change(math.atan2)
    with_epsilon = _change(lambda m, root: m / (root + EPSILON))
    return (
        Finding(
            claim="a·arctan is the division near zero, for a = b",
            of="computed",
            verdict=Judgement.of(near_zero <= SMALL),
            measured=f"apart by at most {near_zero:.1e} of it at m / √v = {SMALL:g}",
        ),
        Finding(
            claim="with a = b = 1 the effective learning rate changes by a factor of 1.27 at most",
            of="computed",
            verdict=Judgement.of(round(large_regime(1), 2) <= 1.27),
            measured=f"{large_regime(1):.4f} where m = √v",
            paper="1.27",
        ),
        Finding(
            claim="the values of a in the two regimes converge as b grows",
            of="computed",
            verdict=Judgement.of(all(later < sooner for sooner, later in itertools.pairwise(apart))),
            measured=f"apart by {percent(apart[0])} at b = {TIMES[0]}, by {percent(apart[-1])} at b = {TIMES[-1]}",
        ),
        Finding(
            claim="Adam-atan2 does not change with the scale of gradients, Adam with an epsilon does",
            of="computed",
            verdict=Judgement.of(with_arctangent < 1e-12 and with_epsilon > 0.5),
            measured=(
                f"over factors of {FACTORS[0]:.0e} to {FACTORS[-1]:.0e} the update changes by {with_arctangent:.0e} "
                f"of it with the arctangent, by {percent(with_epsilon)} with epsilon {EPSILON:g}"
            ),
        ),
    )


def _change(update: Callable[[float, float], float]) -> float:
    """Return by how much an update changes at most, relatively, when gradients are multiplied by a factor."""
    m, root = 0.3, 1.0
    return max(abs(update(factor * m, factor * root) / update(m, root) - 1) for factor in FACTORS)


def _lines() -> Lines:
    x = tuple(place / 25 for place in range(-100, 101))

    def series(name: str, function: Callable[[float], float]) -> Series:
        return Series(name=name, x=x, y=tuple(map(function, x)))

    division = series("division", lambda ratio: ratio)
    clipped = series("division, clipped at 1", lambda ratio: min(max(ratio, -1.0), 1.0))
    wider = (series(f"b = {b}", lambda ratio, b=b: small_regime(b) * math.atan(ratio / b)) for b in TIMES[:4])
    return Lines(
        name="arctangent",
        title="The arctangent against division",
        caption=(
            "The update against m / √v: by division, by division that is clipped, and by the arctangent, which is the "
            "division near zero and stays bounded. With larger b and a = b it is the division for longer."
        ),
        panels=(
            Panel(title="a = b = 1", series=(division, clipped, series("arctangent", math.atan))),
            Panel(title="a = b", series=(division, *wider)),
        ),
        x_label="m / √v",
        y_label="update",
        log_x=False,
    )


EXPERIMENT = Experiment(
    name="atan2",
    title="What does the arctangent change in Adam?",
    claim=(
        "a·arctan2(m, b·√v) is Adam's division near zero, is bounded, and does not change with the scale of gradients; "
        'the constant a that keeps the learning rate is between b and 1 / arctan(1 / b) ("Adam-atan2 Code Change", '
        "appendix)."
    ),
    sizes={},
    read=read,
)
