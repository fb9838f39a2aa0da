"""Curves come back to the bit, in half the bytes where they were float32."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.sweep.curves import pack, unpack

NUMBERS = st.floats(width=64) | st.floats(width=32)
POINTS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), NUMBERS), max_size=5)


@given(st.dictionaries(st.text(), POINTS, max_size=4))
def test_curves_survive(curves: dict):
    given = {name: ([step for step, _ in points], [value for _, value in points]) for name, points in curves.items()}
    found = unpack(pack(given))
    assert list(found) == list(given)
    for name, (steps, values) in given.items():
        np.testing.assert_array_equal(found[name].steps, np.array(steps, np.int64), strict=True)
        assert found[name].values.dtype == np.float64
        assert [repr(value) for value in found[name].values.tolist()] == [repr(value) for value in values]


def test_what_a_device_computed_takes_half_the_bytes():
    exact = np.random.default_rng(0).normal(size=1000)
    exact[::100] = np.nan
    steps = np.arange(1000)
    assert len(pack({"x": (steps, exact.astype(np.float32))})) < 0.6 * len(pack({"x": (steps, exact)}))


@pytest.mark.parametrize(
    ("steps", "values", "named"),
    [
        ([1, 2], [1.0], r"steps of shape \(2,\) and values of shape \(1,\)"),
        ([[1]], [[1.0]], r"steps of shape \(1, 1\)"),
        ([0.5], [1.0], "steps of type float64: expected integers"),
    ],
)
def test_what_is_no_curve_is_refused(steps: list, values: list, named: str):
    with pytest.raises(ValueError, match=f"curve 'loss' has {named}"):
        pack({"loss": (steps, values)})
