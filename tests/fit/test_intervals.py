"""Intervals hold the truth as often as they say."""

import math

import numpy as np
import pytest

from widthwise.fit import Estimate, exponent, mean_of


@pytest.mark.parametrize("samples", [2, 3, 5])
def test_intervals_of_a_mean_hold_it_as_often_as_they_say(samples: int):
    draws = np.random.default_rng(samples).normal(3.0, 2.0, (4000, samples))
    held = np.mean([mean_of(draw).contains(3.0) for draw in draws])
    assert held == pytest.approx(0.95, abs=0.012)


def test_one_sample_says_nothing_about_its_spread():
    estimate = mean_of([2.0])
    assert estimate.value == 2.0
    assert estimate.interval == (-math.inf, math.inf)
    assert Estimate.around(1.0, math.nan, freedom=3).contains(1e9)


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="no samples"):
        mean_of([])


def test_an_exponent_is_the_slope_of_logarithms():
    widths = [64, 128, 512]
    assert exponent(widths, [3 * n**-0.75 for n in widths]) == pytest.approx(-0.75)
    assert math.isnan(exponent(widths, [1.0, 0.0, 2.0]))
    assert math.isnan(exponent(widths, [1.0, math.inf, 2.0]))
