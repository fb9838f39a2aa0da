"""The alignment figure: the log alignment ratio of every dense layer through training (the paper's Figure 2)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from widthwise.measure import AlignmentPoint
from widthwise.report.style import COLOURS, check_suffix, plain

KINDS = ("query", "key", "value", "out", "up", "down", "readout")


def alignment_figure(panels: Mapping[str, Sequence[AlignmentPoint]]) -> Figure:
    """Draw a panel for each run: a curve for each layer, layers of a kind in one colour, later blocks darker."""
    figure = Figure(figsize=(1 + 4 * len(panels), 3.4), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, points) in zip(all_axes, panels.items(), strict=True):
        _panel(axes, points)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
    all_axes[0].set_ylabel("log alignment ratio")
    handles, labels = all_axes[0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside right center", frameon=False, fontsize=8)
    return figure


def write_alignment_figure(path: Path, panels: Mapping[str, Sequence[AlignmentPoint]]) -> None:
    """Draw the figure into a file; its suffix says in which format."""
    check_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    alignment_figure(panels).savefig(path, dpi=150)


def _panel(axes: Axes, points: Sequence[AlignmentPoint]) -> None:
    paths = [path for path, layer in points[0].layers.items() if layer["fan_in"] > 1]
    steps = [max(point.step, 0.5) for point in points]  # a place for step 0 on a logarithmic axis
    kinds = [_kind(path) for path in paths]
    for index, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        depth = (kinds[:index].count(kind) + 1) / kinds.count(kind)
        ratios = np.array([point.layers[path]["ratio"] for point in points])
        axes.plot(steps, ratios, color=_colour(kind), alpha=0.35 + 0.65 * depth, linewidth=1.3, label=kind)
    axes.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    ticks = [step for step in (1, 10, 100, 1000, 10_000, 100_000) if step <= points[-1].step]
    axes.set_xticks([0.5, *ticks], ["0", *map(str, ticks)])
    axes.minorticks_off()
    plain(axes)


def _kind(path: str) -> str:
    """Give the part of a path that tells layers of one block apart: the last one that is neither number nor kernel."""
    parts = [part for part in path.partition("#")[0].split("/") if part not in ("kernel", "weight", "embedding")]
    return next((part for part in reversed(parts) if not part.isdecimal()), path)


def _colour(kind: str) -> tuple[float, ...] | str:
    if kind in KINDS:
        return COLOURS[KINDS.index(kind)]
    return colormaps["tab20"](sum(kind.encode()) % 20)
