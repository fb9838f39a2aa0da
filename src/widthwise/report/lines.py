"""Panels of lines, such as eval loss against model size.

A line has its parameterization's colour. Lines that could share a colour differ in stroke and marker; a name has the
same stroke and marker in every panel, so that one legend serves them all.
"""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from widthwise.report import ticks
from widthwise.report.exhibits import Lines
from widthwise.report.points import line_name, of_line
from widthwise.report.style import COLOURS, INK, MARKERS, PARAMETERIZATIONS, label_panel, panel_grid

STROKES = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
OTHER_MARKERS = "osD^vP"
OTHERS = (INK, *COLOURS[4:6], "#7f7f7f")
"""Colours for lines without a parameterization."""
MOST_MARKED = 30
"""A line with more points than this is a function, not measurements, and has no markers."""


def draw(exhibit: Lines) -> Figure:
    """Draw panels of lines that share their axes."""
    looks = _looks(exhibit)
    longest = max(map(len, looks), default=0)
    figure, panels = panel_grid(len(exhibit.panels), width=2.4, heights=(2.5,), beside=0.75 + 0.068 * longest)
    for number, (panel, (axes,)) in enumerate(zip(exhibit.panels, panels, strict=True)):
        for index, series in enumerate(panel.series):
            look = looks[series.name]
            colour = PARAMETERIZATIONS.get(series.parameterization or "", look["color"])
            marked = look["marker"] is not None and of_line(exhibit, series)
            gid = line_name(number, index) if marked else None
            axes.plot(series.x, series.y, **{**look, "color": colour}, gid=gid)
            if series.intervals:
                axes.vlines(series.x, *zip(*series.intervals, strict=True), color=colour, linewidth=1, alpha=0.6)
        label_panel(axes, panel.title, exhibit.x_label, exhibit.y_label)
        _scale(axes, exhibit)
    handles = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside right upper", handlelength=2.8)
    return figure


def _scale(axes: Axes, exhibit: Lines) -> None:
    values = [x for panel in exhibit.panels for series in panel.series for x in series.x if x > 0]
    if exhibit.log_x and values:
        if "rate" in exhibit.x_label:
            ticks.octaves(axes, "x", math.log2(min(values)) - 0.4, math.log2(max(values)) + 0.4)
        else:
            ticks.sizes(axes, values)
            axes.set_xlim(min(values) * 0.65, max(values) / 0.65)
    if exhibit.log_y:
        ticks.numbers(axes)


def _looks(exhibit: Lines) -> dict[str, dict[str, Any]]:
    """Return the stroke and marker of each name in the figure, and its colour in the legend."""
    owners: dict[str, set[str | None]] = {}
    points: dict[str, int] = {}
    for series in (series for panel in exhibit.panels for series in panel.series):
        owners.setdefault(series.name, set()).add(series.parameterization)
        points[series.name] = max(len(series.x), points.get(series.name, 0))
    looks: dict[str, dict[str, Any]] = {}
    for name, mine in owners.items():
        alike = sum(bool(mine & owners[before]) for before in looks)
        only = next(iter(mine)) if len(mine) == 1 else ""
        marker = OTHER_MARKERS[alike % len(OTHER_MARKERS)] if alike else MARKERS.get(only or "", "o")
        looks[name] = {
            "color": OTHERS[alike % len(OTHERS)] if only is None else PARAMETERIZATIONS.get(only, INK),
            "linestyle": STROKES[alike % len(STROKES)],
            "marker": None if points[name] > MOST_MARKED else marker,
            "markersize": 4.2,
            "markerfacecolor": "none" if alike % 2 else None,
        }
    return looks
