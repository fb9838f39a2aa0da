"""Carrying an experiment out: constants are tuned first, then learning rates are searched, then alignment is measured.

Where a claim compares losses and the runs cannot tell, more seeds follow at the optima of its settings, so that seeds
go where something depends on them. The driver computes only what the study does not hold yet.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from widthwise.experiments.experiment import Experiment
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import TUNED, ProbeStage, Stage, SweepStage, TuneStage, search_of
from widthwise.parameterize import Constants
from widthwise.report.findings import Judgement
from widthwise.report.sections import NOTE
from widthwise.study.setting import Setting
from widthwise.sweeps.budget import Account, Budget
from widthwise.sweeps.carry_out import GroupResult, Job, run_sweeps, run_tuning
from widthwise.sweeps.constants import keep
from widthwise.sweeps.driver import Driver
from widthwise.sweeps.requests import SweepData
from widthwise.train import Run


def carry_out(
    experiment: Experiment, scale: Scale, stages: Sequence[Stage], driver: Driver, *, budget: Budget | None = None
) -> list[str]:
    """Compute what an experiment needs that is not known yet.

    Args:
        experiment: The experiment.
        scale: The scale.
        stages: What to do.
        driver: What computes.
        budget: What the searches for learning rates may use.

    Returns:
        What is missing at the end, a line each: searches that found no optimum, runs that failed.
    """
    study, note = driver.study, f"{NOTE}{experiment.name}/{scale}"
    began = datetime.now(UTC).isoformat(timespec="seconds")
    study.put(note, {"began": began, "ended": None, "missing": []})
    results = Results(study, experiment.name, scale)
    missing = [line for stage in stages if isinstance(stage, TuneStage) for line in _tune(stage, results, driver)]
    searches, account = [stage for stage in stages if not isinstance(stage, TuneStage)], Account(budget)
    found = _search(searches, results, driver, account)
    for seeds in experiment.sizes[scale].loss_seeds:
        unclear = _unclear(experiment, Results(study, experiment.name, scale))
        found |= _search(_only(searches, unclear, seeds), results, driver, account)
    missing += [line for group in found.values() for line in group.missing]
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    study.put(note, {"began": began, "ended": ended, "missing": missing})
    return missing


def _search(
    stages: Sequence[SweepStage | ProbeStage], results: Results, driver: Driver, account: Account
) -> dict[tuple[str, Setting], GroupResult]:
    """Carry out all searches at once, and then measure alignment at their optima where that is wanted."""
    jobs = [
        Job(sweep=one.sweep, data=SweepData(one.sweep.base), constants=results.constants, label=results.label(one.part))
        for one in map(search_of, stages)
    ]
    found = run_sweeps(jobs, driver, account=account)
    probes: dict[str, list[Run]] = {}
    for stage, job, ends in zip(stages, jobs, found, strict=True):
        if isinstance(stage, ProbeStage):
            probes.setdefault(results.label(stage.part), []).extend(
                job.data.run(end.best, probe=True, constants=end.setting.constants, horizon=end.setting.horizon)
                for group in ends
                for end in group.searches
                if end.best is not None  # none where every rate diverged
            )
    for label, runs in probes.items():
        driver.compute(runs, label=label)
    return {(stage.part, group.setting): group for stage, ends in zip(stages, found, strict=True) for group in ends}


def _unclear(experiment: Experiment, results: Results) -> set[Setting]:
    """Return the settings of claims about losses that the runs so far cannot settle."""
    findings = experiment.read(results).findings
    return {setting for one in findings if one.verdict is Judgement.UNCLEAR for setting in one.losses_of}


def _only(stages: Sequence[SweepStage | ProbeStage], settings: set[Setting], seeds: int) -> list[SweepStage]:
    """Return the searches of these settings, with this many seeds at their optima."""
    chosen = [
        (sweep, tuple(setting for setting in sweep.settings if setting in settings))
        for sweep in (search_of(stage).sweep for stage in stages)
    ]
    return [SweepStage(replace(sweep, settings=some, loss_seeds=seeds)) for sweep, some in chosen if some]


def _tune(stage: TuneStage, results: Results, driver: Driver) -> list[str]:
    """Tune constants and keep them in the study; return what is missing."""
    spec, tuning = stage.spec, stage.tuning
    tried = run_tuning(tuning, spec, driver, SweepData(spec), label=results.label(stage.part))
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
