"""The optimal learning rates of widths, from curves whose optimum is known."""

import math

import numpy as np
import pytest

from tests.fit.sweeps import Shape, simulate
from widthwise.fit import Optimum, Trial, curves, find_optima

EXACT = Shape(noise=1e-9, cliff=math.inf, end=math.inf)


def optimum(trials: list[Trial]) -> Optimum:
    (found,) = find_optima(curves(trials)).each
    return found


def at(learning_rate: float, loss: float, seed: int = 0) -> Trial:
    return Trial(width=64, learning_rate=learning_rate, eval_loss=loss, seed=seed)


@pytest.mark.parametrize("start", [-8.0, -8.1, -8.25, -8.4])
def test_an_optimum_between_the_points_of_the_grid_is_found(start: float):
    found = optimum(simulate(np.random.default_rng(0), widths=1, shape=EXACT, start=start))
    assert found.octaves.value == pytest.approx(start, abs=0.01)
    assert found.curvature.value == pytest.approx(0.04, rel=0.02)
    assert found.eval_loss == pytest.approx(4.0, rel=0.01)
    assert found.interior


@pytest.mark.parametrize("shape", [Shape(), Shape(cliff=0.75, end=2.0), Shape(cliff=math.inf, end=1.0)], ids=str)
def test_a_cliff_does_not_push_the_optimum_away(shape: Shape):
    rng = np.random.default_rng(1)
    found = [optimum(simulate(rng, widths=1, shape=shape)).octaves.value for _ in range(30)]
    assert np.median(found) == pytest.approx(-8.3, abs=0.08)


@pytest.mark.parametrize("seeds", [1, 3])
def test_intervals_of_one_width_hold_the_optimum(seeds: int):
    rng = np.random.default_rng(2)
    shape = Shape(cliff=2.5)
    found = [optimum(simulate(rng, widths=1, seeds=seeds, spread=0.15, shape=shape)).octaves for _ in range(100)]
    assert np.mean([each.contains(-8.3) for each in found]) >= 0.9
    assert np.median([each.half_width for each in found]) < 0.6


def test_the_spread_over_seeds_enters_the_interval():
    rng = np.random.default_rng(3)
    quiet = Shape(noise=5e-4)
    far, near = (
        [optimum(simulate(rng, widths=1, seeds=3, spread=spread, shape=quiet)) for _ in range(40)]
        for spread in (0.3, 0.0)
    )
    assert np.mean([each.octaves.contains(-8.3) for each in far]) >= 0.85
    assert np.median([each.octaves.half_width for each in far]) > 2 * np.median(
        [each.octaves.half_width for each in near]
    )
    assert far[0].seeds == 3


def test_seeds_tried_only_around_the_optimum_narrow_the_interval():
    rng = np.random.default_rng(4)
    reach: list[tuple[float, float]] = []
    for _ in range(15):
        trials = simulate(rng, widths=1, seeds=5)
        near = [trial for trial in trials if trial.seed == 0 or abs(math.log2(trial.learning_rate) + 8.3) < 1.6]
        alone, found = optimum([trial for trial in trials if trial.seed == 0]), optimum(near)
        assert found.seeds == 5
        reach.append((alone.octaves.half_width, found.octaves.half_width))
    alone, found = np.mean(reach, axis=0)
    assert found < 0.7 * alone


def test_a_seed_tried_only_around_the_optimum_does_not_move_it():
    trials = simulate(np.random.default_rng(8), widths=1, shape=Shape(noise=1e-4))
    near = [trial for trial in trials if abs(math.log2(trial.learning_rate) + 8.3) < 1.1]
    worse = [at(trial.learning_rate, trial.eval_loss * 1.05, seed=1) for trial in near]
    assert optimum([*trials, *worse]).octaves.value == pytest.approx(-8.3, abs=0.06)


def test_a_width_that_was_tried_at_three_rates_takes_its_shape_from_the_others():
    rng = np.random.default_rng(9)
    trials = simulate(rng, widths=3, seeds=2, exponent=-1.0)
    few = [
        trial
        for trial in trials
        if trial.width < 256 or (trial.seed == 0 and math.log2(trial.learning_rate) in (-11.5, -10.5, -9.5))
    ]
    assert sum(trial.width == 256 for trial in few) == 3
    together = find_optima(curves(few)).each[-1].octaves
    alone = optimum([trial for trial in few if trial.width == 256]).octaves
    assert together.contains(-10.3)
    assert together.half_width < 0.6 * alone.half_width


def test_an_optimum_at_an_edge_of_what_was_tried_is_not_known():
    trials = simulate(np.random.default_rng(5), widths=1)
    low = optimum([trial for trial in trials if trial.learning_rate > 2**-8.1])
    high = optimum([trial for trial in trials if trial.learning_rate < 2**-9.1])
    assert (low.lower_tried, low.higher_tried) == (False, True)
    assert (high.lower_tried, high.higher_tried) == (True, False)
    for found in (low, high, optimum(trials[:1])):
        assert not found.interior
        assert found.learning_rate.interval == (0, math.inf)
        assert found.octaves_to_edge is None
        assert math.isnan(found.curvature.value)


def test_a_width_without_an_optimum_does_not_change_the_others():
    trials = simulate(np.random.default_rng(6), widths=2)
    alone = find_optima(curves([trial for trial in trials if trial.width == 64])).each[0]
    cut = [trial for trial in trials if trial.width == 64 or trial.learning_rate < 2**-10]
    assert find_optima(curves(cut)).each[0] == alone


def test_where_everything_diverged_lower_learning_rates_are_missing():
    found = optimum([at(1.0, math.nan), at(2.0, math.nan)])
    assert (found.lower_tried, found.higher_tried, found.seeds) == (False, True, 0)
    assert math.isnan(found.learning_rate.value)
    assert found.eval_loss == math.inf


def test_an_optimum_next_to_divergence_is_interior_but_hardly_known():
    found = optimum([at(1.0, 3.0), at(2.0, 2.5), at(4.0, math.nan)])
    assert found.interior
    assert found.learning_rate.contains(2.0)
    assert found.learning_rate.high / found.learning_rate.low > 2


def test_noise_without_a_minimum_is_hardly_known():
    losses = [2.0, 2.0, 1.999, 2.05, 1.995, 2.05, 2.0, 1.999, 1.998]
    found = optimum([at(2.0**x, loss) for x, loss in enumerate(losses)])
    assert found.octaves.half_width > 1


def test_a_coarse_grid_on_a_steep_curve_still_has_an_error():
    trials = simulate(np.random.default_rng(6), widths=1, step=2.0, shape=Shape(bend=0.1, noise=0.01, cliff=9, end=9))
    found = optimum(trials)
    assert found.fitted is not None
    assert found.octaves.contains(-8.3)
    assert 0 < found.octaves.half_width < 4


def test_sensitivity_is_curvature_and_distance_to_the_edge():
    found = optimum(simulate(np.random.default_rng(7), widths=1))
    assert found.curvature.contains(0.04)
    # The parabola and the cliff together are 20 % up at 1.5 + 0.44 octaves.
    assert found.octaves_to_edge == pytest.approx(1.94, abs=0.35)
    assert found.edge.located


@pytest.mark.parametrize(("left", "right"), [(3, 8), (8, 3), (2, 2), (4, math.inf)])
def test_intervals_hold_the_optimum_of_lopsided_curves(left: float, right: float):
    """As in training, the rise becomes a straight line, sooner on one side than on the other."""
    rng = np.random.default_rng(0)
    grid = np.concatenate([np.arange(-5.0, -2), np.arange(-2, 2.5, 0.5), np.arange(3.0, 6)])
    held, missed = [], []
    for place in rng.uniform(-0.25, 0.25, 60):
        away = grid - place
        rise = 0.025 * away**2 / (1 + np.abs(away) / np.where(away < 0, left, right))
        losses = 2 * np.exp(rise + 0.003 * rng.normal(size=len(grid)))
        found = optimum([at(2.0**x, y) for x, y in zip(grid.tolist(), losses.tolist(), strict=True)]).octaves
        held.append(found.contains(place))
        missed.append(found.value - place)
    assert np.mean(held) > 0.9
    assert abs(np.mean(missed)) < 0.04
