"""What a study with experiments has to report: these in the paper's order, then other runs, and what is missing."""

from typing import Any, cast, get_args

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.report.sections import NOTE, Contents, Section, failures, sweeps_of
from widthwise.study import Study


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
    sections += sweeps_of(study, beside=[results.label("") for results, _ in carried_out])
    missing += failures(study)
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
        runs=results.count(),
        of_paper=experiment.of_paper,
    )
