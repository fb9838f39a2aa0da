"""How figures look: colours that the colour-blind can tell apart, the same meaning everywhere."""

from pathlib import Path

from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito."""

SUFFIXES = (".png", ".svg", ".pdf")


def plain(axes: Axes) -> None:
    """Take away what is not data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25, linewidth=0.6)


def check_suffix(path: Path) -> None:
    """Refuse a file that no figure can be written to, before the work that leads to the figure."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{str(path)!r} ends in {path.suffix!r}: expected one of {', '.join(SUFFIXES)}")
