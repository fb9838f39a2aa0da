"""Loss against parameters: the truth comes back, one bad size does not bend it, and too little is said to be."""

import math

import numpy as np
import pytest

from widthwise.fit import fit_loss_law
from widthwise.fit.losslaw import STEEPEST

SIZES = [1e5 * 4**doubling for doubling in range(7)]


@pytest.mark.parametrize(
    ("irreducible", "amplitude", "exponent"), [(1.7, 400.0, 0.34), (2.5, 20.0, 0.1), (0.5, 5e4, 0.8), (0.0, 30.0, 0.2)]
)
def test_a_known_law_is_recovered(irreducible: float, amplitude: float, exponent: float):
    law = fit_loss_law(SIZES, [irreducible + amplitude * size**-exponent for size in SIZES])
    assert law.determined
    assert law.exponent.value == pytest.approx(exponent, rel=0.01)
    assert law.irreducible.value == pytest.approx(irreducible, abs=0.01)
    assert law.at(1e10) == pytest.approx(irreducible + amplitude * 1e10**-exponent, rel=0.005)


def test_one_bad_size_does_not_bend_the_law():
    losses = [1.7 + 400 * size**-0.34 for size in SIZES]
    losses[3] *= 1.1
    law = fit_loss_law(SIZES, losses)
    assert law.exponent.value == pytest.approx(0.34, abs=0.01)


def test_noisy_losses_have_intervals_that_hold_the_truth():
    rng = np.random.default_rng(0)
    clean = np.array([1.7 + 400 * size**-0.34 for size in SIZES])
    laws = [fit_loss_law(SIZES, clean * np.exp(0.002 * rng.normal(size=len(SIZES)))) for _ in range(60)]
    assert np.mean([law.exponent.contains(0.34) for law in laws]) >= 0.9
    assert np.mean([law.irreducible.contains(1.7) for law in laws]) >= 0.9


def test_fewer_than_four_sizes_determine_nothing():
    law = fit_loss_law([1e5, 1e6, 1e7, 1e7], [3.0, 2.5, 2.2, 2.2])
    assert not law.determined
    assert law.exponent.interval == (-math.inf, math.inf)
    assert math.isnan(law.at(1e8))


def test_intervals_wider_than_all_that_is_possible_are_infinite():
    law = fit_loss_law(SIZES[:5], [2.0, 2.001, 2.0, 1.999, 2.0])
    assert law.irreducible.interval == (-math.inf, math.inf)
    straight = fit_loss_law(SIZES[:5], [3.0, 2.9, 2.79, 2.67, 2.54])  # in log-log: nothing says where it levels off
    assert straight.irreducible.half_width == math.inf
    assert straight.exponent.half_width < 1
    rng = np.random.default_rng(0)  # with four sizes, Student's t is 12.7
    for _ in range(100):
        few = fit_loss_law(SIZES[:4], [1.7 + 400 * size**-0.34 + 0.02 * rng.normal() for size in SIZES[:4]])
        assert few.exponent.half_width <= STEEPEST or few.exponent.half_width == math.inf


def test_losses_that_do_not_fall_leave_the_exponent_open():
    law = fit_loss_law(SIZES, [2.0, 2.001, 2.0, 1.999, 2.0, 2.001, 2.0])
    assert law.exponent.high - law.exponent.low > 1


def test_what_diverged_is_refused():
    with pytest.raises(ValueError, match="leave out what diverged"):
        fit_loss_law(SIZES[:4], [3.0, 2.5, 2.2, math.nan])
    with pytest.raises(ValueError, match="4 sizes and 3 losses"):
        fit_loss_law(SIZES[:4], [3.0, 2.5, 2.2])
