"""The optimal learning rate of one width, from curves whose optimum is known."""

import math

import numpy as np
import pytest

from tests.fit.sweeps import Shape, simulate
from widthwise.fit import Optimum, Trial, curves, find_optimum

EXACT = Shape(noise=1e-9, cliff=math.inf, end=math.inf)


def optimum(trials: list[Trial]) -> Optimum:
    (curve,) = curves(trials)
    return find_optimum(curve)


def at(learning_rate: float, loss: float, seed: int = 0) -> Trial:
    return Trial(width=64, learning_rate=learning_rate, eval_loss=loss, seed=seed)


@pytest.mark.parametrize("start", [-8.0, -8.1, -8.25, -8.4])
def test_between_the_points_of_the_grid_a_parabola_is_found_exactly(start: float):
    found = optimum(simulate(np.random.default_rng(0), widths=1, shape=EXACT, start=start))
    assert found.octaves.value == pytest.approx(start, abs=1e-5)
    assert found.curvature.value == pytest.approx(0.04, rel=1e-4)
    assert found.eval_loss == pytest.approx(4.0, rel=0.01)
    assert found.interior


@pytest.mark.parametrize("shape", [Shape(), Shape(cliff=0.75, end=2.0), Shape(cliff=math.inf, end=1.0)], ids=str)
def test_a_cliff_does_not_push_the_optimum_away(shape: Shape):
    rng = np.random.default_rng(1)
    found = [optimum(simulate(rng, widths=1, shape=shape)).octaves.value for _ in range(60)]
    assert np.median(found) == pytest.approx(-8.3, abs=0.05)


def test_intervals_of_one_width_hold_the_optimum():
    rng = np.random.default_rng(2)
    held = {
        seeds: np.mean(
            [optimum(simulate(rng, widths=1, seeds=seeds)).octaves.estimate.contains(-8.3) for _ in range(250)]
        )
        for seeds in (1, 3)
    }
    assert all(0.9 <= share <= 0.98 for share in held.values()), held


def test_the_spread_over_seeds_enters_the_interval():
    rng = np.random.default_rng(3)
    found = [optimum(simulate(rng, widths=1, seeds=3, spread=0.3, shape=Shape(noise=5e-4))) for _ in range(200)]
    assert 0.9 <= np.mean([each.octaves.estimate.contains(-8.3) for each in found]) <= 0.98
    assert found[0].seeds == 3


def test_seeds_tried_only_around_the_optimum_narrow_the_interval():
    rng = np.random.default_rng(4)
    errors: list[tuple[float, float]] = []
    for _ in range(30):
        trials = simulate(rng, widths=1, seeds=5)
        near = [trial for trial in trials if trial.seed == 0 or abs(math.log2(trial.learning_rate) + 8.3) < 1.6]
        alone, found = optimum([trial for trial in trials if trial.seed == 0]), optimum(near)
        assert found.seeds == 5
        errors.append((alone.octaves.error, found.octaves.error))
    alone, found = np.mean(errors, axis=0)
    assert found < 0.9 * alone


def test_a_seed_tried_only_around_the_optimum_does_not_move_it():
    trials = simulate(np.random.default_rng(8), widths=1, shape=Shape(noise=1e-4))
    near = [trial for trial in trials if abs(math.log2(trial.learning_rate) + 8.3) < 1.1]
    worse = [at(trial.learning_rate, trial.eval_loss * 1.05, seed=1) for trial in near]
    assert optimum([*trials, *worse]).octaves.value == pytest.approx(-8.3, abs=0.02)


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


def test_a_parabola_that_points_beyond_what_was_tried_does_not_make_an_optimum_interior():
    falling = [at(2.0**x, math.exp(0.005 * (x - 7) ** 2)) for x in range(6)]
    found = optimum([*falling, at(2.0**5.5, math.exp(0.0205))])
    assert (found.lower_tried, found.higher_tried) == (True, False)


def test_where_everything_diverged_lower_learning_rates_are_missing():
    found = optimum([at(1.0, math.nan), at(2.0, math.nan)])
    assert (found.lower_tried, found.higher_tried, found.seeds) == (False, True, 0)
    assert math.isnan(found.learning_rate.value)
    assert found.eval_loss == math.inf


def test_an_optimum_next_to_divergence_is_interior_but_known_only_to_the_grid():
    found = optimum([at(1.0, 3.0), at(2.0, 2.5), at(4.0, math.nan)])
    assert found.interior
    assert found.fitted is None
    assert found.learning_rate.value == 2.0
    assert found.learning_rate.low < 1.0
    assert found.learning_rate.high > 4.0
    assert math.isnan(found.curvature.value)


def test_noise_without_a_minimum_is_known_only_to_lie_within_what_was_tried():
    losses = [2.0, 2.0, 1.999, 2.05, 1.995, 2.05, 2.0, 1.999, 1.998]
    found = optimum([at(2.0**x, loss) for x, loss in enumerate(losses)])
    assert found.octaves.error > 2
    assert found.learning_rate.low < 1


def test_a_coarse_grid_on_a_steep_curve_still_has_an_error():
    trials = simulate(np.random.default_rng(6), widths=1, step=2.0, shape=Shape(bend=0.1, noise=0.01, cliff=9, end=9))
    found = optimum(trials)
    assert found.fitted is not None
    assert found.octaves.estimate.contains(-8.3)
    assert 0 < found.octaves.error < 0.5


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
    for optimum in rng.uniform(-0.25, 0.25, 200):
        away = grid - optimum
        rise = 0.025 * away**2 / (1 + np.abs(away) / np.where(away < 0, left, right))
        losses = 2 * np.exp(rise + 0.003 * rng.normal(size=len(grid)))
        trials = [Trial(width=64, learning_rate=2.0**x, eval_loss=y) for x, y in zip(grid, losses, strict=True)]
        (curve,) = curves(trials)
        found = find_optimum(curve).octaves.estimate
        held.append(found.contains(optimum))
        missed.append(found.value - optimum)
    assert np.mean(held) > 0.8
    assert abs(np.mean(missed)) < 0.04
