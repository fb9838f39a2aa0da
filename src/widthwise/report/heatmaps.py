"""Heatmaps of loss by width and something else, such as epsilon: the loss above the best of each width.

Colours follow the square root of the loss, since small differences matter and a few settings fail altogether. Every
cell shows its number.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from widthwise.report.exhibits import Heatmap, Heatmaps
from widthwise.report.style import INK, PAPER, label_panel, panel_grid

DARK_TEXT, LIGHT_TEXT = "#101010", "#fafafa"
"""For cells, whose colours stay the same on a dark page."""
LEAST = 1e-3
"""The smallest loss at the top of the colour scale: less is noise."""


def draw(exhibit: Heatmaps) -> Figure:
    """Draw heatmaps on one colour scale."""
    rows = max(len(heatmap.rows) for heatmap in exhibit.maps)
    width = 0.75 + 0.52 * max(len(heatmap.columns) for heatmap in exhibit.maps)
    across = max(1, min(len(exhibit.maps), int(9.6 // width)))
    figure, panels = panel_grid(
        len(exhibit.maps), columns=across, width=width, heights=(0.75 + 0.3 * rows,), beside=0.8, share_y=False
    )
    known = [loss for heatmap in exhibit.maps for row in heatmap.values for loss in row if math.isfinite(loss)]
    top = max([LEAST, *known])
    scale = PowerNorm(0.5, vmin=0, vmax=top, clip=True)
    mesh = None
    for heatmap, (axes,) in zip(exhibit.maps, panels, strict=True):
        cells = np.ma.masked_invalid(heatmap.values)
        mesh = axes.pcolormesh(cells, cmap="Blues", norm=scale, edgecolors=PAPER, linewidth=1.2)
        _write_numbers(axes, heatmap, scale)
        label_panel(axes, heatmap.title, exhibit.x_label, "width")
        axes.set_xticks(np.arange(len(heatmap.columns)) + 0.5, heatmap.columns)
        axes.set_yticks(np.arange(len(heatmap.rows)) + 0.5, [str(row) for row in heatmap.rows])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.patch.set(facecolor="#808080", alpha=0.15)
        axes.spines[:].set_visible(False)
    if mesh is not None:
        # By default, the first tick beyond the top is drawn as well, on top of the last one below it.
        ticks = [tick for tick in MaxNLocator(5).tick_values(0, top) if tick <= top]
        axes = [axes for (axes,) in panels]
        figure.colorbar(mesh, ax=axes, ticks=ticks, label="eval loss above the width's best", aspect=25)
    return figure


def _write_numbers(axes: Axes, heatmap: Heatmap, scale: PowerNorm) -> None:
    for (row, column), loss in np.ndenumerate(heatmap.values):
        if math.isfinite(loss):
            text, colour = f"{loss:.3f}", LIGHT_TEXT if float(scale(loss)) > 0.55 else DARK_TEXT
        else:
            text, colour = "–", INK
        axes.text(column + 0.5, row + 0.5, text, color=colour, ha="center", va="center", fontsize=7.5)
