import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.fit import fit_takeover

WIDTHS = (64, 128, 256, 512)


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3))
def test_finds_the_two_parts_of_a_change(chance: float, aligned: float):
    found = fit_takeover(WIDTHS, [math.sqrt(chance + aligned * width) for width in WIDTHS])
    assert found.at(4096) == pytest.approx(math.sqrt(chance + aligned * 4096), rel=1e-3)


def test_predicts_the_first_update_at_4096_from_widths_up_to_1024():
    """The sizes are those of docs/results/width-4096-looks.csv at the smallest rate, where nothing saturates."""
    found = fit_takeover((256, 512, 1024), (0.179, 0.193, 0.246))
    assert found.at(2048) == pytest.approx(0.317, rel=0.05)
    assert found.at(4096) == pytest.approx(0.405, rel=0.05)
    assert 400 < found.width < 800


def test_parts_are_equal_at_the_width_of_takeover():
    found = fit_takeover(WIDTHS, [math.sqrt(2 + width / 100) for width in WIDTHS])
    assert found.width == pytest.approx(200)
    assert found.share(200) == pytest.approx(0.5)


def test_a_change_that_shrinks_is_never_taken_over():
    found = fit_takeover(WIDTHS, [1.0, 0.9, 0.8, 0.7])
    assert found.width == math.inf
    assert found.share(10**6) == 0


def test_a_change_that_grows_faster_than_the_line_is_all_aligned():
    found = fit_takeover(WIDTHS, [float(width) for width in WIDTHS])
    assert found.width == 0
    assert found.share(64) == 1


@pytest.mark.parametrize(("widths", "sizes"), [((64,), (1.0,)), ((64, 64), (1.0, 1.0)), ((64, 128), (1.0,))])
def test_refuses_fewer_than_two_widths(widths: tuple[int, ...], sizes: tuple[float, ...]):
    with pytest.raises(ValueError, match="expected one at each of two or more widths"):
        fit_takeover(widths, sizes)


def test_refuses_a_size_of_zero():
    with pytest.raises(ValueError, match="expected numbers above 0"):
        fit_takeover((64, 128), (0.0, 1.0))
