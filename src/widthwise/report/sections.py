"""What a report says, read from a study: experiments in the paper's order, then other runs, and what is missing.

A study may be empty, still running, or have failed in parts; the report shows what there is.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast, get_args

from widthwise.experiments.carry_out import NOTE
from widthwise.experiments.exhibits import AnyExhibit
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.report.other_runs import other_runs
from widthwise.study import Study
from widthwise.study.store import Status

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
    """

    name: str
    title: str
    scale: str = ""
    claim: str = ""
    findings: tuple[Finding, ...] = ()
    exhibits: tuple[AnyExhibit, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

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


def read(study: Study) -> Contents:
    """Read what a study has to report."""
    missing: list[str] = []
    carried_out: list[tuple[Results, dict[str, Any]]] = []
    for path, note in study.notes(NOTE).items():
        name, scale = path.removeprefix(NOTE).split("/")
        if name in EXPERIMENTS:
            carried_out.append((Results(study, name, cast(Scale, scale)), note))
        else:
            missing.append(f"{name}, {scale}: this version has no experiment of that name")
    names, scales = list(EXPERIMENTS), get_args(Scale)
    carried_out.sort(key=lambda each: (names.index(each[0].name), scales.index(each[0].scale)))
    sections = [_read_experiment(EXPERIMENTS[results.name], results, note) for results, note in carried_out]
    exhibits, incomplete = other_runs(study, [results.label("") for results, _ in carried_out])
    if exhibits or incomplete:
        sections.append(Section(name="sweeps", title="Sweeps", exhibits=exhibits, missing=incomplete))
    missing += _failures(study)
    return Contents(study=study.folder.name, counts=study.counts(), sections=tuple(sections), missing=tuple(missing))


def _read_experiment(experiment: Experiment, results: Results, note: dict[str, Any]) -> Section:
    missing = list(note["missing"])
    if note["ended"] is None:
        missing.insert(0, "not finished: still running, or interrupted; the same command resumes it")
    try:
        reading = experiment.read(results)
    except ValueError as error:  # one experiment that cannot be read must not hide the others
        reading = Reading(findings=(), exhibits=())
        missing.append(f"cannot be read: {error}")
    return Section(
        name=f"{experiment.name}-{results.scale}",
        title=experiment.title,
        scale=results.scale,
        claim=experiment.claim,
        findings=reading.findings,
        exhibits=reading.exhibits,
        notes=reading.notes,
        missing=tuple(missing),
    )


def _failures(study: Study) -> list[str]:
    failed = {row.run: row.spec.get("width") for row in study.runs() if row.status == "failed"}
    reasons = Counter(
        (width, study.details(run).provenance.get("error", "reason unknown")) for run, width in failed.items()
    )
    lines = [
        f"{count} {'run' if count == 1 else 'runs'} of width {width} failed: {reason}"
        for (width, reason), count in reasons.most_common()
    ]
    more = len(lines) - MOST_REASONS
    return lines if more <= 0 else [*lines[:MOST_REASONS], f"and {more} more reasons why runs failed"]
