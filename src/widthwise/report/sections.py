"""What a report says, read from a study: experiments in the paper's order, then other runs, and what is missing.

Everything is read as far as it has come: a study may be empty, in the works, or have failed in parts.
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
from widthwise.sweep import Row, Study
from widthwise.sweep.records import Status

MOST_REASONS = 20
"""The most lines about runs that failed."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report.

    Attributes:
        name: What its files begin with and what links to it: lower-case words joined by hyphens.
        title: Its heading.
        scale: The scale of an experiment; empty for other runs.
        claim: What the paper claims; empty for other runs.
        findings: What was found about the claims.
        exhibits: What to look at.
        notes: What a reader has to know.
        missing: What is missing of it, in a line each.
    """

    name: str
    title: str
    scale: str = ""
    claim: str = ""
    findings: tuple[Finding, ...] = ()
    exhibits: tuple[AnyExhibit, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that a report says.

    Attributes:
        study: The name of the study's folder.
        counts: Runs by where they stand.
        sections: The parts.
        missing: What is missing of the study as a whole, in a line each: runs that failed, and why.
    """

    study: str
    counts: dict[Status, int]
    sections: tuple[Section, ...]
    missing: tuple[str, ...]


def read(study: Study) -> Contents:
    """Read a study."""
    sections: list[Section] = []
    missing: list[str] = []
    carried_out = study.notes(NOTE)
    beside: list[str] = []
    for note in sorted(carried_out, key=_place):
        name, scale = _parts(note)
        if name not in EXPERIMENTS:
            missing.append(f"{name}, {scale}: this version knows no experiment of that name")
            continue
        results = Results(study, name, scale)
        beside.append(results.label(""))
        sections.append(_experiment(EXPERIMENTS[name], results, carried_out[note]))
    reading, incomplete = other_runs(study, beside)
    if reading.exhibits or incomplete:
        sections.append(Section(name="sweeps", title="Sweeps", exhibits=reading.exhibits, missing=incomplete))
    return Contents(
        study=study.folder.name,
        counts=study.counts(),
        sections=tuple(sections),
        missing=(*missing, *_failures(study)),
    )


def _parts(note: str) -> tuple[str, Scale]:
    name, scale = note.removeprefix(NOTE).split("/")
    return name, cast(Scale, scale)


def _place(note: str) -> tuple[int, int]:
    """Give an experiment's place in the report: that of its name, then that of its scale."""
    name, scale = _parts(note)
    names = [*EXPERIMENTS, name]
    return names.index(name), get_args(Scale).index(scale)


def _experiment(experiment: Experiment, results: Results, note: dict[str, Any]) -> Section:
    missing = list(note["missing"])
    if note["ended"] is None:
        missing.insert(0, "it has not ended: it is still running, or was interrupted; the same command goes on")
    try:
        reading = experiment.read(results)
    except ValueError as error:  # one part that cannot be read must not take the others with it
        reading = Reading(findings=(), exhibits=())
        missing.append(f"it cannot be read: {error}")
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
    failed: dict[str, Row] = {row.run: row for row in study.runs() if row.status == "failed"}
    reasons = Counter(
        (study.details(run).provenance.get("error", "no reason is known"), row.spec.get("width"))
        for run, row in failed.items()
    )
    lines = [
        f"{count} {'run' if count == 1 else 'runs'} of width {width} failed: {reason}"
        for (reason, width), count in reasons.most_common()
    ]
    more = len(lines) - MOST_REASONS
    return lines if more <= 0 else [*lines[:MOST_REASONS], f"and {more} more reasons why runs failed"]
