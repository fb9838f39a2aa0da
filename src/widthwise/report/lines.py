"""Panels of lines, such as eval loss against model size.

A line has its parameterization's colour. Lines that could share a colour have different strokes and markers, the same
for one name in every panel, so that one legend serves all of them.
"""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from widthwise.experiments.exhibits import Lines, Series
from widthwise.report import ticks
from widthwise.report.style import COLOURS, INK, MARKERS, PARAMETERIZATIONS, entitle, grid_of, plain

STROKES = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
OTHER_MARKERS = "osD^vP"
OTHERS = (INK, *COLOURS[4:6], "#7f7f7f")
"""Colours for lines of no parameterization: those that no parameterization has."""

MOST_MARKED = 30
"""A line of more points is a function, not measurements: it has no markers."""


def draw(exhibit: Lines) -> Figure:
    """Draw panels of lines that share their axes."""
    longest = max((len(series.name) for panel in exhibit.panels for series in panel.series), default=0)
    figure, panels = grid_of(len(exhibit.panels), width=2.4, heights=(2.5,), beside=0.75 + 0.068 * longest)
    looks = _looks(exhibit)
    for place, (panel, (axes,)) in enumerate(zip(exhibit.panels, panels, strict=True)):
        for series in panel.series:
            _line(axes, series, looks[series.name])
        entitle(axes, panel.title)
        axes.set_xlabel(exhibit.x_label)
        if place % 4 == 0:
            axes.set_ylabel(exhibit.y_label)
        _scales(axes, exhibit)
        plain(axes)
    figure.legend(
        [Line2D([], [], **look) for look in looks.values()], list(looks), loc="outside right upper", handlelength=2.8
    )
    return figure


def _line(axes: Axes, series: Series, look: dict[str, Any]) -> None:
    colour = PARAMETERIZATIONS.get(series.parameterization or "", look["color"])
    axes.plot(series.x, series.y, **{**look, "color": colour})


def _scales(axes: Axes, exhibit: Lines) -> None:
    values = [x for panel in exhibit.panels for series in panel.series for x in series.x if x > 0]
    if exhibit.log_x and values:
        if "rate" in exhibit.x_label:
            ticks.octaves(axes, "x", math.log2(min(values)) - 0.4, math.log2(max(values)) + 0.4)
        else:
            ticks.sizes(axes, "x", values)
            axes.set_xlim(min(values) * 0.65, max(values) / 0.65)
    if exhibit.log_y:
        ticks.numbers(axes, "y")


def _looks(exhibit: Lines) -> dict[str, dict[str, Any]]:
    """Give every name in the figure its stroke and marker, and the colour that the legend shows."""
    owners: dict[str, set[str | None]] = {}
    longest: dict[str, int] = {}
    for series in (series for panel in exhibit.panels for series in panel.series):
        owners.setdefault(series.name, set()).add(series.parameterization)
        longest[series.name] = max(len(series.x), longest.get(series.name, 0))
    looks: dict[str, dict[str, Any]] = {}
    for name, mine in owners.items():
        alike = sum(bool(mine & owners[before]) for before in looks)
        only = next(iter(mine)) if len(mine) == 1 else ""
        marker = OTHER_MARKERS[alike % len(OTHER_MARKERS)] if alike else MARKERS.get(only or "", "o")
        looks[name] = {
            "color": OTHERS[alike % len(OTHERS)] if only is None else PARAMETERIZATIONS.get(only, INK),
            "linestyle": STROKES[alike % len(STROKES)],
            "marker": None if longest[name] > MOST_MARKED else marker,
            "markersize": 4.2,
            "markerfacecolor": "none" if alike % 2 else None,
        }
    return looks
