"""A forecast counts what is left, along the path that the sweep will take, at the speed that is known."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sweeps.simulated import Landscape, Pretended
from tests.sweeps.tiny import TINY
from widthwise.fit.design import Sample
from widthwise.parameterize import Constants
from widthwise.search.lattice import AdaptiveSearch, Grid
from widthwise.study import Row, Setting
from widthwise.sweeps.carry_out import Job, run_sweeps
from widthwise.sweeps.forecast import Count, Held, Pace, count_sweep, fewest_points, forecast, runs_left, totals
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.speeds import Speed
from widthwise.sweeps.sweep import Sweep
from widthwise.theory import Aligned, Global

SWEEP = Sweep(base=replace(TINY, learning_rate=2**-6), widths=(16, 32), settings=(Setting(),), seeds=(0, 1))
KNOWN = {setting: Constants() for setting in (Setting(), Setting(rates=Global()), Setting(rates=Aligned("none")))}


def parabola(point: Sample) -> float:
    """Return a loss that is smallest at 2^-5."""
    return math.nan if point.octave > -2 else 2 + (point.octave + 5) ** 2 / 10


def carry_out(sweep: Sweep, loss: Callable[[Sample], float] = parabola, **limits: float) -> list[Row]:
    driver = Pretended(loss, **limits)
    run_sweeps([Job(sweep=sweep, data=SweepData(sweep.base), label="a")], driver)  # pyright: ignore
    return list(driver.rows.values())


def left(sweep: Sweep, rows: list[Row]) -> list[tuple[int, int, int]]:
    counts = count_sweep(sweep, vocabulary=257, constants=KNOWN, held=Held(rows))
    return [(count.fewest, count.most, count.known) for count in counts]


def test_the_fewest_and_the_most_rates_bound_a_search():
    assert fewest_points(AdaptiveSearch()) < AdaptiveSearch().most_points == 40
    assert fewest_points(AdaptiveSearch(max_points=6)) == 6
    grid = Grid(lowest=2**-3, highest=1)
    assert fewest_points(grid) == grid.most_points == 7


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
    assert all(fewest >= fewest_points(AdaptiveSearch()) for fewest, *_ in left(SWEEP, rows))
    assert left(replace(SWEEP, seeds=(2,)), rows) == [(fewest_points(AdaptiveSearch()), 40, 0)] * 2


def test_runs_of_seeds_that_are_not_asked_for_do_not_count():
    rows, one = carry_out(SWEEP), replace(SWEEP, seeds=(0,))
    assert left(one, rows) == left(one, [row for row in rows if row.spec["seed"] == 0])


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
    known = {Sample(32, -5.0, 0): 1.0}  # it may lie beside the path of the search
    fewest = 2 * fewest_points(AdaptiveSearch())
    assert runs_left(SWEEP, Setting(), known, float) == {16: (fewest, 80), 32: (fewest - 1, 80)}
    grid = replace(SWEEP, search=Grid(lowest=2**-6, highest=2**-4))
    assert runs_left(grid, Setting(), known, float) == {16: (10, 10), 32: (9, 9)}


PRECISE = replace(SWEEP, widths=(16, 32, 64), seeds=(0,), precision=0.25)
DRAWN = Landscape(exponent=0.0, noise=0.015, spread=0.1)


def test_a_sweep_that_reached_its_precision_has_nothing_left():
    rows = carry_out(PRECISE, DRAWN.loss)
    assert len({row.spec["seed"] for row in rows}) > 1
    counts = left(PRECISE, rows)
    assert [(fewest, most) for fewest, most, _ in counts] == [(0, 0)] * 3
    assert sum(known for *_, known in counts) == len(rows)
    assert sum(most for _, most, _ in left(replace(PRECISE, precision=0.09), rows)) > 0


@pytest.mark.parametrize("settings", [(Setting(),), (Setting(), Setting(rates=Global()))])
def test_a_precision_keeps_to_its_bounds_wherever_it_stands(settings):
    """Both settings compute the same at the smallest width, and choose runs of their own there."""
    sweep = replace(PRECISE, settings=settings)
    rows = carry_out(sweep, DRAWN.loss)
    assert left(sweep, [])[0] == (fewest_points(AdaptiveSearch(refine=0)), 40 * len(settings), 0)
    for trained in (0, 9, len(rows) // 2, len(rows) - 1):
        counts = left(sweep, rows[:trained])
        assert sum(known for *_, known in counts) == trained
        assert sum(fewest for fewest, *_ in counts) <= len(rows) - trained <= sum(most for _, most, _ in counts)


def test_what_runs_of_their_own_length_cost_is_the_same_to_the_forecast_and_to_the_sweep():
    sweep = replace(PRECISE, settings=(Setting(horizon="compute_optimal"),))
    rows = carry_out(sweep, DRAWN.loss)
    counts = count_sweep(sweep, vocabulary=257, constants=dict.fromkeys(sweep.settings, Constants()), held=Held(rows))
    assert [(count.most, count.known > 0) for count in counts] == [(0, True)] * 3


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
