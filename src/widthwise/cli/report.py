"""`widthwise report`: the results of a study as a page with figures and tables."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from widthwise.cli.arguments import unset
from widthwise.cli.paths import check_file, check_folder
from widthwise.cli.running import StatusLine
from widthwise.report.findings import Finding
from widthwise.report.sections import NOTE, Contents, Section, read_sweeps
from widthwise.report.template import fill_template
from widthwise.report.write import WrittenReport, write_report
from widthwise.study import Study
from widthwise.study.export import reading

MOST_LINES = 5
"""The most lines printed about what an experiment lacks."""


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """Write the results of a study as one page that opens from disk, with figures and tables as files beside it.

    This works at any time: for a study that is still running or partly failed, the page shows what there is and lists
    what is missing.
    """

    study: Annotated[Path, tyro.conf.Positional]
    """The study's folder, or what `widthwise export` wrote of it as .jsonl or .jsonl.gz."""
    out: Annotated[Path | None, unset("STUDY/report; beside a file, NAME-report")] = None
    """The folder to write to."""
    template: Path | None = None
    """Fill this page instead, a Jinja template such as results.md.j2; --out is then the page to write."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Write the report, and print a summary."""
        with StatusLine(quiet=self.json) as status, reading(self.study) as study:
            status.show("reading the study")
            if self.template is not None:
                page = self.out or self.template.with_suffix("")
                check_file(page)
                print(*fill_template(self.template, page, _read(study)), sep="\n")
                return 0
            beside = self.study.with_name(f"{study.folder.name}-report")  # a file has no inside
            folder = self.out or (self.study / "report" if self.study.is_dir() else beside)
            check_folder(folder)
            report = write_report(_read(study), folder, progress=status.show)
        print(json.dumps(_to_json(report), indent=2) if self.json else _summary(report))
        return 0


def _read(study: Study) -> Contents:
    if not study.notes(NOTE):
        return read_sweeps(study)
    from widthwise.experiments.reading import read  # needs JAX, which a sweep of one's own does without

    return read(study)


def _summary(report: WrittenReport) -> str:
    lines, contents = [], report.contents
    for section in contents.sections:
        if section.findings:
            lines += [_heading(section), *(f"  {_line(finding)}" for finding in section.findings), ""]
    missing = [*contents.missing, *(line for section in contents.sections for line in _missing(section))]
    if missing:
        lines += ["missing:", *(f"  {line}" for line in missing), ""]
    counts = ", ".join(f"{count} {status}" for status, count in contents.counts.items() if count)
    return "\n".join([*lines, counts or "no runs yet", f"report: {report.page}"])


def _missing(section: Section) -> list[str]:
    """Return what a section lacks, in a few lines."""
    more = len(section.missing) - MOST_LINES
    lines = [*section.missing[:MOST_LINES], *([f"and {more} more, in the report"] if more > 0 else [])]
    return [f"{_heading(section)}: {line}" for line in lines]


def _heading(section: Section) -> str:
    return f"{section.title} ({section.scale})" if section.scale else section.title


def _line(finding: Finding) -> str:
    return str(finding) + ("" if finding.paper is None else f"; paper: {finding.paper}")


def _to_json(report: WrittenReport) -> dict[str, Any]:
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
