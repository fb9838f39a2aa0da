"""The driver: nothing is computed twice, whoever computes, and nothing that goes wrong is lost or hidden."""

import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sweep.tiny import TINY, results
from widthwise.sweep import Outcome, Study
from widthwise.sweep import driver as driver_module
from widthwise.sweep.driver import Driver
from widthwise.sweep.executors import Inline, Processes
from widthwise.sweep.fits import fit_rows
from widthwise.sweep.packs import Wants, plan
from widthwise.sweep.rounds import Job, run_sweep, run_sweeps
from widthwise.sweep.search import Grid, Search
from widthwise.sweep.standing import Standing
from widthwise.sweep.sweep import Sweep
from widthwise.sweep.work import Task, train_pack

pytestmark = pytest.mark.usefixtures("compilations")

WANTS = Wants(TINY)
SWEEP = Sweep(
    base=TINY, widths=(16, 32), settings=("global", "full"), seeds=(0, 1), search=Grid(lowest=2**-7, highest=2**-6)
)
"""Two widths, two settings that coincide at the smaller one, two seeds, three rates: 18 runs under 24 names."""


def carried_out(study: Study, executor=None, sweep: Sweep = SWEEP, **options):
    driver = Driver(study, executor or Inline(), **options)
    return run_sweep(sweep, driver, WANTS), driver.standing


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with Study.open(folder) as study:
        _, standing = carried_out(study)
    assert (standing.trained, standing.done, standing.wanted) == (18, 18, 18)
    return folder


def test_runs_are_shown_under_each_name_and_computed_once(undisturbed):
    with Study.open(undisturbed) as study:
        rows = study.runs(label=SWEEP.id)
        assert len(rows) == 24
        assert len({row.run for row in rows}) == 18
        assert {row.status for row in rows} == {"finished"}
        assert study.get(f"sweep/{SWEEP.id}") == SWEEP.to_json()
        fits = fit_rows(rows)
    assert [fit.names["setting"] for fit in fits] == ["global", "full"]
    assert all(fit.where == {} for fit in fits)


def test_what_is_known_is_not_computed_again(undisturbed):
    with Study.open(undisturbed) as study:
        before = results(study)
        _, standing = carried_out(study, sweep=replace(SWEEP, settings=("full",), seeds=(1,)))
        assert (standing.trained, standing.done) == (0, 6)
        assert results(study) == before


def test_processes_give_the_rows_of_this_process(undisturbed, tmp_path):
    sweep = replace(SWEEP, widths=(16,), seeds=(0,))
    with Study.open(tmp_path) as study, Processes(2) as executor:
        _, standing = carried_out(study, executor, sweep)
        assert standing.trained == 3
        there = results(study)
    with Study.open(undisturbed) as study:
        assert set(there) <= set(results(study))


def test_a_run_brings_its_curves_and_where_it_comes_from(undisturbed):
    with Study.open(undisturbed) as study:
        row = study.runs()[0]
        curves, details = study.curves([row.run])[row.run], study.details(row.run)
    assert set(curves) == {
        "train_loss",
        "eval_loss",
        *(f"{what}/{role}" for what in ("params", "gradients") for role in ("embedding", "hidden", "readout")),
    }
    assert curves["train_loss"].steps.tolist() == list(range(40))
    assert curves["eval_loss"].steps.tolist() == [20, 40]
    assert curves["eval_loss"].values[-1] == row.results["eval_loss"]
    assert {"widthwise", "jax", "device", "data", "lanes", "wall_seconds"} == set(details.provenance)
    assert details.provenance["data"]["source"] == "stdlib"
    assert row.results["parameters"] == 12 * 16**2 + (2 * 257 + 16 + 3) * 16


def test_alignment_is_measured_where_wanted():
    outcomes = train_pack(_task(probe=True), lambda _: False)
    assert outcomes is not None
    measured = {name: steps for name, (steps, _) in outcomes[0].curves.items() if name.startswith("alignment/")}
    assert any(name.startswith("alignment/blocks") or "readout" in name for name in measured)
    assert set(map(tuple, measured.values())) == {(0, 1, 2, 4, 8, 16, 32, 40)}


def test_a_run_trained_without_measuring_does_not_stand_in_for_one_that_measures(tmp_path):
    plain, probed = (WANTS.want(TINY, probe=probe) for probe in (False, True))
    assert plain.id != probed.id
    with Study.open(tmp_path) as study:
        driver = Driver(study, Inline())
        losses = driver.compute([plain]) | driver.compute([probed])
        assert driver.standing.trained == 2
        assert any(name.startswith("alignment/") for name in study.curves([probed.id])[probed.id])
    assert losses[plain.id] == losses[probed.id]


def test_a_rate_that_diverges_is_an_outcome_and_ends_the_search_there(tmp_path):
    sweep = Sweep(base=replace(TINY, learning_rate=2.0**60), search=Grid(lowest=2.0**60, highest=2.0**60.5))
    with Study.open(tmp_path) as study:
        (finding,), standing = carried_out(study, sweep=sweep)
        assert [row.status for row in study.runs()] == ["diverged", "diverged"]
        # A second look counts them again, and computes nothing.
        assert carried_out(study, sweep=sweep)[1].trained == 0
    assert standing.diverged == standing.trained == 2
    assert "every rate diverged" in finding.proposal.missing[0]


def test_the_next_width_starts_where_the_theory_sends_the_optimum(tmp_path, monkeypatch):
    """Losses are made up: the optimum is at 2^-4, and four times the width wants 4^-1 of it with a global rate."""
    asked: list[tuple[str, int, float]] = []

    def compute(self, wanted):
        rates = {one.id: math.log2(one.run.spec.learning_rate) for one in wanted}
        asked.extend((one.run.spec.alignment, one.run.spec.width, rates[one.id]) for one in wanted)
        return {run: 1 + (octave + 4) ** 2 for run, octave in rates.items()}

    monkeypatch.setattr(Driver, "compute", compute)
    sweep = replace(SWEEP, base=replace(TINY, learning_rate=2**-4), widths=(16, 64), seeds=(), search=Search(reach=1))
    with Study.open(tmp_path) as study:
        findings, _ = carried_out(study, sweep=sweep)
    first = {(setting, width): [] for setting in ("global", "full") for width in (16, 64)}
    for setting, width, octave in asked:
        first[setting, width].append(octave)
    assert first["global", 16][:3] == [-5, -4, -3]
    assert first["global", 64][:3] == [-7, -6, -5]
    assert first["full", 64][:3] == [-5, -4, -3]
    assert [(finding.group.spec.setting, finding.width) for finding in findings] == [*first]


def test_sweeps_carried_out_together_share_rounds_and_keep_their_labels(tmp_path, monkeypatch):
    """Losses are made up."""
    rounds: list[int] = []

    def compute(self, wanted):
        rounds.append(len(wanted))
        return {one.id: 1 + (math.log2(one.run.spec.learning_rate) + 6) ** 2 for one in wanted}

    monkeypatch.setattr(Driver, "compute", compute)
    first = replace(SWEEP, settings=("global",), seeds=(0,), search=Grid(lowest=2**-7, highest=2**-5))
    second = replace(first, settings=("full",))
    with Study.open(tmp_path / "together") as study:
        jobs = [Job(sweep=sweep, wants=WANTS, label=label) for sweep, label in ((first, "first"), (second, "second"))]
        together = run_sweeps(jobs, Driver(study, Inline()))
        assert [{row.spec["alignment"] for row in study.runs(label=job.label)} for job in jobs] == [
            {"global"},
            {"full"},
        ]
    shared = len(rounds)
    with Study.open(tmp_path / "alone") as study:
        alone = [run_sweep(sweep, Driver(study, Inline()), WANTS) for sweep in (first, second)]
    assert together == alone
    assert len(rounds) - shared == 2 * shared


def test_a_rate_is_judged_by_all_seeds_and_one_that_diverges_is_enough(tmp_path, monkeypatch):
    """Losses are made up: seed 1 diverges above 2^-6.5, seed 0 does not, and its own optimum lies elsewhere."""

    def compute(self, wanted):
        found = {}
        for one in wanted:
            octave, seed = math.log2(one.run.spec.learning_rate), one.run.spec.seed
            found[one.id] = math.nan if seed and octave > -6.5 else 1 + (octave + (9 if seed else 6)) ** 2 / 99
        return found

    monkeypatch.setattr(Driver, "compute", compute)
    sweep = replace(SWEEP, widths=(16,), settings=("full",), search=Grid(lowest=2**-9, highest=2**-5))
    with Study.open(tmp_path) as study:
        (finding,), _ = carried_out(study, sweep=sweep)
    proposal = finding.proposal
    assert (proposal.optimum, proposal.largest_stable, proposal.smallest_unstable) == (-15, -13, -12)


def test_a_pack_that_fails_is_said_once_and_the_next_command_tries_it_again(tmp_path, monkeypatch):
    tried: list[Task] = []

    def fail(task, tell):
        tried.append(task)
        if task.specs[0].width == 32:
            raise RuntimeError("out of memory")
        return train_pack(task, tell)

    said: list[str] = []
    sweep = replace(SWEEP, settings=("global",), seeds=(0,))
    with Study.open(tmp_path) as study:
        monkeypatch.setattr(driver_module, "train_pack", fail)
        _, standing = carried_out(study, sweep=sweep, say=said.append)
        assert (len(tried), standing.trained) == (6, 3)
        assert said == standing.failed == ["1 of width 32 failed: RuntimeError: out of memory"] * 3
        assert study.counts()["failed"] == 3
        monkeypatch.undo()
        _, standing = carried_out(study, sweep=sweep)
        assert (standing.trained, standing.failed, study.counts()["finished"]) == (3, [], 6)


def test_data_that_is_not_what_the_driver_expected_fails_clearly():
    with pytest.raises(ValueError, match="expected the same data and versions as where the sweep was started"):
        train_pack(replace(_task(), runs=("0123456789abcdef",)), lambda _: False)


def test_two_commands_share_the_work(tmp_path):
    sweep = replace(SWEEP, settings=("global",))
    standings: list[Standing] = []

    def command() -> None:
        with Study.open(tmp_path) as study:
            standings.append(carried_out(study, sweep=sweep)[1])

    threads = [threading.Thread(target=command) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(standing.trained for standing in standings) == 12
    assert all(standing.trained > 0 for standing in standings)
    assert all(standing.done == 12 for standing in standings)


def test_no_more_is_claimed_than_can_be_computed_now(tmp_path):
    claimed: list[int] = []
    with Study.open(tmp_path) as study:
        driver = Driver(study, Inline(), show=lambda _: claimed.append(study.counts()["running"]))
        driver.compute([WANTS.want(replace(TINY, seed=seed)) for seed in range(4)])
    assert max(claimed) == 1


def test_what_another_command_holds_is_waited_for_and_taken_over_when_its_lease_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "POLL_SECONDS", 0.05)
    wanted = [WANTS.want(replace(TINY, seed=seed)) for seed in (0, 1)]
    with Study.open(tmp_path) as other, Study.open(tmp_path) as study:
        other.ask([one.asked for one in wanted])
        other.claim([one.id for one in wanted], seconds=1.0)
        other.record([Outcome(run=wanted[0].id, status="finished", results={"eval_loss": 1.5})])
        seen: list[int] = []
        driver = Driver(study, Inline(), show=lambda standing: seen.append(standing.elsewhere))
        began = time.monotonic()
        losses = driver.compute(wanted)
        assert time.monotonic() - began > 0.5
    assert losses[wanted[0].id] == 1.5
    assert 0 < losses[wanted[1].id] < 6
    assert driver.standing.trained == 1
    assert 1 in seen


def test_leases_are_kept_as_long_as_something_is_heard(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "RENEW_SECONDS", 0.0)
    renewed: list[float] = []
    monkeypatch.setattr(Study, "renew", lambda self, *, seconds: renewed.append(seconds))
    with Study.open(tmp_path) as study:
        Driver(study, Inline()).compute([WANTS.want(TINY)])
    assert renewed
    assert set(renewed) == {driver_module.LEASE_SECONDS}


def test_checkpoints_that_a_killed_driver_left_of_finished_runs_are_deleted(tmp_path):
    ended, waiting = (WANTS.want(replace(TINY, seed=seed)) for seed in (0, 1))
    with Study.open(tmp_path) as study:
        study.ask([ended.asked, waiting.asked])
        study.record([Outcome(run=ended.id, status="finished", results={"eval_loss": 1.5})])
        folders = [study.folder_for(plan([one])[0].key) for one in (ended, waiting)]
        for folder in [*folders, study.folder_for("something-else")]:
            folder.mkdir(parents=True)
        Driver(study, Inline())
    assert [folder.exists() for folder in folders] == [False, True]
    assert study.folder_for("something-else").exists()


def test_a_device_is_asked_once_how_many_runs_fit(tmp_path, monkeypatch):
    asked: list[Task] = []
    monkeypatch.setattr(driver_module, "lanes_that_fit", lambda task, tell: asked.append(task) or 2)
    wanted = [WANTS.want(replace(TINY, seed=seed)) for seed in range(3)]
    with Study.open(tmp_path) as study:
        Driver(study, Inline(), most_lanes=8).compute(wanted)
        assert [study.details(one.id).provenance["lanes"] for one in wanted] == [2, 2, 1]
        Driver(study, Inline(), most_lanes=8).compute([WANTS.want(replace(TINY, seed=seed)) for seed in (3, 4)])
    assert len(asked) == 1


def _task(*, probe: bool = False) -> Task:
    wanted = WANTS.want(TINY, probe=probe)
    return Task(specs=(wanted.portable,), runs=(wanted.id,), probe=probe)
