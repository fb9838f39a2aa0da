"""An experiment, carried out: stage after stage, on a driver that computes what its study does not know yet."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from widthwise.experiments.paper_constants import look_up
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import TUNED, Probe, Stage, Tune
from widthwise.parameterize import Constants
from widthwise.sweep.constants import keep
from widthwise.sweep.driver import Driver
from widthwise.sweep.packs import Wanted, Wants
from widthwise.sweep.rounds import Finding, Job, run_sweeps
from widthwise.sweep.trials import run_tuning

NOTE = "experiment/"
"""Under names that begin so, a study keeps what experiments it holds."""


def carry_out(name: str, scale: Scale, stages: Sequence[Stage], driver: Driver) -> list[str]:
    """Compute what an experiment needs that is not known yet.

    Args:
        name: The experiment's name.
        scale: The scale.
        stages: What to do.
        driver: What computes.

    Returns:
        What is missing at the end, in a line each: searches that found no optimum, runs that failed.
    """
    study, note = driver.study, f"{NOTE}{name}/{scale}"
    began = datetime.now(UTC).isoformat(timespec="seconds")
    study.put(note, {"began": began, "ended": None, "missing": []})
    missing: list[str] = []
    results = Results(study, name, scale)
    for tuning, some in itertools.groupby(stages, lambda stage: isinstance(stage, Tune)):
        missing += (_tunings if tuning else _searches)(list(some), results, driver)
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    study.put(note, {"began": began, "ended": ended, "missing": missing})
    return missing


def _searches(stages: Sequence[Stage], results: Results, driver: Driver) -> list[str]:
    """Carry out searches that follow each other at once, and then what is to be measured at their optima."""

    def constants(name: str, optimizer: str, parameterization: str) -> Constants:
        # Adam-atan2 is Adam without epsilon, and so it gets Adam's, as in the paper.
        tuned_for = "adam" if optimizer == "adam_atan2" else optimizer
        return look_up(driver.study, results.label(name) if name == TUNED else name, tuned_for, parameterization)

    searches = [stage.of if isinstance(stage, Probe) else stage for stage in stages if not isinstance(stage, Tune)]
    jobs = [
        Job(
            sweep=search.sweep,
            wants=Wants(search.sweep.base),
            constants=constants,
            label=results.label(search.part),
        )
        for search in searches
    ]
    found = run_sweeps(jobs, driver)
    probes: dict[str, list[Wanted]] = {}
    for stage, job, findings in zip(stages, jobs, found, strict=True):
        if isinstance(stage, Probe):
            probes.setdefault(results.label(stage.part), []).extend(_probes(job, findings))
    for label, wanted in probes.items():
        driver.compute(wanted, label=label)
    return [
        f"{finding.group.title}, width {finding.width}: {what}"
        for findings in found
        for finding in findings
        for what in finding.proposal.missing
    ]


def _probes(job: Job, findings: Sequence[Finding]) -> list[Wanted]:
    """Want the best rate of every search again, measuring; those where all rates diverged have none."""
    return [
        job.wants.want(
            finding.group.at(
                width=finding.width,
                learning_rate=job.sweep.search.rate(finding.proposal.optimum),
                seed=job.sweep.all_seeds[0],
                vocabulary=job.wants.vocabulary,
            ),
            probe=True,
            **finding.group.names,
        )
        for finding in findings
        if finding.proposal.optimum is not None
    ]


def _tunings(stages: Sequence[Stage], results: Results, driver: Driver) -> list[str]:
    return [line for stage in stages if isinstance(stage, Tune) for line in _tune(stage, results, driver)]


def _tune(stage: Tune, results: Results, driver: Driver) -> list[str]:
    spec, tuning = stage.spec, stage.tuning
    tried = run_tuning(tuning, spec, driver, Wants(spec), label=results.label(stage.part))
    tuned, of = tuning.result(tried), f"{spec.parameterization}, {spec.optimizer}"
    if tuned is None:
        return [f"constants of {of}: every trial diverged or failed"]
    about: dict[str, Any] = {
        "spec": spec.to_json(),
        "tuning": asdict(tuning),
        "trials": len(tried),
        "default_loss": next((trial.loss for trial in tried if trial.constants == Constants()), None),
        **tuned.to_json(),
    }
    keep(driver.study, results.label(TUNED), spec.optimizer, spec.parameterization, tuned.constants, about)
    return [f"constants of {of}: {role.value} at an edge of its range" for role in tuned.at_edge]
