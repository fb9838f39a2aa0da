"""What an experiment shows, as data: figures and tables that know neither colours nor files.

An experiment builds these from its results, and `report` draws them. Numbers are plain floats, NaN where there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from widthwise.measure import AlignmentPoint
from widthwise.sweep.fits import GroupFit


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """Something to look at.

    Attributes:
        name: What its files are called: lower-case words joined by hyphens.
        title: Its heading.
        caption: What it shows and how to read it, in a sentence or two.
    """

    name: str
    title: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class Transfers(Exhibit):
    """Learning-rate sweeps and power laws: for each group a panel of sweep curves, and below it the optimal rate.

    Attributes:
        fits: The groups.
        panels: The heading of each group's panel.
        paper: The paper's exponent for each group; None where it has none.
    """

    fits: tuple[GroupFit, ...]
    panels: tuple[str, ...]
    paper: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a figure.

    Attributes:
        name: What the legend calls it.
        x: Where.
        y: What.
        parameterization: Whose colour it has; lines of one colour differ in their strokes.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    parameterization: str | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A set of axes with lines.

    Attributes:
        title: Its heading.
        series: The lines.
    """

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True, kw_only=True)
class Lines(Exhibit):
    """Panels of lines that share their axes, such as eval loss against model size.

    Attributes:
        panels: The panels, side by side.
        x_label: What runs along.
        y_label: What runs up.
        log_x: Whether the horizontal axis is logarithmic.
        log_y: Whether the vertical axis is.
    """

    panels: tuple[Panel, ...]
    x_label: str
    y_label: str
    log_x: bool = True
    log_y: bool = False


@dataclass(frozen=True, kw_only=True)
class AlignmentCurves(Exhibit):
    """The log alignment ratio of every dense layer through training.

    Attributes:
        panels: What was measured, by the heading of its panel.
    """

    panels: Mapping[str, tuple[AlignmentPoint, ...]]


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """Losses by width and by something else.

    Attributes:
        title: Its heading.
        rows: The widths.
        columns: What is tried at each width, such as an epsilon, as it is written.
        values: By row, the difference in eval loss from the best of the row; NaN where nothing is known.
    """

    title: str
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Heatmaps(Exhibit):
    """Heatmaps that share a colour scale.

    Attributes:
        maps: The heatmaps.
        x_label: What the columns are.
    """

    maps: tuple[Heatmap, ...]
    x_label: str


@dataclass(frozen=True, kw_only=True)
class Table(Exhibit):
    """A table of words and numbers, as they are to be written.

    Attributes:
        columns: The headings.
        rows: The cells, row by row.
        best: Cells to mark, as (row, column): the best of their kind.
        paper: Columns, by number, that hold the paper's values and none of ours.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    paper: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Point:
    """A parameterization's place in the (a, b) plane."""

    parameterization: str
    a: float
    b: float


@dataclass(frozen=True, kw_only=True)
class Plane:
    """The (a, b) plane of one role.

    Attributes:
        role: The role.
        points: The parameterizations.
        stable_total: The smallest, or for an exact constraint the only, a + b at which initialization is stable.
        exact: Whether a + b has to be just that.
    """

    role: str
    points: tuple[Point, ...]
    stable_total: float
    exact: bool


@dataclass(frozen=True, kw_only=True)
class Planes(Exhibit):
    """The plane of parameterizations for each role, with equivalence classes (lines of equal a + b) and stability.

    Attributes:
        planes: One for each role.
    """

    planes: tuple[Plane, ...]


AnyExhibit: TypeAlias = Transfers | Lines | AlignmentCurves | Heatmaps | Table | Planes
