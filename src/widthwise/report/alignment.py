"""The alignment figure: the log alignment ratio of every dense layer during training (the paper's Figure 2)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from widthwise.coordinates import AlignmentPoint
from widthwise.report import ticks
from widthwise.report.points import of_layers
from widthwise.report.style import COLOURS, check_suffix, label_panel, panel_grid, styled

KINDS: dict[str, str] = dict(zip(("query", "key", "value", "out", "up", "down", "readout"), COLOURS, strict=True))
"""The colour of each kind of layer."""


def alignment_figure(panels: Mapping[str, Sequence[AlignmentPoint]]) -> Figure:
    """Draw a panel for each run: a curve for each layer, layers of a kind in one colour, later blocks darker."""
    figure, grid = panel_grid(len(panels), columns=_columns(list(panels)), width=2.45, heights=(2.4,), beside=1.1)
    kinds: dict[str, str] = {}
    for number, ((axes,), (title, points)) in enumerate(zip(grid, panels.items(), strict=True)):
        kinds |= _draw_run(axes, number, points)
        label_panel(axes, title, "step", "log alignment ratio")
    handles = [Line2D([], [], color=colour, linewidth=2, label=kind) for kind, colour in kinds.items()]
    figure.legend(handles=handles, loc="outside right upper", title="layer", alignment="left", handlelength=1.4)
    return figure


def write_alignment_figure(path: Path, panels: Mapping[str, Sequence[AlignmentPoint]]) -> None:
    """Write the figure to a file in the format of its suffix."""
    check_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        alignment_figure(panels).savefig(path, dpi=150)


def _draw_run(axes: Axes, panel: int, points: Sequence[AlignmentPoint]) -> dict[str, str]:
    """Draw the layers of a run, and return the colour of each kind of layer."""
    layers = of_layers(panel, points)
    kinds = [_kind(path) for path in layers]
    colours = {kind: KINDS.get(kind) or to_hex(colormaps["tab20"](sum(kind.encode()) % 20)) for kind in kinds}
    for index, (layer, kind) in enumerate(zip(layers.values(), kinds, strict=True)):
        look = {"color": colours[kind], "alpha": 0.35 + 0.65 * (kinds[:index].count(kind) + 1) / kinds.count(kind)}
        axes.plot(layer.x, layer.y, gid=layer.gid, linewidth=1.3, marker="o", markersize=1.6, mew=0, **look)
    axes.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    ticks.steps(axes, points[-1].step)
    return colours


def _columns(titles: Sequence[str]) -> int:
    """Return how many panels make a row: if the titles' endings, such as widths, repeat in order, one of each.

    >>> _columns(["muP, width 32", "muP, width 64", "NTK, width 32", "NTK, width 64"])
    2
    >>> _columns(["muP", "NTK", "standard", "mean-field", "another"])
    4
    """
    ends = [title.rpartition(", ")[2] for title in titles]
    many = len(set(ends))
    return many if 1 < many <= 4 and ends == ends[:many] * (len(ends) // many) else 4


def _kind(path: str) -> str:
    """Return the last part of a layer's path that is neither a number nor the name of its weight."""
    parts = [part for part in path.partition("#")[0].split("/") if part not in ("kernel", "weight", "embedding")]
    return next((part for part in reversed(parts) if not part.isdecimal()), path)
