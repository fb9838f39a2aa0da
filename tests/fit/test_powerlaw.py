"""The power law of optimal learning rates: known exponents come back, and intervals are honest with few widths."""

import math

import numpy as np
import pytest

from tests.fit.sweeps import Shape, simulate
from widthwise.fit import fit_transfer

EXPONENTS = (-1.0, -0.5, 0.0, 0.5)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_known_exponents_are_recovered(exponent: float):
    law = fit_transfer(simulate(np.random.default_rng(0), widths=5, exponent=exponent)).law
    assert law.exponent.value == pytest.approx(exponent, abs=0.05)
    assert law.exponent.contains(exponent)
    assert law.widths == (64, 128, 256, 512, 1024)


@pytest.mark.parametrize(("widths", "seeds"), [(3, 1), (4, 1), (4, 2), (5, 3)])
def test_intervals_hold_the_exponent_and_the_prediction_of_most_sweeps(widths: int, seeds: int):
    rng = np.random.default_rng([widths, seeds])
    held: list[tuple[bool, bool]] = []
    for sweep in range(60):
        shape = Shape(
            bend=0.01 * 3 ** rng.uniform(), noise=0.001 * 6 ** rng.uniform(), cliff=rng.uniform(1, 2), end=3.0
        )
        exponent, start = EXPONENTS[sweep % 4] + rng.uniform(-0.1, 0.1), rng.uniform(-9, -8)
        trials = simulate(rng, widths=widths, seeds=seeds, exponent=exponent, start=start, shape=shape, spread=0.15)
        law = fit_transfer(trials).law
        truth = 2.0 ** (start + exponent * math.log2(4096 / 64))
        held.append((law.exponent.contains(exponent), law.predict(4096).contains(truth)))
    for share in np.mean(held, axis=0):
        assert share >= 0.88


def test_optima_that_scatter_widen_the_exponent_and_the_prediction():
    rng = np.random.default_rng(3)
    steady, scattered = (
        fit_transfer(simulate(rng, widths=5, seeds=2, spread=spread, shape=Shape(noise=0.001))).law
        for spread in (0.02, 0.4)
    )
    assert scattered.exponent.half_width > 2 * steady.exponent.half_width
    reach = [math.log2(law.predict(2048).high / law.predict(2048).low) for law in (steady, scattered)]
    assert reach[1] > 2 * reach[0]


def test_more_seeds_narrow_the_exponent():
    reach = [
        np.mean(
            [
                fit_transfer(simulate(np.random.default_rng(sweep), seeds=seeds, spread=0.15)).law.exponent.half_width
                for sweep in range(8)
            ]
        )
        for seeds in (1, 4)
    ]
    assert reach[1] < 0.7 * reach[0]


def test_one_width_has_no_exponent():
    trials = simulate(np.random.default_rng(0), widths=2)
    two, one = fit_transfer(trials).law, fit_transfer([trial for trial in trials if trial.width == 64]).law
    assert two.exponent.contains(-0.5)
    assert math.isnan(one.exponent.value)
    assert one.exponent.interval == (-math.inf, math.inf)
    assert one.predict(256).interval == (0, math.inf)


def test_a_prediction_is_less_certain_farther_away_and_for_a_single_seed():
    law = fit_transfer(simulate(np.random.default_rng(1))).law
    reach = [math.log2(law.predict(width).high / law.predict(width).low) for width in (256, 1024, 16384)]
    assert reach == sorted(reach)
    assert law.at(1024).half_width < law.at(1024, seeds=2).half_width < law.predict(1024).half_width
    with pytest.raises(ValueError, match="width is 0"):
        law.predict(0)
