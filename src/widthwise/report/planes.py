"""The (a, b) plane of each role: where parameterizations lie, which are equivalent, where initialization is stable."""

from collections import defaultdict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from widthwise.experiments.exhibits import Plane, Planes, Point
from widthwise.experiments.showing import called
from widthwise.report.style import INK, MARKERS, PARAMETERIZATIONS, entitle, grid_of, plain

MARGIN = 0.45
STABLE = "#808080"


def draw(exhibit: Planes) -> Figure:
    """Draw a plane for each role."""
    figure, panels = grid_of(len(exhibit.planes), width=2.7, heights=(2.7,), beside=1.9, share_y=False)
    points = [point for plane in exhibit.planes for point in plane.points]
    low = min((min(point.a, point.b) for point in points), default=0) - MARGIN
    high = max((max(point.a, point.b) for point in points), default=1) + MARGIN
    for place, (plane, (axes,)) in enumerate(zip(exhibit.planes, panels, strict=True)):
        _plane(axes, plane, low, high)
        entitle(axes, plane.role)
        axes.set_xlabel("a: multiplier n⁻ᵃ")
        axes.set_ylabel("b: initialization n⁻ᵇ" if place % 4 == 0 else "")
    names = list(dict.fromkeys(point.parameterization for point in points))
    handles = [_mark(name, 7) for name in names]
    lines = [
        Line2D([], [], color=INK, linestyle=(0, (4, 3)), linewidth=0.8),
        Patch(facecolor=STABLE, alpha=0.25),
    ]
    figure.legend(
        [*handles, *lines],
        [*map(called, names), "equivalent: equal a + b", "stable at initialization"],
        loc="outside right upper",
    )
    return figure


def _plane(axes: Axes, plane: Plane, low: float, high: float) -> None:
    ends = np.array([low, high])
    edge = plane.stable_total - ends
    if plane.exact:
        axes.plot(ends, edge, color=STABLE, alpha=0.25, linewidth=9, solid_capstyle="butt")
    else:
        axes.fill_between(ends, edge, max(high, float(edge.max())), color=STABLE, alpha=0.25, linewidth=0)
    for total in sorted({point.a + point.b for point in plane.points}):
        axes.plot(ends, total - ends, color=INK, linestyle=(0, (4, 3)), linewidth=0.8)
    together: dict[tuple[float, float], list[Point]] = defaultdict(list)
    for point in plane.points:
        together[point.a, point.b].append(point)
    for (a, b), points in together.items():
        for depth, point in enumerate(points):  # those in one place as rings around each other
            mark = _mark(point.parameterization, 5.5 + 5 * depth)
            mark.set_data([a], [b])
            mark.set_markerfacecolor(mark.get_color() if depth == 0 else "none")
            mark.set_zorder(3)
            axes.add_line(mark)
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    halves = np.arange(np.ceil(low * 2), np.floor(high * 2) + 1) / 2
    labels = [_half(float(half)) for half in halves]
    axes.set_xticks(halves, labels)
    axes.set_yticks(halves, labels)
    plain(axes)


def _mark(name: str, size: float) -> Line2D:
    colour = PARAMETERIZATIONS.get(name, INK)
    return Line2D([], [], linestyle="none", marker=MARKERS.get(name, "o"), color=colour, markersize=size, mew=1.4)


def _half(value: float) -> str:
    """Write a half as a fraction.

    >>> _half(-0.5), _half(1.0), _half(0.0)
    ('−½', '1', '0')
    """
    whole, half = divmod(abs(value), 1)
    return ("−" if value < 0 else "") + (str(int(whole)) if whole or not half else "") + ("½" if half else "")
