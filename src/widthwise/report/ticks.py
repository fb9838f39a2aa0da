"""Logarithmic axes with tick labels in plain text, which a page shows in its own font."""

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

MOST = 5
"""The most tick labels along an axis."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(base: int, exponent: int) -> str:
    """Format a power.

    >>> power(2, -10)
    '2⁻¹⁰'
    """
    return f"{base}{str(exponent).translate(_SUPERSCRIPTS)}"


def compact(value: float) -> str:
    """Format a size with a unit.

    >>> compact(96), compact(16384), compact(241_408), compact(4_000_000), compact(26_838_000_000)
    ('96', '16384', '241k', '4M', '27B')
    """
    if value < 100_000:
        return f"{value:g}"
    unit, size = next((unit, size) for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)) if value >= size)
    return f"{value / size:.1f}".removesuffix(".0") + unit if value < 9.95 * size else f"{value / size:.0f}{unit}"


def octaves(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Make one axis an axis of learning rates, labelled with powers of 2, between two ends given as log2."""
    first, last = math.ceil(low), math.floor(high)
    step = max(1, math.ceil((last - first + 1) / MOST))
    exponents = range(-(-first // step) * step, last + 1, step)
    axis = _logarithmic(axes, which)
    axis.set_ticks([2.0**exponent for exponent in exponents], labels=[power(2, exponent) for exponent in exponents])
    axes.set(**{f"{which}lim": (2.0**low, 2.0**high)})


def sizes(axes: Axes, values: Sequence[float]) -> None:
    """Make the horizontal axis logarithmic, labelled at the given sizes, or at some of them if there are many."""
    known = sorted({value for value in values if value > 0}, reverse=True)
    apart = math.log(known[0] / known[-1]) / MOST if known else 0.0
    shown: list[float] = []
    for value in known:
        if not shown or math.log(shown[-1] / value) >= apart:
            shown.append(value)
    shown.reverse()
    _logarithmic(axes, "x").set_ticks(shown, labels=[compact(value) for value in shown])


def steps(axes: Axes, last: int) -> None:
    """Make the horizontal axis a logarithmic axis of training steps, with step 0 at 1/2."""
    decades = [exponent for exponent in range(10) if 10**exponent <= last]
    shown = decades[:: max(1, math.ceil(len(decades) / MOST))]
    labels = [power(10, exponent) if exponent > 2 else str(10**exponent) for exponent in shown]
    _logarithmic(axes, "x").set_ticks([0.5, *(10**exponent for exponent in shown)], labels=["0", *labels])


def numbers(axes: Axes) -> None:
    """Make the vertical axis logarithmic, labelled with plain numbers."""
    axis = _logarithmic(axes, "y")
    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _logarithmic(axes: Axes, which: Literal["x", "y"]) -> Axis:
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_minor_locator(NullLocator())
    return axis
