"""The alignment figure: the log alignment ratio of every dense layer through training (the paper's Figure 2)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from widthwise.measure import AlignmentPoint
from widthwise.report import ticks
from widthwise.report.style import COLOURS, check_suffix, entitle, grid_of, plain, styled

KINDS = ("query", "key", "value", "out", "up", "down", "readout")


def alignment_figure(panels: Mapping[str, Sequence[AlignmentPoint]]) -> Figure:
    """Draw a panel for each run: a curve for each layer, layers of a kind in one colour, later blocks darker."""
    columns = _columns(list(panels))
    figure, all_axes = grid_of(len(panels), columns=columns, width=2.45, heights=(2.4,), beside=1.1)
    kinds: dict[str, str] = {}
    for place, ((axes,), (title, points)) in enumerate(zip(all_axes, panels.items(), strict=True)):
        kinds |= _panel(axes, points)
        entitle(axes, title)
        axes.set_xlabel("step")
        axes.set_ylabel("log alignment ratio" if place % columns == 0 else "")
    handles = [Line2D([], [], color=colour, linewidth=2) for colour in kinds.values()]
    figure.legend(handles, list(kinds), loc="outside right upper", title="layer", alignment="left", handlelength=1.4)
    return figure


def write_alignment_figure(path: Path, panels: Mapping[str, Sequence[AlignmentPoint]]) -> None:
    """Draw the figure into a file; its suffix says in which format."""
    check_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        alignment_figure(panels).savefig(path, dpi=150)


def _panel(axes: Axes, points: Sequence[AlignmentPoint]) -> dict[str, str]:
    """Draw the layers of a run; give the colour of each kind of them."""
    # A lookup has no ratio.
    paths = [path for path in points[0].layers if any(np.isfinite(point.layers[path]["ratio"]) for point in points)]
    steps = [max(point.step, 0.5) for point in points]  # a place for step 0 on a logarithmic axis
    kinds = [_kind(path) for path in paths]
    for index, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        depth = (kinds[:index].count(kind) + 1) / kinds.count(kind)
        ratios = np.array([point.layers[path]["ratio"] for point in points])
        axes.plot(steps, ratios, color=_colour(kind), alpha=0.35 + 0.65 * depth, linewidth=1.3)
    axes.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    ticks.steps(axes, "x", points[-1].step)
    plain(axes)
    return {kind: _colour(kind) for kind in kinds}


def _columns(headings: Sequence[str]) -> int:
    """Give every row the same ends of its headings, such as the same widths, where they come in that order.

    >>> _columns(["muP, width 32", "muP, width 64", "NTK, width 32", "NTK, width 64"])
    2
    >>> _columns(["muP", "NTK", "standard", "mean-field", "another"])
    4
    """
    ends = [heading.rpartition(", ")[2] for heading in headings]
    many = len(set(ends))
    repeat = 1 < many <= 4 and ends == ends[:many] * (len(ends) // many)
    return many if repeat else 4


def _kind(path: str) -> str:
    """Give the part of a path that tells layers of one block apart: the last one that is neither number nor kernel."""
    parts = [part for part in path.partition("#")[0].split("/") if part not in ("kernel", "weight", "embedding")]
    return next((part for part in reversed(parts) if not part.isdecimal()), path)


def _colour(kind: str) -> str:
    if kind in KINDS:
        return COLOURS[KINDS.index(kind)]
    return to_hex(colormaps["tab20"](sum(kind.encode()) % 20))
