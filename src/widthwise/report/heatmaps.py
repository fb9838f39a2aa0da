"""Heatmaps of loss by width and by something else, such as epsilon: for each width, how much is lost against its best.

Colours follow the root of the loss, since what matters lies near zero and a few settings fail altogether; the number
stands in every cell.
"""

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from widthwise.experiments.exhibits import Heatmap, Heatmaps
from widthwise.report.style import INK, PAPER, entitle, grid_of

COLOURS = colormaps["Blues"]
DARK_TEXT, LIGHT_TEXT = "#101010", "#fafafa"
"""On colours that stay as they are on a dark page."""
LEAST = 1e-3
"""The loss that takes at least the whole scale: less is noise."""


def draw(exhibit: Heatmaps) -> Figure:
    """Draw heatmaps on one colour scale."""
    columns = max(len(each.columns) for each in exhibit.maps)
    rows = max(len(each.rows) for each in exhibit.maps)
    width = 0.75 + 0.52 * columns
    across = max(1, min(len(exhibit.maps), int(9.6 // width)))
    figure, panels = grid_of(
        len(exhibit.maps), columns=across, width=width, heights=(0.75 + 0.3 * rows,), beside=0.8, share_y=False
    )
    known = [value for each in exhibit.maps for row in each.values for value in row if math.isfinite(value)]
    scale = PowerNorm(0.5, vmin=0, vmax=max([LEAST, *known]), clip=True)
    drawn = None
    for place, (each, (axes,)) in enumerate(zip(exhibit.maps, panels, strict=True)):
        drawn = axes.pcolormesh(
            np.ma.masked_invalid(each.values), cmap=COLOURS, norm=scale, edgecolors=PAPER, linewidth=1.2
        )
        _cells(axes, each, scale)
        entitle(axes, each.title)
        axes.set_xticks(np.arange(len(each.columns)) + 0.5, each.columns)
        axes.set_yticks(np.arange(len(each.rows)) + 0.5, [str(row) for row in each.rows])
        axes.set_xlabel(exhibit.x_label)
        axes.set_ylabel("width" if place % across == 0 else "")
        axes.tick_params(length=0)
        axes.patch.set(facecolor="#808080", alpha=0.15)
        axes.spines[:].set_visible(False)
    if drawn is not None:
        figure.colorbar(drawn, ax=[axes for (axes,) in panels], label="eval loss above the width's best", aspect=25)
    return figure


def _cells(axes: Axes, each: Heatmap, scale: PowerNorm) -> None:
    for row, values in enumerate(each.values):
        for column, value in enumerate(values):
            known = math.isfinite(value)
            ink = LIGHT_TEXT if known and float(scale(value)) > 0.55 else DARK_TEXT
            axes.text(
                column + 0.5,
                row + 0.5,
                f"{value:.3f}" if known else "–",
                color=ink if known else INK,
                ha="center",
                va="center",
                fontsize=7.5,
            )
