"""Write a report: a page, figures as SVG, PNG and PDF, tables as CSV and LaTeX.

The page is one file with its style, its script and its figures in it, so that it opens from disk and can be sent to
somebody. Each file is replaced as a whole and the page comes last, so that a report can be rewritten while somebody
reads it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from widthwise import __version__
from widthwise.report import tables
from widthwise.report.exhibits import AnyExhibit, Table
from widthwise.report.figures import draw_files, saved_files
from widthwise.report.inline import inline_svg
from widthwise.report.sections import Contents
from widthwise.study.export import write_whole

MOST_UNFOLDED = 40
"""A page with more findings than this opens with its claims and verdicts; the numbers are folded."""


@dataclass(frozen=True, kw_only=True)
class WrittenReport:
    """A report on disk.

    Attributes:
        page: The page to open.
        files: Figures and tables, in the order of the page.
        contents: What the report says.
    """

    page: Path
    files: tuple[Path, ...]
    contents: Contents


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An exhibit on the page: its anchor, its files by format, relative to the page, and a figure's inline SVG."""

    name: str
    exhibit: AnyExhibit
    files: Mapping[str, str]
    svg: str


def write_report(
    contents: Contents, folder: Path, *, progress: Callable[[str], None] = lambda _: None
) -> WrittenReport:
    """Write a report.

    Args:
        contents: What it says.
        folder: Where to write; created if it does not exist.
        progress: Called with a line about each step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    exhibits = [(section.name, exhibit) for section in contents.sections for exhibit in section.exhibits]
    shown: dict[str, list[Shown]] = {section.name: [] for section in contents.sections}
    for number, (section, exhibit) in enumerate(exhibits, 1):
        progress(f"drawing {number} of {len(exhibits)}: {exhibit.title}")
        if (written := _write_exhibit(exhibit, f"{section}-{exhibit.name}", folder, f"f{number}")) is not None:
            shown[section].append(written)
    page = folder / "index.html"
    write_whole(page, render(contents, shown).encode())
    paths = tuple(folder / path for section in shown.values() for each in section for path in each.files.values())
    return WrittenReport(page=page, files=paths, contents=contents)


def render(contents: Contents, shown: Mapping[str, list[Shown]]) -> str:
    """Return the page that shows these exhibits, by section."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    here = files("widthwise.report")
    return environment.from_string(here.joinpath("page.html.j2").read_text(encoding="utf-8")).render(
        contents=contents,
        shown=shown,
        css=here.joinpath("page.css").read_text(encoding="utf-8"),
        js=here.joinpath("page.js").read_text(encoding="utf-8"),
        tables=tables,
        unfolded=sum(len(section.findings) for section in contents.sections) <= MOST_UNFOLDED,
        version=__version__,
        written=datetime.now(UTC).strftime("%Y-%m-%d, %H:%M UTC"),
    )


def _write_exhibit(exhibit: AnyExhibit, name: str, folder: Path, prefix: str) -> Shown | None:
    """Write the files of an exhibit; return None if there is nothing to show yet."""
    if isinstance(exhibit, Table):
        place, contents = "tables", tables.table_files(exhibit)
    else:
        place, contents = "figures", saved_files(exhibit, name, folder / "figures") or draw_files(exhibit)
    if not contents:
        return None
    paths = {kind: f"{place}/{name}.{kind}" for kind in contents}
    for kind in reversed(contents):  # the SVG last: its seal vouches for the other formats
        write_whole(folder / paths[kind], contents[kind])
    svg = inline_svg(contents["svg"].decode(), prefix, exhibit) if "svg" in contents else ""
    return Shown(name=name, exhibit=exhibit, files=paths, svg=svg)
