"""What an experiment shows, as data: figures and tables that know neither colours nor files.

An experiment builds these from its results, and `report` draws them. Numbers are plain floats, NaN where unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from widthwise.coordinates import AlignmentPoint
from widthwise.study.fits import GroupFit


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A figure or a table: the name of its files (words joined by hyphens), a heading, and how to read it."""

    name: str
    title: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class Transfers(Exhibit):
    """Learning-rate sweeps and power laws: for each fit a panel of curves, and below it the optimal rate.

    `panels` are the headings of the fits; `paper` has the paper's exponents, None where it has none.
    """

    fits: tuple[GroupFit, ...]
    panels: tuple[str, ...]
    paper: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a figure, in its parameterization's colour; lines of one colour differ in their strokes.

    Points can have intervals.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    parameterization: str | None = None
    intervals: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A set of axes with lines."""

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True, kw_only=True)
class Lines(Exhibit):
    """Panels of lines, side by side, that share their axes, such as eval loss against model size."""

    panels: tuple[Panel, ...]
    x_label: str
    y_label: str
    log_x: bool = True
    log_y: bool = False


@dataclass(frozen=True, kw_only=True)
class AlignmentCurves(Exhibit):
    """The log alignment ratio of every dense layer through training, by the heading of a panel."""

    panels: Mapping[str, tuple[AlignmentPoint, ...]]


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """Differences in eval loss from the best of each row: a row for each width, a column for each value tried."""

    title: str
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Heatmaps(Exhibit):
    """Heatmaps that share a colour scale and the label of their columns."""

    maps: tuple[Heatmap, ...]
    x_label: str


@dataclass(frozen=True, kw_only=True)
class Table(Exhibit):
    """A table of words and numbers, as text.

    Attributes:
        columns: The headings.
        rows: The cells, row by row.
        best: Cells to mark, as (row, column): the best of their kind.
        paper: Columns, by number, that hold only the paper's values.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    paper: frozenset[int] = frozenset()

    @classmethod
    def of(cls, name: str, title: str, caption: str, rows: Sequence[Mapping[str, str]]) -> "Table":
        """Return a table of rows by column; columns that begin with "paper" hold the paper's values."""
        columns = tuple(rows[0]) if rows else ()
        paper = frozenset(place for place, column in enumerate(columns) if column.startswith("paper"))
        cells = tuple(tuple(row.values()) for row in rows)
        return cls(name=name, title=title, caption=caption, columns=columns, rows=cells, paper=paper)


@dataclass(frozen=True, kw_only=True)
class PlanePoint:
    """A parameterization's place in the (a, b) plane."""

    parameterization: str
    a: float
    b: float


@dataclass(frozen=True, kw_only=True)
class Plane:
    """The (a, b) plane of one role.

    Initialization is stable where a + b is `stable_total` or more; if `exact`, only where it is just that.
    """

    role: str
    points: tuple[PlanePoint, ...]
    stable_total: float
    exact: bool


@dataclass(frozen=True, kw_only=True)
class Planes(Exhibit):
    """The plane of parameterizations for each role, with equivalence classes (lines of equal a + b) and stability."""

    planes: tuple[Plane, ...]


AnyExhibit: TypeAlias = Transfers | Lines | AlignmentCurves | Heatmaps | Table | Planes


def present(*exhibits: AnyExhibit) -> tuple[AnyExhibit, ...]:
    """Return those exhibits that have something to show."""
    contents = ("panels", "maps", "rows", "planes")
    return tuple(one for one in exhibits if any(getattr(one, content, ()) for content in contents))
