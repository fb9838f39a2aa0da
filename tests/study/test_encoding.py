"""Values and curves come back exactly, also numbers that JSON does not have; equal values have one key."""

import json
import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.study.encoding import decode, decode_all, decode_curves, encode, encode_curves, key

RESERVED = ("NaN", "Infinity", "-Infinity")
TEXTS = st.text().filter(lambda text: text not in RESERVED) | st.sampled_from(['"NaN', 'x"NaN"', "nan"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
NUMBERS = st.floats(width=64) | st.floats(width=32)
POINTS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), NUMBERS), max_size=5)


@given(VALUES)
def test_values_survive_and_any_reader_of_json_accepts_them(value):
    def refuse(name: str):
        raise AssertionError(f"{name} is not JSON")

    assert decode(encode(value)) == value
    json.loads(encode(value), parse_constant=refuse)


def test_not_a_number_survives_and_sqlite_can_read_around_it():
    text = encode({"eval_loss": math.nan, "losses": [1.0, -math.inf], "steps": 3})
    assert math.isnan(decode(text)["eval_loss"])
    assert decode(text)["losses"] == [1.0, -math.inf]
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute("SELECT json_extract(?, '$.steps')", (text,)).fetchall() == [(3,)]


def test_many_texts_are_read_at_once():
    values = [{"a": 1}, {"a": math.inf}, {}]
    assert decode_all(encode(value) for value in values) == values


@pytest.mark.parametrize("number", [np.float32(0.1), np.int64(3), np.float32("inf"), np.bool_(True)], ids=str)
def test_numpys_numbers_are_numbers(number: np.generic):
    assert decode(encode({"x": [number]})) == {"x": [number.item()]}


@pytest.mark.parametrize("name", RESERVED)
def test_a_text_that_stands_for_a_number_is_refused(name: str):
    with pytest.raises(ValueError, match=f"the text '{name}' cannot be stored"):
        encode({"x": [name]})


def test_what_is_not_plain_is_refused():
    with pytest.raises(ValueError, match=r"object is not a plain value.*expected numbers, text"):
        encode({"x": object()})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}),
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": 1e22}, {"a": 10**22}),
    ],
    ids=["order and type", "zero", "tuple", "large"],
)
def test_equal_values_have_one_key(one: dict, other: dict):
    assert key(encode(one)) == key(encode(other))


@pytest.mark.parametrize(
    "other", [{"a": 2}, {"b": 1}, {"a": "1"}, {"a": True}, {"a": [1]}, {"a": 1.0000000000000002}, {}], ids=str
)
def test_other_values_have_another_key(other: dict):
    assert key(encode({"a": 1})) != key(encode(other))


@given(st.dictionaries(st.text(), POINTS, max_size=4))
def test_curves_survive(curves: dict):
    given = {name: ([step for step, _ in points], [value for _, value in points]) for name, points in curves.items()}
    found = decode_curves(encode_curves(given))
    assert list(found) == list(given)
    for name, (steps, values) in given.items():
        np.testing.assert_array_equal(found[name].steps, np.array(steps, np.int64), strict=True)
        assert found[name].values.dtype == np.float64
        assert [repr(value) for value in found[name].values.tolist()] == [repr(value) for value in values]


def test_what_a_device_computed_takes_half_the_bytes():
    exact = np.random.default_rng(0).normal(size=1000)
    exact[::100] = np.nan
    steps = np.arange(1000)
    short, full = (len(encode_curves({"x": (steps, values)})) for values in (exact.astype(np.float32), exact))
    assert short < 0.6 * full


@pytest.mark.parametrize(
    ("steps", "values", "named"),
    [
        ([1, 2], [1.0], r"steps of shape \(2,\) and values of shape \(1,\)"),
        ([[1]], [[1.0]], r"steps of shape \(1, 1\)"),
        ([0.5], [1.0], "steps of type float64: expected integers"),
    ],
)
def test_what_is_not_a_curve_is_refused(steps: list, values: list, named: str):
    with pytest.raises(ValueError, match=f"curve 'loss' has {named}"):
        encode_curves({"loss": (steps, values)})
