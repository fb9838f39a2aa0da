"""The power law of optimal learning rates: known exponents come back, and intervals are honest with few widths."""

import math

import numpy as np
import pytest

from tests.fit.sweeps import Shape, simulate
from widthwise.fit import Measured, fit_power_law, fit_transfer

EXPONENTS = (-1.0, -0.5, 0.0, 0.5)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_known_exponents_are_recovered(exponent: float):
    law = fit_transfer(simulate(np.random.default_rng(0), widths=5, exponent=exponent)).law
    assert law.exponent.value == pytest.approx(exponent, abs=0.03)
    assert law.exponent.contains(exponent)
    assert law.widths == (64, 128, 256, 512, 1024)


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("widths", [3, 4, 5])
def test_intervals_hold_the_exponent_and_the_prediction_of_most_sweeps(widths: int, seeds: int):
    rng = np.random.default_rng([widths, seeds])
    held: list[tuple[bool, bool]] = []
    for sweep in range(200):
        shape = Shape(
            bend=0.01 * 3 ** rng.uniform(), noise=0.001 * 6 ** rng.uniform(), cliff=rng.uniform(1, 2), end=3.0
        )
        exponent, start = EXPONENTS[sweep % 4] + rng.uniform(-0.1, 0.1), rng.uniform(-9, -8)
        trials = simulate(rng, widths=widths, seeds=seeds, exponent=exponent, start=start, shape=shape)
        law = fit_transfer(trials).law
        truth = 2.0 ** (start + exponent * math.log2(4096 / 64))
        held.append((law.exponent.contains(exponent), law.predict(4096).contains(truth)))
    for share in np.mean(held, axis=0):
        assert 0.9 <= share <= 0.98


@pytest.mark.parametrize("widths", [3, 5])
def test_scatter_that_the_errors_do_not_explain_widens_exponent_and_prediction(widths: int):
    rng = np.random.default_rng(widths)
    held: list[tuple[bool, bool]] = []
    for _ in range(1000):
        *values, new = rng.normal(0, 0.3, widths + 1).tolist()
        law = fit_power_law(
            [64 * 2**doubling for doubling in range(widths)],
            [Measured(value=value, error=0.05, freedom=5) for value in values],
        )
        held.append((law.exponent.contains(0.0), law.predict(100).contains(2.0**new)))
    for share in np.mean(held, axis=0):
        assert share > 0.82


def test_a_width_with_a_large_error_counts_little():
    optima = [Measured(value=x, error=e, freedom=20) for x, e in ((0.0, 0.01), (0.0, 0.01), (0.0, 0.01), (2.0, 1.0))]
    law = fit_power_law([64, 128, 256, 512], optima)
    assert abs(law.exponent.value) < 0.15


def test_two_widths_have_an_interval_from_their_errors_and_one_width_has_none():
    optima = [Measured(value=x, error=0.1, freedom=5) for x in (-8.0, -9.0)]
    two, one = fit_power_law([64, 128], optima), fit_power_law([64], optima[:1])
    assert two.exponent.value == pytest.approx(-1.0)
    assert two.exponent.high - two.exponent.value == pytest.approx(2**0.5 * 0.1 * 2.228, rel=1e-3)
    assert two.predict(256).value == pytest.approx(2**-10)
    assert math.isnan(one.exponent.value)
    assert one.exponent.interval == (-math.inf, math.inf)
    assert one.predict(256).interval == (0, math.inf)
    assert math.isnan(one.scatter)


def test_a_prediction_is_less_certain_farther_away():
    law = fit_transfer(simulate(np.random.default_rng(1))).law
    reach = [math.log2(law.predict(width).high / law.predict(width).low) for width in (256, 1024, 16384)]
    assert reach == sorted(reach)
    with pytest.raises(ValueError, match="width is 0"):
        law.predict(0)


def test_optima_that_are_not_known_are_refused():
    known, unknown = (Measured(value=0.0, error=error, freedom=2) for error in (0.1, math.inf))
    with pytest.raises(ValueError, match="interior"):
        fit_power_law([64, 128], [known, unknown])
    with pytest.raises(ValueError, match="each width once"):
        fit_power_law([64, 64], [known, known])
