"""How figures look: colours that the colour-blind can tell apart, the same meaning everywhere.

A figure is drawn once, for paper. Where it stands on a page that may be dark, the page replaces the colours in `DARK`:
there ink is light, and widths grow brighter where on paper they grow darker.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK = "#1c2024"
"""What is written, and axes."""
PAPER = "#ffffff"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
"""The palette of Okabe and Ito."""
PARAMETERIZATIONS: dict[str, str] = dict(zip(("standard", "ntk", "mup", "mean_field"), COLOURS, strict=False))
"""The colour of each parameterization, in every figure."""
MARKERS: dict[str, str] = dict(zip(PARAMETERIZATIONS, "osD^", strict=True))

_STEPS = 24
_RAMP = [to_hex(colormaps["viridis"](0.70 - 0.65 * step / (_STEPS - 1))) for step in range(_STEPS)]
_DARK_RAMP = [to_hex(colormaps["viridis"](0.40 + 0.56 * step / (_STEPS - 1))) for step in range(_STEPS)]
DARK = {
    INK: "#e4e7eb",
    PAPER: "#15181c",
    **dict(zip(COLOURS, ("#4ba6e0", "#f08142", "#2fc197", "#e3a0c6"), strict=False)),
    **dict(zip(_RAMP, _DARK_RAMP, strict=True)),
}
"""What colours become on a dark page."""

SUFFIXES = (".png", ".svg", ".pdf")

_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "figure.facecolor": PAPER,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "widthwise",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save in this style; text stays text, and the same figure is the same file at any time."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def ramp(count: int) -> list[str]:
    """Give colours for widths in their order, each darker than the one before.

    >>> len(set(ramp(14))), ramp(1) == ramp(5)[-1:]
    (14, True)
    """
    return [_RAMP[-1 - round((_STEPS - 1) * index / max(count - 1, 1))] for index in reversed(range(count))]


def plain(axes: Axes) -> None:
    """Take away what is not data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#808080", alpha=0.25, linewidth=0.6)
    axes.tick_params(length=3)


def entitle(axes: Axes, heading: str) -> None:
    """Write the heading of a panel, in several lines where it would run into the next panel's."""
    inches = axes.get_subplotspec().get_position(axes.figure).width * axes.figure.get_figwidth()  # pyright: ignore
    axes.set_title("\n".join(textwrap.wrap(heading, max(int(14 * inches), 12))))


def grid_of(
    count: int, *, columns: int = 4, width: float, heights: tuple[float, ...], beside: float = 1.2, share_y: bool = True
) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure for so many panels, a few in each row, with room for a legend beside them.

    Args:
        count: How many panels.
        columns: The most in a row.
        width: Of a panel, in inches.
        heights: Of the axes that a panel has, from top to bottom, in inches.
        beside: The width of what stands to the right of all panels, in inches.
        share_y: Whether the axes of a row share their vertical scale.

    Returns:
        The figure, and the axes of each panel.
    """
    across = min(count, columns)
    rows = -(-count // across)
    width *= 1.4 if across == 1 else 1.0
    figure = Figure(
        figsize=(width * across + beside, rows * sum(heights) + 0.3),
        layout=ConstrainedLayoutEngine(w_pad=0.07, h_pad=0.06),
    )
    figure.patch.set_gid("paper")
    deep = len(heights)
    axes = figure.subplots(
        rows * deep, across, squeeze=False, height_ratios=heights * rows, sharey="row" if share_y else False
    )
    panels = [
        [axes[row * deep + below, column] for below in range(deep)] for row in range(rows) for column in range(across)
    ]
    for panel in panels[count:]:
        for unused in panel:
            unused.remove()
    return figure, panels[:count]


def check_suffix(path: Path) -> None:
    """Refuse a file that no figure can be written to, before the work that leads to the figure."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{str(path)!r} ends in {path.suffix!r}: expected one of {', '.join(SUFFIXES)}")
