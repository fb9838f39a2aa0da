"""A forecast counts what is left, along the path that the sweep will take, at the speed that is known."""

import math
from dataclasses import replace

import pytest

from tests.sweep.tiny import TINY
from widthwise.parameterize import Constants
from widthwise.sweep import Row, Setting
from widthwise.sweep.carry_out import Job, run_sweeps
from widthwise.sweep.forecast import (
    Count,
    Held,
    Pace,
    count_sweep,
    fewest_points,
    forecast,
    most_points,
    runs_left,
    totals,
)
from widthwise.sweep.requests import SweepData
from widthwise.sweep.search import Grid, Search
from widthwise.sweep.speeds import Speed
from widthwise.sweep.sweep import Sweep
from widthwise.theory import Aligned, Global

SWEEP = Sweep(base=replace(TINY, learning_rate=2**-6), widths=(16, 32), settings=(Setting(),), seeds=(0, 1))
KNOWN = {setting: Constants() for setting in (Setting(), Setting(rates=Global()), Setting(rates=Aligned("none")))}


class Pretended:
    """A driver that computes a loss from the learning rate, and a study that only keeps rows."""

    def __init__(self, *, most: float = math.inf) -> None:
        self.study, self.rows, self.most = self, {}, most

    def put(self, *_):
        """Keep no notes."""

    def ask(self, *_, label):
        """Keep no requests."""

    def compute(self, runs):
        """Return losses that are smallest at 2^-5, and fail once there are as many as there may be."""
        found = {}
        for run in runs:
            if len(self.rows) < self.most:
                rate = run.spec.learning_rate
                found[run.id] = math.nan if rate > 0.25 else 2 + (math.log2(rate) + 5) ** 2 / 10
                self.rows[run.id] = Row(run.request, run.id, "finished", {"eval_loss": found[run.id]})
        return found


def carry_out(sweep: Sweep, **limits: float) -> list[Row]:
    driver = Pretended(**limits)
    run_sweeps([Job(sweep=sweep, data=SweepData(sweep.base), label="a")], driver)  # pyright: ignore
    return list(driver.rows.values())


def left(sweep: Sweep, rows: list[Row]) -> list[tuple[int, int, int]]:
    counts = count_sweep(sweep, vocabulary=257, constants=KNOWN, held=Held(rows))
    return [(count.fewest, count.most, count.known) for count in counts]


def test_the_fewest_and_the_most_rates_bound_a_search():
    assert fewest_points(Search()) < most_points(Search()) == 40
    assert fewest_points(Search(max_points=6)) == 6
    grid = Grid(lowest=2**-3, highest=1)
    assert fewest_points(grid) == most_points(grid) == 7


def test_a_sweep_that_has_ended_has_nothing_left():
    rows = carry_out(SWEEP)
    assert [(fewest, most) for fewest, most, _ in left(SWEEP, rows)] == [(0, 0), (0, 0)]
    assert sum(known for *_, known in left(SWEEP, rows)) == len(rows)


@pytest.mark.parametrize("trained", [0, 3, 10, 15, 25])
def test_a_sweep_that_was_stopped_has_the_rest_left(trained):
    needed, rows = len(carry_out(SWEEP)), carry_out(SWEEP, most=trained)
    counts = left(SWEEP, rows)
    assert sum(known for *_, known in counts) == trained
    assert sum(fewest for fewest, *_ in counts) <= needed - trained <= sum(most for _, most, _ in counts)
    assert trained + sum(most for _, most, _ in counts) <= 2 * 2 * 40


def test_another_seed_needs_its_own_runs():
    rows = carry_out(replace(SWEEP, seeds=(0,)))
    assert all(fewest >= fewest_points(Search()) for fewest, *_ in left(SWEEP, rows))
    assert left(replace(SWEEP, seeds=(2,)), rows) == [(7, 40, 0)] * 2


def test_what_differs_in_anything_that_is_computed_is_not_known():
    rows = carry_out(SWEEP)
    for other in (replace(TINY, steps=41), replace(TINY, batch=4), replace(TINY, optimizer="sgd")):
        sweep = replace(SWEEP, base=replace(other, learning_rate=2**-6), settings=())
        assert [known for *_, known in left(sweep, rows)] == [0, 0]
    probed = count_sweep(SWEEP, vocabulary=257, constants=KNOWN, held=Held(rows), probe=True)
    assert [count.known for count in probed] == [0, 0]
    unknown = count_sweep(SWEEP, vocabulary=257, constants={}, held=Held(rows))
    assert [count.known for count in unknown] == [0, 0]


def test_at_the_base_width_runs_of_one_rule_are_known_to_all():
    rows = carry_out(SWEEP)
    other = replace(SWEEP, settings=(Setting(rates=Global()),))
    (fewest, most, known), (_, _, none) = left(other, rows)
    assert (fewest, most) == (0, 0)
    assert known > 0 == none


def test_runs_outside_a_grid_are_not_part_of_it():
    rows = carry_out(replace(SWEEP, search=Grid(lowest=2**-6, highest=2**-4)))
    narrow = replace(SWEEP, search=Grid(lowest=2**-7, highest=2**-6))
    assert left(narrow, rows) == [(4, 4, 2)] * 2


def test_a_width_that_comes_after_one_that_is_not_done_is_counted_by_its_bounds():
    known = {16: {}, 32: {-10: [1.0]}}
    assert runs_left(SWEEP, Setting(), known) == {16: (14, 80), 32: (13, 79)}


def count(width: int, *, runs: int = 10) -> Count:
    return Count(spec=replace(TINY, width=width), vocabulary=257, fewest=runs, most=runs)


def speed(of: Count, *, reached: float, compiling: float = 0.0) -> Speed:
    return Speed(flops_per_step=of.flops_per_step, flops_per_second=reached, compile_seconds=compiling)


def test_time_follows_an_assumed_speed_where_none_is_known():
    small, large = count(16), count(64, runs=1)
    found = forecast([small, large], Pace(at_a_time=2, assumed=1e9))
    assert found.least.seconds == pytest.approx((10 * small.flops + large.flops) / 1e9)
    assert (found.compile_seconds, found.measured) == (None, False)


def test_speeds_are_interpolated_between_sizes_and_shared_by_workers():
    small, middle, large = count(16), count(32), count(64)
    speeds = (speed(small, reached=1e9, compiling=2.0), speed(large, reached=4e9, compiling=4.0))
    pace = Pace(at_a_time=2, assumed=1.0, speeds=speeds)
    assert pace.seconds(small) == pytest.approx(small.flops / 2e9)
    assert pace.seconds(large) == pytest.approx(large.flops / 8e9)
    assert middle.flops / 8e9 < pace.seconds(middle) < middle.flops / 2e9
    found = forecast([small, replace(small, part="again"), large], pace)
    assert found.compile_seconds == pytest.approx(2.0 + 4.0)  # of two programs
    training, _ = totals([small, small, large], pace)
    assert found.least.seconds == pytest.approx(training.seconds + 6.0)


def test_nothing_left_takes_no_time():
    known = replace(count(16), fewest=0, most=0, known=10)
    found = forecast([known], Pace(at_a_time=1, assumed=1.0, speeds=(speed(known, reached=1.0, compiling=9.0),)))
    assert (found.least.seconds, found.most.seconds, found.searches, found.known) == (0, 0, 0, 10)
