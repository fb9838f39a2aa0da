"""A budget stops a sweep in time, and the same command with more goes on and ends where it would have ended."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.sweeps.simulated import Landscape, Pretended
from tests.sweeps.tiny import TINY, results
from widthwise.fit.design import Sample
from widthwise.search.lattice import Grid
from widthwise.study import Outcome, Setting, Study
from widthwise.sweeps import budget as budget_module
from widthwise.sweeps import driver as driver_module
from widthwise.sweeps.budget import Account, Budget
from widthwise.sweeps.carry_out import GroupResult, Job, run_sweeps
from widthwise.sweeps.driver import Driver
from widthwise.sweeps.executors import Inline
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.sweep import Sweep
from widthwise.theory import Global

DATA = SweepData(TINY)
SWEEP = Sweep(
    base=replace(TINY, learning_rate=2**-6), widths=(16, 32, 64), settings=(Setting(rates=Global()),), precision=0.2
)
BOTH = replace(SWEEP, settings=(Setting(), Setting(rates=Global())))


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("90s", Budget(seconds=90)),
        ("20m", Budget(seconds=1200)),
        (" 1.5 H ", Budget(seconds=5400)),
        ("1 run", Budget(runs=1)),
        ("300runs", Budget(runs=300)),
        ("2e18 FLOPs", Budget(flops=2e18)),
        ("1E-3 flop", Budget(flops=1e-3)),
    ],
)
def test_a_budget_is_a_time_or_runs_or_flops(text: str, budget: Budget):
    assert Budget.read(text) == budget


@given(st.text() | st.from_regex(r"[-+0-9.e ]{0,6}(s|m|h|d|runs?|flops?|min)", fullmatch=True))
@example("")
@example("20")
@example("m")
@example("0m")
@example("-5 runs")
@example("nan runs")
@example("1e999 flops")
@example("1.2.3s")
@example("20m 30s")
@example("5d")
def test_anything_else_is_refused_in_one_line(text: str):
    budget, said = None, ""
    try:
        budget = Budget.read(text)
    except ValueError as error:
        said = str(error)
    if budget is None:
        assert said.startswith(f"budget is {text!r}: expected a time, runs or FLOPs")
        assert "\n" not in said
    else:
        limits = sorted(vars(budget).values())
        assert 0 < limits[0] < limits[1] == limits[2] == math.inf


def carry_out(driver: Pretended, sweep: Sweep = SWEEP, **limits: float) -> list[GroupResult]:
    job = Job(sweep=sweep, data=DATA, label="a")
    (found,) = run_sweeps([job], driver, account=Account(Budget(**limits)))  # pyright: ignore
    return found


def drawn(**limits: float) -> tuple[Pretended, GroupResult]:
    """Carry the sweep out on losses that are drawn, with this budget."""
    driver = Pretended(Landscape(exponent=-1.0, noise=0.01).loss)
    (found,) = carry_out(driver, **limits)
    return driver, found


def test_runs_stop_it_before_the_round_that_would_exceed_them():
    whole, ended = drawn()
    assert (ended.reached, ended.out_of, ended.runs) == ("precision", None, len(whole.rows))
    stops = {len(drawn(runs=most)[0].rows) for most in range(len(whole.rows))}
    assert len(stops) > 4  # after every round
    for before, after in itertools.pairwise(sorted({*stops, len(whole.rows)})):
        driver, found = drawn(runs=after - 1)
        assert (len(driver.rows), found.runs) == (before, before)
        if found.reached is None:
            assert found.out_of == "runs"
            assert any(f"out of runs after {before} runs" in line for line in found.missing)
        else:  # all that is left is to try the base's rate at the largest width
            assert (before, found.out_of, found.missing) == (len(whole.rows) - 1, None, [])
        assert list(driver.rows) == list(whole.rows)[:before]


@pytest.mark.parametrize("first", [{"runs": 4}, {"runs": 17}, {"flops": 4e9}])
def test_with_a_larger_budget_it_ends_like_one_that_never_stopped(first: dict[str, float]):
    whole, ended = drawn()
    driver, stopped = drawn(**first)
    assert stopped.out_of in ("runs", "FLOPs")
    trained = driver.trained
    (found,) = carry_out(driver, runs=len(whole.rows), flops=1e18)
    assert found == ended
    assert list(driver.rows) == list(whole.rows)
    assert driver.trained == len(whole.rows) > trained


def test_flops_are_those_of_all_runs_known_or_not():
    whole, _ = drawn()
    needed = sum(DATA.run(replace(TINY, width=row.spec["width"])).flops for row in whole.rows.values())
    assert drawn(flops=needed * 1.001)[1].out_of is None
    driver, found = drawn(flops=needed * 0.7)
    assert found.out_of == "FLOPs"
    assert len(driver.rows) < len(whole.rows)
    assert carry_out(driver, flops=needed * 0.7) == [found]


def test_sweeps_one_after_the_other_use_one_account():
    driver, account = Pretended(Landscape(exponent=-1.0, noise=0.01).loss), Account(Budget(runs=11))
    grid = Grid(lowest=2**-7, highest=2**-5)
    job = Job(sweep=replace(SWEEP, precision=None, search=grid, widths=(16, 32)), data=DATA, label="a")
    (once,), (again,) = (run_sweeps([job], driver, account=account)[0] for _ in range(2))  # pyright: ignore
    assert (once, once.out_of, len(driver.rows)) == (again, None, 10)
    assert account.admit(dict.fromkeys(("one", "two"), 1.0)) == "runs"
    assert account.admit({"one": 1.0}) is None


def test_runs_that_settings_share_count_once_and_a_setting_that_fits_goes_on():
    driver = Pretended(Landscape(exponent=-1.0, noise=0.01).loss)
    grid = replace(BOTH, precision=None, search=Grid(lowest=2**-7, highest=2**-5))
    both = carry_out(driver, grid, runs=5)
    assert [(found.out_of, len(found.searches)) for found in both] == [("runs", 1), ("runs", 1)]
    assert len(driver.rows) == 5  # both settings are one at the smallest width
    assert [found.out_of for found in carry_out(driver, grid, runs=20)] == [None, "runs"]
    assert [found.out_of for found in carry_out(driver, grid, runs=25)] == [None, None]


@pytest.fixture
def clock(monkeypatch):
    """Let every run take a second, and its loss be drawn."""
    now = SimpleNamespace(seconds=100.0)
    landscape = Landscape(exponent=-1.0, noise=0.01)

    def train(pack, tell):
        now.seconds += 1
        points = [Sample(spec.width, math.log2(spec.learning_rate), spec.seed) for spec in pack.specs]
        return [
            Outcome(run=run, status="finished", results={"eval_loss": landscape.loss(point), "train_loss": 1.0})
            for run, point in zip(pack.ids, points, strict=True)
        ]

    stopped = SimpleNamespace(monotonic=lambda: now.seconds, sleep=lambda seconds: None)
    for module in (driver_module, budget_module):
        monkeypatch.setattr(module, "time", stopped)
    monkeypatch.setattr(driver_module, "train_pack", train)
    return now


def in_study(study: Study, **limits: float) -> tuple[GroupResult, Driver]:
    driver = Driver(study, Inline())
    (found,) = carry_out(driver, **limits)  # pyright: ignore
    return found, driver


def test_time_stops_it_in_the_middle_of_a_round_and_the_same_command_goes_on(tmp_path, clock):
    with Study.open(tmp_path / "undisturbed") as study:
        ended, _ = in_study(study)
        expected = results(study)
    assert ended.reached
    with Study.open(tmp_path / "stopped") as study:
        first, driver = in_study(study, seconds=6.5)
        assert (first.out_of, driver.progress.trained) == ("time", 7)
        assert any("out of time after 5 runs, exponent unknown" in line for line in first.missing)
        assert (study.counts()["running"], study.counts()["failed"]) == (0, 0)
        second, driver = in_study(study, seconds=3.0)  # time counts from the start of each command
        assert (second.out_of, driver.progress.trained) == ("time", 3)
        third, driver = in_study(study, seconds=1000.0)
        assert driver.progress.trained == len(expected) - 10
        assert third == ended
        assert results(study) == expected
        # What is known takes no time.
        fourth, driver = in_study(study, seconds=1e-9)
        assert (fourth, driver.progress.trained) == (ended, 0)


@pytest.mark.parametrize("claiming", [0.0, 9.0])
def test_time_does_not_limit_what_is_computed_afterwards(tmp_path, clock, monkeypatch, claiming):
    """Time may run out after a run was claimed and before it began."""
    claim = Study.claim

    def slowly(self, *arguments, **options):
        clock.seconds += claiming
        return claim(self, *arguments, **options)

    monkeypatch.setattr(Study, "claim", slowly)
    with Study.open(tmp_path) as study:
        found, driver = in_study(study, seconds=0.5)
        assert (found.out_of, driver.progress.trained) == ("time", 0 if claiming else 1)
        assert study.counts()["running"] == 0
        afterwards = [DATA.run(replace(TINY, seed=seed)) for seed in (8, 9)]
        assert len(driver.compute(afterwards)) == 2
        assert {study.outcomes([run.id])[run.id][0] for run in afterwards} == {"finished"}
