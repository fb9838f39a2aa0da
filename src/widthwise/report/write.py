"""A report, written: a page, figures as SVG, PNG and PDF, tables as CSV and LaTeX.

Each file appears whole or not at all and the page comes last, so that a report can be written again while somebody
reads the one before.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from widthwise.experiments.exhibits import AnyExhibit, Table
from widthwise.report.figures import save, saved
from widthwise.report.page import Shown, render
from widthwise.report.sections import Contents, read
from widthwise.report.tables import to_csv, to_latex
from widthwise.sweep import Study


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report.

    Attributes:
        page: The page to open.
        files: Figures and tables, in the order of the page.
        contents: What it says.
    """

    page: Path
    files: tuple[Path, ...]
    contents: Contents


def write_report(study: Study, folder: Path, *, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Write the report of a study, whatever it has come to.

    Args:
        study: The study; others may be filling it.
        folder: Where to write; made if it is not there.
        progress: Told what is being done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    progress("reading the study")
    contents = read(study)
    exhibits = [(section.name, exhibit) for section in contents.sections for exhibit in section.exhibits]
    shown: dict[str, list[Shown]] = {section.name: [] for section in contents.sections}
    for number, (section, exhibit) in enumerate(exhibits, 1):
        progress(f"drawing {number} of {len(exhibits)}: {exhibit.title}")
        if (one := _write(exhibit, f"{section}-{exhibit.name}", folder)) is not None:
            shown[section].append(one)
    page = folder / "index.html"
    written = datetime.now(UTC).strftime("%Y-%m-%d, %H:%M UTC")
    _replace(page, render(contents, shown, written=written).encode())
    paths = (folder / path for section in shown.values() for one in section for path in one.files.values())
    return Report(page=page, files=tuple(paths), contents=contents)


def _write(exhibit: AnyExhibit, name: str, folder: Path) -> Shown | None:
    """Write the files of an exhibit; None where there is nothing to show yet."""
    if isinstance(exhibit, Table):
        drawn, place = "", "tables"
        contents = {"csv": to_csv(exhibit).encode(), "tex": to_latex(exhibit).encode()} if exhibit.rows else {}
    else:
        figure, place = saved(exhibit, name, folder / "figures") or save(exhibit, name), "figures"
        drawn, contents = ("", {}) if figure is None else (figure.inline, figure.files)
    if not contents:
        return None
    files = {kind: f"{place}/{name}.{kind}" for kind in contents}
    for kind, path in reversed(files.items()):  # the SVG last: it says what the others show
        _replace(folder / path, contents[kind])
    return Shown(name=name, exhibit=exhibit, files=files, drawn=drawn)


def _replace(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(contents)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
