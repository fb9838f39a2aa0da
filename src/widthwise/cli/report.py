"""`widthwise report`: what a study says, as a page with figures and tables."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from widthwise.cli.arguments import unset
from widthwise.cli.output import Output
from widthwise.cli.status_line import StatusLine
from widthwise.experiments.findings import Finding
from widthwise.report.sections import Section
from widthwise.report.write import Report as Written
from widthwise.report.write import write_report
from widthwise.sweep import Study

MOST_LINES = 5
"""The most lines printed about what is missing of an experiment."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write what a study says as one page that opens from disk, with figures and tables as files beside it.

    Works at any time: on a study that is running, or of which parts failed, it shows what there is and says what is
    missing.
    """

    study: Annotated[Path, tyro.conf.Positional]
    """The study's folder."""
    out: Annotated[Path | None, unset("STUDY/report")] = None
    """The folder to write to."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Write the report, and print what it found."""
        status = StatusLine(quiet=self.json)
        with Study.open(self.study, create=False) as study:
            try:
                report = write_report(study, self.out or self.study / "report", progress=status.show)
            finally:
                status.clear()
        if self.json:
            print(json.dumps(_to_json(report), indent=2))
        else:
            _show(report)
        return 0


def _show(report: Written) -> None:
    output, contents = Output(), report.contents
    for section in contents.sections:
        if section.findings:
            output.lines(_heading(section), *(f"  {_line(finding)}" for finding in section.findings), "")
    missing = [*contents.missing, *(line for section in contents.sections for line in _missing(section))]
    if missing:
        output.lines("missing:", *(f"  {line}" for line in missing), "")
    output.lines(", ".join(f"{count} {status}" for status, count in contents.counts.items() if count) or "no runs yet")
    output.lines(f"report: {report.page}")
    output.write()


def _missing(section: Section) -> list[str]:
    """Say what a section misses, no more of it than one reads."""
    more = len(section.missing) - MOST_LINES
    lines = [*section.missing[:MOST_LINES], *([f"and {more} more, in the report"] if more > 0 else [])]
    return [f"{_heading(section)}: {line}" for line in lines]


def _heading(section: Section) -> str:
    return f"{section.title} ({section.scale})" if section.scale else section.title


def _line(finding: Finding) -> str:
    return str(finding) + ("" if finding.paper is None else f"; paper: {finding.paper}")


def _to_json(report: Written) -> dict[str, Any]:
    contents = report.contents
    return {
        "page": str(report.page),
        "counts": contents.counts,
        "sections": [
            {
                "name": section.name,
                "title": section.title,
                "scale": section.scale or None,
                "findings": [asdict(finding) for finding in section.findings],
                "missing": list(section.missing),
            }
            for section in contents.sections
        ],
        "missing": list(contents.missing),
        "files": [str(path) for path in report.files],
    }
