"""Trials are validated, and the stability edge is the paper's."""

import math

import pytest

from widthwise.fit import Trial, curves


def curve(losses: dict[float, float]):
    (only,) = curves([Trial(width=64, learning_rate=rate, eval_loss=loss) for rate, loss in losses.items()])
    return only


def test_unstable_is_above_the_optimum_and_over_20_percent_more_or_diverged():
    edge = curve({1: 4.0, 2: 2.0, 2.8: 2.39, 4: 2.41, 8: math.nan}).edge
    assert (edge.largest_stable, edge.smallest_unstable) == (pytest.approx(2.8), 4)
    assert not edge.located
    edge = curve({1: 4.0, 2: 2.0, 2 * 2**0.5: math.inf}).edge
    assert (edge.largest_stable, edge.smallest_unstable) == (2, pytest.approx(2 * 2**0.5))
    assert edge.located
    assert edge.octaves_above(2.0) == pytest.approx(0.25)


def test_without_an_unstable_learning_rate_there_is_no_edge():
    edge = curve({1: 4.0, 2: 2.0, 4: 2.1}).edge
    assert (edge.largest_stable, edge.smallest_unstable, edge.located) == (4, None, False)
    assert edge.octaves_above(2.0) is None


def test_where_everything_diverged_nothing_is_stable():
    edge = curve({1: math.nan, 2: math.inf}).edge
    assert (edge.largest_stable, edge.smallest_unstable) == (None, 1)


def test_a_learning_rate_at_which_one_seed_diverged_is_unstable():
    trials = [Trial(width=64, learning_rate=2.0**x, eval_loss=2.0, seed=s) for x in range(3) for s in range(3)]
    trials[-1] = Trial(width=64, learning_rate=4.0, eval_loss=math.nan, seed=2)
    assert curves(trials)[0].edge.smallest_unstable == 4


def test_between_learning_rates_the_loss_is_interpolated_and_outside_it_is_unknown():
    tried = curve({1: 4.0, 4: 1.0, 8: math.nan})
    assert math.exp(tried.level_at(1.0)) == pytest.approx(2.0)
    assert tried.level_at(2.5) == math.inf
    assert tried.level_at(9.0) == math.inf
    assert math.isnan(tried.level_at(-1.0))
    assert math.isnan(curve({1: 4.0, 4: 1.0}).level_at(2.5))


def test_learning_rates_that_differ_by_rounding_are_one():
    trials = [Trial(width=64, learning_rate=rate, eval_loss=2.0, seed=s) for s, rate in enumerate((0.1, 0.1 + 1e-15))]
    assert curves(trials)[0].losses.shape == (2, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"eval_loss": -1.0}, "eval_loss is -1.0"),
        ({"parameters": 0}, "parameters is 0"),
    ],
)
def test_impossible_trials_are_refused(change: dict[str, float], message: str):
    with pytest.raises(ValueError, match=message):
        Trial(**{"width": 64, "learning_rate": 0.1, "eval_loss": 2.0, **change})


def test_a_trial_given_twice_is_refused():
    trials = [Trial(width=64, learning_rate=rate, eval_loss=2.0, seed=7) for rate in (0.25, 0.5, 0.5)]
    with pytest.raises(ValueError, match=r"width 64 has learning rate 0\.5 with seed 7 twice"):
        curves(trials)


def test_a_width_has_one_number_of_parameters():
    trials = [Trial(width=64, learning_rate=size, eval_loss=2.0, parameters=size) for size in (10, 20)]
    with pytest.raises(ValueError, match="width 64 has 10 and 20 parameters"):
        curves(trials)
