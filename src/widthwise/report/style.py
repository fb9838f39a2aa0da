"""Colours, fonts and panels that all figures share.

The palette can be told apart by the color-blind, and a colour means the same in every figure. A figure is drawn once,
for paper; a dark page shows it on white.
"""

import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

FORMATS = ("svg", "png", "pdf")

INK = "#1c2024"
"""The colour of text and axes."""
PAPER = "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
"""The palette of Okabe and Ito."""
PARAMETERIZATIONS: dict[str, str] = dict(zip(("standard", "ntk", "mup", "mean_field"), COLOURS, strict=False))
"""The colour of each parameterization."""
MARKERS: dict[str, str] = dict(zip(PARAMETERIZATIONS, "osD^", strict=True))

WIDEST = 5.4
"""The most inches that a panel is widened to."""
_STEPS = 24
_RAMP = [to_hex(colormaps["viridis"](0.70 - 0.65 * step / (_STEPS - 1))) for step in range(_STEPS)]

_SETTINGS: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 8.5),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3),
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#808080",
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "widthwise",
    "text.parse_math": False,  # names of settings are shown as they are, and may be no formulas
}


def styled() -> AbstractContextManager[None]:
    """Return a context to draw and save in: text stays text, and one figure always gives the same bytes."""
    return matplotlib.rc_context(_SETTINGS)


def ramp(count: int) -> list[str]:
    """Return colours for widths in ascending order, each darker than the one before.

    >>> len(set(ramp(14))), ramp(1) == ramp(5)[-1:]
    (14, True)
    """
    return [_RAMP[-1 - round((_STEPS - 1) * index / max(count - 1, 1))] for index in reversed(range(count))]


def panel_grid(
    count: int, *, columns: int = 4, width: float, heights: tuple[float, ...], beside: float = 1.2, share_y: bool = True
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with rows of panels and room for a legend to their right, and the axes of each panel.

    Args:
        count: The number of panels.
        columns: The most panels in a row.
        width: The width of a panel, in inches; one or two in a row are wider.
        heights: The heights of the axes in a panel, from top to bottom, in inches.
        beside: The width of the space to the right of all panels, in inches.
        share_y: Whether axes share their vertical scale: all of them, or those of a row if panels have several axes.
    """
    across = min(count, columns)
    rows = -(-count // across)
    width = max(width, min(width * {1: 2.2, 2: 1.35}.get(across, 1.0), WIDEST))
    figure = Figure(
        figsize=(width * across + beside, rows * sum(heights) + 0.3),
        layout=ConstrainedLayoutEngine(w_pad=0.07, h_pad=0.06),
    )
    figure.patch.set_gid("paper")
    deep = len(heights)
    shared: Any = share_y and (True if deep == 1 else "row")
    grid = figure.subplots(rows * deep, across, squeeze=False, height_ratios=heights * rows, sharey=shared)
    panels = [list(grid[row * deep : (row + 1) * deep, column]) for row in range(rows) for column in range(across)]
    for panel in panels[count:]:
        for axes in panel:
            axes.remove()
    return figure, panels[:count]


def label_panel(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Write a panel's title, wrapped to the panel's width, and its labels, the vertical one once in a row."""
    figure, place = axes.get_figure(root=True), axes.get_subplotspec()
    assert figure is not None
    assert place is not None
    inches = place.get_position(figure).width * figure.get_figwidth()
    title = "\n".join(textwrap.wrap(title, max(int(14 * inches), 12)))
    axes.set(title=title, xlabel=x_label, ylabel=y_label if place.is_first_col() else "")


def check_suffix(path: Path) -> None:
    """Raise ValueError if no figure can be written to this file, before the work that leads to the figure."""
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        expected = ", ".join(f".{kind}" for kind in FORMATS)
        raise ValueError(f"{str(path)!r} ends in {path.suffix!r}: expected one of {expected}")
