"""What a report says: sections, and what is missing. Here sweeps are read; `widthwise.experiments` reads its own.

A study may be empty, still running, or have failed in parts; the report shows what there is.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from widthwise.report.exhibits import AnyExhibit
from widthwise.report.findings import Finding
from widthwise.report.other_runs import other_runs
from widthwise.study import Study
from widthwise.study.store import Status

NOTE = "experiment/"
"""The prefix of the notes that tell which experiments a study holds."""
MOST_REASONS = 20
"""The most lines about failed runs."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report.

    Attributes:
        name: Its anchor and the prefix of its files: lower-case words joined by hyphens.
        title: Its heading.
        scale: The scale of an experiment; empty for other runs.
        claim: What the paper claims; empty for other runs.
        findings: What was found about the paper's claims.
        exhibits: Its figures and tables.
        notes: What a reader has to know.
        missing: What is missing, in a line each.
        runs: How many runs an experiment has that ended.
        of_paper: Whether its findings are about claims of the paper.
    """

    name: str
    title: str
    scale: str = ""
    claim: str = ""
    findings: tuple[Finding, ...] = ()
    exhibits: tuple[AnyExhibit, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    runs: int = 0
    of_paper: bool = True

    @property
    def claims(self) -> dict[str, list[Finding]]:
        """The findings by their claim."""
        claims: dict[str, list[Finding]] = {}
        for finding in self.findings:
            claims.setdefault(finding.claim, []).append(finding)
        return claims


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a report says.

    Attributes:
        study: The name of the study's folder.
        counts: The number of runs by status.
        sections: The sections.
        missing: What is missing of the study as a whole, such as runs that failed and why, in a line each.
    """

    study: str
    counts: dict[Status, int]
    sections: tuple[Section, ...]
    missing: tuple[str, ...]


def read_sweeps(study: Study) -> Contents:
    """Read what a study has to report if it holds no experiments."""
    sections, missing = sweeps_of(study), failures(study)
    return Contents(study=study.folder.name, counts=study.counts(), sections=sections, missing=missing)


def sweeps_of(study: Study, *, beside: Sequence[str] = ()) -> tuple[Section, ...]:
    """Return a section about sweeps, if there are any but those whose labels begin with one of these."""
    exhibits, missing = other_runs(study, beside)
    return (Section(name="sweeps", title="Sweeps", exhibits=exhibits, missing=missing),) if exhibits or missing else ()


def failures(study: Study) -> tuple[str, ...]:
    """Return which runs failed, and why, a line each."""
    failed = {row.run: row.spec.get("width") for row in study.runs() if row.status == "failed"}
    reasons = Counter(
        (width, study.details(run).provenance.get("error", "reason unknown")) for run, width in failed.items()
    )
    lines = [
        f"{count} {'run' if count == 1 else 'runs'} of width {width} failed: {reason}"
        for (width, reason), count in reasons.most_common()
    ]
    more = len(lines) - MOST_REASONS
    return tuple(lines if more <= 0 else [*lines[:MOST_REASONS], f"and {more} more reasons why runs failed"])
