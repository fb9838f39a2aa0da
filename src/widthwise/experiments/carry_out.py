"""An experiment, carried out: stage after stage, on a driver that computes what its study does not know yet."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from widthwise.experiments.paper_constants import look_up
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import TUNED, Probe, Search, Stage, Tune
from widthwise.parameterize import Constants
from widthwise.sweep.constants import keep
from widthwise.sweep.driver import Driver
from widthwise.sweep.packs import Wants
from widthwise.sweep.rounds import Finding, run_sweep
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
    for stage in stages:
        missing += _carry_out(stage, Results(study, name, scale), driver)
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    study.put(note, {"began": began, "ended": ended, "missing": missing})
    return missing


def _carry_out(stage: Stage, results: Results, driver: Driver) -> list[str]:
    if isinstance(stage, Tune):
        return _tune(stage, results, driver)
    search = stage if isinstance(stage, Search) else stage.of
    findings = _search(search, results, driver)
    if isinstance(stage, Probe):
        _probe(search, findings, results.label(stage.part), driver)
    return [
        f"{finding.group.title}, width {finding.width}: {what}"
        for finding in findings
        for what in finding.proposal.missing
    ]


def _search(search: Search, results: Results, driver: Driver) -> list[Finding]:
    def constants(name: str, optimizer: str, parameterization: str) -> Constants:
        # Adam-atan2 is Adam without epsilon, and so it gets Adam's, as in the paper.
        tuned_for = "adam" if optimizer == "adam_atan2" else optimizer
        return look_up(driver.study, results.label(name) if name == TUNED else name, tuned_for, parameterization)

    sweep = search.sweep
    return run_sweep(sweep, driver, Wants(sweep.base), constants=constants, label=results.label(search.part))


def _probe(search: Search, findings: Sequence[Finding], label: str, driver: Driver) -> None:
    """Train with the best rate of every search again, measuring; those where all rates diverged have none."""
    wants, sweep = Wants(search.sweep.base), search.sweep
    wanted = [
        wants.want(
            finding.group.at(
                width=finding.width,
                learning_rate=sweep.search.rate(finding.proposal.optimum),
                seed=sweep.all_seeds[0],
                vocabulary=wants.vocabulary,
            ),
            probe=True,
            **finding.group.names,
        )
        for finding in findings
        if finding.proposal.optimum is not None
    ]
    driver.compute(wanted, label=label)


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
