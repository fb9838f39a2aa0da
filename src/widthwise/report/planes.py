"""The (a, b) plane of each role: parameterizations, their equivalence classes, and where initialization is stable."""

from collections import Counter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from widthwise.report.exhibits import Plane, Planes
from widthwise.report.showing import called
from widthwise.report.style import INK, MARKERS, PARAMETERIZATIONS, label_panel, panel_grid

MARGIN = 0.45
STABLE = "#808080"
DASHED = (0, (4, 3))


def draw(exhibit: Planes) -> Figure:
    """Draw a plane for each role."""
    figure, panels = panel_grid(len(exhibit.planes), width=2.7, heights=(2.7,), beside=1.9, share_y=False)
    points = [point for plane in exhibit.planes for point in plane.points]
    low = min((min(point.a, point.b) for point in points), default=0) - MARGIN
    high = max((max(point.a, point.b) for point in points), default=1) + MARGIN
    for plane, (axes,) in zip(exhibit.planes, panels, strict=True):
        _draw_plane(axes, plane, low, high)
        label_panel(axes, plane.role, "a: multiplier n⁻ᵃ", "b: initialization n⁻ᵇ")
    handles = [
        *(_mark(name, 7) for name in dict.fromkeys(point.parameterization for point in points)),
        Line2D([], [], color=INK, linestyle=DASHED, linewidth=0.8, label="equivalent: equal a + b"),
        Patch(facecolor=STABLE, alpha=0.25, label="stable at initialization"),
    ]
    figure.legend(handles=handles, loc="outside right upper")
    return figure


def _draw_plane(axes: Axes, plane: Plane, low: float, high: float) -> None:
    ends = np.array([low, high])
    edge = plane.stable_total - ends
    if plane.exact:
        axes.plot(ends, edge, color=STABLE, alpha=0.25, linewidth=9, solid_capstyle="butt")
    else:
        axes.fill_between(ends, edge, max(high, float(edge.max())), color=STABLE, alpha=0.25, linewidth=0)
    for total in sorted({point.a + point.b for point in plane.points}):
        axes.plot(ends, total - ends, color=INK, linestyle=DASHED, linewidth=0.8)
    taken: Counter[tuple[float, float]] = Counter()
    for point in plane.points:  # points in the same place are rings around each other
        depth = taken[point.a, point.b]
        taken[point.a, point.b] += 1
        mark = _mark(point.parameterization, 5.5 + 5 * depth)
        mark.set(data=([point.a], [point.b]), zorder=3)
        mark.set_markerfacecolor("none" if depth else mark.get_color())
        axes.add_line(mark)
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    halves = np.arange(np.ceil(low * 2), np.floor(high * 2) + 1) / 2
    labels = [f"{half:g}".replace("-", "−").replace("0.5", "½").replace(".5", "½") for half in halves]
    axes.set_xticks(halves, labels)
    axes.set_yticks(halves, labels)


def _mark(name: str, size: float) -> Line2D:
    colour, marker = PARAMETERIZATIONS.get(name, INK), MARKERS.get(name, "o")
    return Line2D([], [], color=colour, marker=marker, linestyle="none", ms=size, mew=1.4, label=called(name))
