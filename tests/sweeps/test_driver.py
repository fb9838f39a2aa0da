"""The driver: nothing is computed twice, whoever computes, and nothing that goes wrong is lost or hidden."""

import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sweeps.tiny import TINY, results
from widthwise.search.lattice import AdaptiveSearch, Grid
from widthwise.study import Outcome, Study
from widthwise.study.axes import AXES
from widthwise.study.fits import fit_rows
from widthwise.study.setting import Setting
from widthwise.sweeps import driver as driver_module
from widthwise.sweeps.carry_out import Job, run_sweeps
from widthwise.sweeps.driver import DeviceError, Driver
from widthwise.sweeps.executors import Inline, Processes
from widthwise.sweeps.packs import Pack, plan
from widthwise.sweeps.progress import SweepProgress
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.sweep import Sweep
from widthwise.sweeps.worker import train_pack
from widthwise.theory import Global

DATA = SweepData(TINY)
GLOBAL, FULL = Setting(rates=Global()), Setting()
SWEEP = Sweep(
    base=TINY, widths=(16, 32), settings=(GLOBAL, FULL), seeds=(0, 1), search=Grid(lowest=2**-7, highest=2**-6)
)
"""Two widths, two settings that coincide at the smaller one, two seeds, three rates: 18 runs under 24 names."""


def carried_out(study: Study, executor=None, sweep: Sweep = SWEEP, **options):
    driver = Driver(study, executor or Inline(), **options)
    return run_sweeps([Job(sweep=sweep, data=DATA)], driver)[0], driver.progress


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with Study.open(folder) as study:
        _, progress = carried_out(study)
    assert (progress.trained, progress.done, progress.wanted) == (18, 18, 18)
    return folder


def test_runs_are_shown_under_each_name_and_computed_once(undisturbed):
    with Study.open(undisturbed) as study:
        rows = study.runs(label=SWEEP.id)
        assert len(rows) == 24
        assert len({row.run for row in rows}) == 18
        assert {row.status for row in rows} == {"finished"}
        assert study.get(f"sweep/{SWEEP.id}") == SWEEP.to_json()
        fits = fit_rows(rows)
    assert [fit.setting for fit in fits] == [GLOBAL, FULL]
    assert all(fit.where == {} for fit in fits)


@pytest.mark.parametrize(("axis", "values", "size"), [("batch", (4, 8), "batch"), ("together", (16, 32), "width")])
def test_the_best_loss_is_shown_with_the_size_along_the_axis_of_its_sweep(tmp_path, axis, values, size):
    sweep = replace(SWEEP, axis=axis, widths=(), values=values, settings=(FULL,), seeds=(0,))
    data = SweepData(TINY)
    with Study.open(tmp_path) as study:
        runs = [data.run(replace(TINY, **AXES[axis].change(vars(TINY), value)), **sweep.names) for value in values]
        study.ask(runs)
        losses = dict(zip((run.id for run in runs), (3.0, 2.0), strict=True))
        study.record([Outcome(run=run, status="finished", results={"eval_loss": x}) for run, x in losses.items()])
        driver = Driver(study, Inline())
        assert driver.compute(runs) == losses
    assert driver.progress.best == (2.0, f"{size} {values[1]}")


def test_what_is_known_is_not_computed_again(undisturbed):
    with Study.open(undisturbed) as study:
        before = results(study)
        _, progress = carried_out(study, sweep=replace(SWEEP, settings=(FULL,), seeds=(1,)))
        assert (progress.trained, progress.done) == (0, 6)
        assert results(study) == before


def test_processes_give_the_rows_of_this_process(undisturbed, tmp_path):
    sweep = replace(SWEEP, widths=(16,), seeds=(0,))
    with Study.open(tmp_path) as study, Processes(2) as executor:
        _, progress = carried_out(study, executor, sweep)
        assert progress.trained == 3
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
    timed = {"wall_seconds", "step_seconds", "compile_seconds"}
    assert {"widthwise", "jax", "device", "data", "lanes", *timed} == set(details.provenance)
    assert 0 < 20 * details.provenance["step_seconds"] < details.provenance["wall_seconds"]  # the second chunk
    assert details.provenance["data"]["source"] == "stdlib"
    assert row.results["parameters"] == 12 * 16**2 + (2 * 257 + 16 + 3) * 16


def test_alignment_is_measured_where_wanted():
    outcomes = train_pack(_pack(probe=True), lambda _: False)
    assert outcomes is not None
    measured = {name: steps for name, (steps, _) in outcomes[0].curves.items() if name.startswith("alignment/")}
    assert any(name.startswith("alignment/blocks") or "readout" in name for name in measured)
    assert set(map(tuple, measured.values())) == {(0, 1, 2, 4, 8, 16, 32, 40)}


def test_a_run_trained_without_measuring_does_not_stand_in_for_one_that_measures(tmp_path):
    plain, probed = (DATA.run(TINY, probe=probe) for probe in (False, True))
    assert plain.id != probed.id
    with Study.open(tmp_path) as study:
        driver = Driver(study, Inline())
        losses = driver.compute([plain]) | driver.compute([probed])
        assert driver.progress.trained == 2
        assert any(name.startswith("alignment/") for name in study.curves([probed.id])[probed.id])
    assert losses[plain.id] == losses[probed.id]


@pytest.mark.parametrize("octave", [60.0, 10.0])
def test_a_rate_that_diverges_is_an_outcome_and_ends_the_search_there(tmp_path, octave):
    """The loss overflows, or it is finite and so large that the rest of the training would be wasted."""
    sweep = Sweep(
        base=replace(TINY, learning_rate=2**octave), search=Grid(lowest=2**octave, highest=2 ** (octave + 0.5))
    )
    with Study.open(tmp_path) as study:
        (found,), progress = carried_out(study, sweep=sweep)
        rows = study.runs()
        assert [row.status for row in rows] == ["diverged", "diverged"]
        for row in rows:
            assert row.results["steps"] == study.curves([row.run])[row.run]["train_loss"].steps[-1] < TINY.steps
            assert math.isnan(row.results["eval_loss"])
        # A second look counts them again, and computes nothing.
        assert carried_out(study, sweep=sweep)[1].trained == 0
    assert progress.diverged == progress.trained == 2
    assert "every rate diverged" in found.missing[0]


def test_the_next_width_starts_where_the_theory_sends_the_optimum(tmp_path, monkeypatch):
    """Losses are made up: the optimum is at 2^-4, and four times the width wants 4^-1 of it with a global rate."""
    asked: list[tuple[str, int, float]] = []

    def compute(self, runs, *, until):
        rates = {one.id: math.log2(one.spec.learning_rate) for one in runs}
        asked.extend((one.spec.alignment, one.spec.width, rates[one.id]) for one in runs)
        return {run: 1 + (octave + 4) ** 2 for run, octave in rates.items()}

    monkeypatch.setattr(Driver, "compute", compute)
    sweep = replace(
        SWEEP, base=replace(TINY, learning_rate=2**-4), widths=(16, 64), seeds=(), search=AdaptiveSearch(reach=1)
    )
    with Study.open(tmp_path) as study:
        findings, _ = carried_out(study, sweep=sweep)
    first = {(setting, width): [] for setting in ("global", "full") for width in (16, 64)}
    for setting, width, octave in asked:
        first[setting, width].append(octave)
    assert first["global", 16][:3] == [-5, -4, -3]
    assert first["global", 64][:3] == [-7, -6, -5]
    assert first["full", 64][:3] == [-5, -4, -3]
    ended = [(found.setting.rates.name, search.width) for found in findings for search in found.searches]
    assert ended == [*first]


def test_sweeps_carried_out_together_share_rounds_and_keep_their_labels(tmp_path, monkeypatch):
    """Losses are made up."""
    rounds: list[int] = []

    def compute(self, runs, *, until):
        rounds.append(len(runs))
        return {one.id: 1 + (math.log2(one.spec.learning_rate) + 6) ** 2 for one in runs}

    monkeypatch.setattr(Driver, "compute", compute)
    first = replace(SWEEP, settings=(GLOBAL,), seeds=(0,), search=Grid(lowest=2**-7, highest=2**-5))
    second = replace(first, settings=(FULL,))
    with Study.open(tmp_path / "together") as study:
        jobs = [Job(sweep=sweep, data=DATA, label=label) for sweep, label in ((first, "first"), (second, "second"))]
        together = run_sweeps(jobs, Driver(study, Inline()))
        assert [{row.spec["alignment"] for row in study.runs(label=job.label)} for job in jobs] == [
            {"global"},
            {"full"},
        ]
    shared = len(rounds)
    with Study.open(tmp_path / "alone") as study:
        alone = [run_sweeps([Job(sweep=sweep, data=DATA)], Driver(study, Inline()))[0] for sweep in (first, second)]
    assert together == alone
    assert len(rounds) - shared == 2 * shared


def test_a_rate_is_judged_by_all_seeds_and_one_that_diverges_is_enough(tmp_path, monkeypatch):
    """Losses are made up: seed 1 diverges above 2^-6.5, seed 0 does not, and its own optimum lies elsewhere."""

    def compute(self, runs, *, until):
        found = {}
        for one in runs:
            octave, seed = math.log2(one.spec.learning_rate), one.spec.seed
            found[one.id] = math.nan if seed and octave > -6.5 else 1 + (octave + (9 if seed else 6)) ** 2 / 99
        return found

    monkeypatch.setattr(Driver, "compute", compute)
    sweep = replace(SWEEP, widths=(16,), settings=(FULL,), search=Grid(lowest=2**-9, highest=2**-5))
    with Study.open(tmp_path) as study:
        ((found,), _) = carried_out(study, sweep=sweep)
    (search,) = found.searches
    proposal = search.proposal
    assert (proposal.optimum, proposal.largest_stable, proposal.smallest_unstable) == (-15, -13, -12)


def test_a_pack_that_fails_is_said_once_and_the_next_command_tries_it_again(tmp_path, monkeypatch):
    tried: list[Pack] = []

    def fail(pack, tell):
        tried.append(pack)
        if pack.specs[0].width == 32:
            raise RuntimeError("out of memory")
        return train_pack(pack, tell)

    said: list[str] = []
    sweep = replace(SWEEP, settings=(GLOBAL,), seeds=(0,))
    with Study.open(tmp_path) as study:
        monkeypatch.setattr(driver_module, "train_pack", fail)
        (found,), progress = carried_out(study, sweep=sweep, say=said.append)
        assert (len(tried), progress.trained) == (6, 3)
        assert [search.width for search in found.searches] == [16]
        assert any("a run failed, and the search ended there after 6 runs" in line for line in found.missing)
        assert said == progress.failed == ["1 run of width 32 failed: RuntimeError: out of memory"] * 3
        assert study.counts()["failed"] == 3
        monkeypatch.undo()
        _, progress = carried_out(study, sweep=sweep)
        assert (progress.trained, progress.failed, study.counts()["finished"]) == (3, [], 6)


def test_data_that_is_not_what_the_driver_expected_fails_clearly():
    with pytest.raises(ValueError, match="expected the same data and versions as where the sweep was started"):
        train_pack(replace(_pack(), ids=("0123456789abcdef",)), lambda _: False)


def test_two_commands_share_the_work(tmp_path):
    sweep = replace(SWEEP, settings=(GLOBAL,))
    progresses: list[SweepProgress] = []

    def command() -> None:
        with Study.open(tmp_path) as study:
            progresses.append(carried_out(study, sweep=sweep)[1])

    threads = [threading.Thread(target=command) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(progress.trained for progress in progresses) == 12
    assert all(progress.trained > 0 for progress in progresses)
    assert all(progress.done == 12 for progress in progresses)


def test_no_more_is_claimed_than_can_be_computed_now(tmp_path):
    claimed: list[int] = []
    with Study.open(tmp_path) as study:
        driver = Driver(study, Inline(), show=lambda _: claimed.append(study.counts()["running"]))
        driver.compute([DATA.run(replace(TINY, seed=seed)) for seed in range(4)])
    assert max(claimed) == 1


def test_what_another_command_holds_is_waited_for_and_taken_over_when_its_lease_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "POLL_SECONDS", 0.05)
    wanted = [DATA.run(replace(TINY, seed=seed)) for seed in (0, 1)]
    with Study.open(tmp_path) as other, Study.open(tmp_path) as study:
        other.ask(wanted)
        other.claim([one.id for one in wanted], seconds=1.0)
        other.record([Outcome(run=wanted[0].id, status="finished", results={"eval_loss": 1.5})])
        seen: list[int] = []
        driver = Driver(study, Inline(), show=lambda progress: seen.append(progress.elsewhere))
        began = time.monotonic()
        losses = driver.compute(wanted)
        assert time.monotonic() - began > 0.5
    assert losses[wanted[0].id] == 1.5
    assert 0 < losses[wanted[1].id] < 6
    assert driver.progress.trained == 1
    assert 1 in seen


def test_leases_are_kept_as_long_as_something_is_heard(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "RENEW_SECONDS", 0.0)
    renewed: list[float] = []
    monkeypatch.setattr(Study, "renew", lambda self, *, seconds: renewed.append(seconds))
    with Study.open(tmp_path) as study:
        Driver(study, Inline()).compute([DATA.run(TINY)])
    assert renewed
    assert set(renewed) == {driver_module.LEASE_SECONDS}


def test_checkpoints_that_a_killed_driver_left_of_finished_runs_are_deleted(tmp_path):
    ended, waiting = (DATA.run(replace(TINY, seed=seed)) for seed in (0, 1))
    with Study.open(tmp_path) as study:
        study.ask([ended, waiting])
        study.record([Outcome(run=ended.id, status="finished", results={"eval_loss": 1.5})])
        folders = [study.folder_for(plan([one])[0].key) for one in (ended, waiting)]
        for folder in [*folders, study.folder_for("something-else")]:
            folder.mkdir(parents=True)
        Driver(study, Inline())
    assert [folder.exists() for folder in folders] == [False, True]
    assert study.folder_for("something-else").exists()


@pytest.fixture
def device(monkeypatch):
    """Stand in for an accelerator that answers what it is, and how many runs it has memory for."""
    answers = {"kind": "H200, 139 GiB", "fit": 2, "asked": 0}

    def fit(pack, tell):
        answers["asked"] += 1
        return answers["fit"]

    monkeypatch.setattr(driver_module, "describe_device", lambda _, tell: answers["kind"])
    monkeypatch.setattr(driver_module, "lanes_that_fit", fit)
    return answers


def seeds(*seeds):
    return [DATA.run(replace(TINY, seed=seed)) for seed in seeds]


def test_a_device_is_asked_once_how_many_runs_fit(tmp_path, device):
    with Study.open(tmp_path) as study:
        Driver(study, Inline(), most_lanes=8).compute(seeds(0, 1, 2))
        assert [study.details(run.id).provenance["lanes"] for run in seeds(0, 1, 2)] == [2, 2, 1]
        Driver(study, Inline(), most_lanes=8).compute(seeds(3, 4))
    assert device["asked"] == 1


def test_another_device_is_asked_again(tmp_path, device, monkeypatch):
    packs: list[Pack] = []
    monkeypatch.setattr(driver_module, "train_pack", lambda pack, tell: packs.append(pack) or _made_up(pack))
    with Study.open(tmp_path) as study:
        Driver(study, Inline(), most_lanes=8).compute(seeds(0, 1))
        device |= {"kind": "T4, 15 GiB", "fit": 1}
        Driver(study, Inline(), most_lanes=8).compute(seeds(2, 3))
    assert [len(pack.ids) for pack in packs] == [2, 1, 1]
    assert device["asked"] == 2


def test_a_pack_that_runs_out_of_memory_is_halved_and_the_study_remembers(tmp_path, device, monkeypatch):
    """Six fit by what the device said, two in fact."""
    sizes: list[int] = []

    def train(pack, tell):
        sizes.append(len(pack.ids))
        if len(pack.ids) > 2:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 24 GiB")
        return _made_up(pack)

    monkeypatch.setattr(driver_module, "train_pack", train)
    device["fit"] = 6
    said: list[str] = []
    with Study.open(tmp_path) as study:
        driver = Driver(study, Inline(), most_lanes=8, say=said.append)
        assert len(driver.compute(seeds(*range(12)))) == 12
        assert (driver.progress.failed, driver.progress.trained) == ([], 12)
        # Six, halved to three, halved to one; the six that waited are split before they are tried.
        assert sizes == [6, 3, *[1] * 12]
        assert len(said) == 2
        Driver(study, Inline(), most_lanes=8).compute(seeds(12, 13))
    assert sizes[14:] == [1, 1]
    assert device["asked"] == 1


def test_a_pack_that_fails_late_does_not_raise_the_number_that_fits(tmp_path, device, monkeypatch):
    """Two packs of six are in flight; the second runs out of memory after the first was halved."""
    sizes: list[int] = []

    def train(pack, tell):
        sizes.append(len(pack.ids))
        if len(pack.ids) > 3:
            raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")
        return _made_up(pack)

    class TwoAtATime(Inline):
        @property
        def capacity(self) -> int:
            return 2

    monkeypatch.setattr(driver_module, "train_pack", train)
    device["fit"] = 6
    with Study.open(tmp_path) as study:
        assert len(Driver(study, TwoAtATime(), most_lanes=8).compute(seeds(*range(12)))) == 12
    assert sizes == [6, 6, 3, 3, 3, 3]


def test_a_device_that_fails_ends_the_command_and_no_run_is_to_blame(tmp_path, device, monkeypatch):
    trained: list[str] = []

    def train(pack, tell):
        if trained:
            raise RuntimeError("INTERNAL: CUDA error: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")
        trained.extend(pack.ids)
        return _made_up(pack)

    monkeypatch.setattr(driver_module, "train_pack", train)
    with Study.open(tmp_path) as study:
        with pytest.raises(DeviceError, match=r"run the same command to resume: .*LAUNCH_FAILED"):
            Driver(study, Inline(), most_lanes=8).compute(seeds(*range(6)))
        assert {status: count for status, count in study.counts().items() if count} == {"finished": 2, "waiting": 4}
        monkeypatch.setattr(driver_module, "train_pack", lambda pack, tell: _made_up(pack))
        assert len(Driver(study, Inline(), most_lanes=8).compute(seeds(*range(6)))) == 6


def test_a_device_that_cannot_be_asked_trains_one_run_at_a_time(tmp_path, monkeypatch):
    def fail(_, tell):
        raise RuntimeError("no device")

    sizes: list[int] = []
    monkeypatch.setattr(driver_module, "describe_device", fail)
    monkeypatch.setattr(driver_module, "train_pack", lambda pack, tell: sizes.append(len(pack.ids)) or _made_up(pack))
    said: list[str] = []
    with Study.open(tmp_path) as study:
        Driver(study, Inline(), most_lanes=8, say=said.append).compute(seeds(0, 1))
    assert sizes == [1, 1]
    assert "training one at a time: RuntimeError: no device" in said[0]


def _made_up(pack: Pack) -> list[Outcome]:
    return [Outcome(run=run, status="finished", results={"eval_loss": 1.5}) for run in pack.ids]


def _pack(*, probe: bool = False) -> Pack:
    return Pack.of([DATA.run(TINY, probe=probe)])
