"""Values survive being text, also those that JSON does not have; equal values have one key."""

import json
import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.sweep.canonical import decode, decode_all, encode, key

RESERVED = ("NaN", "Infinity", "-Infinity")
TEXTS = st.text().filter(lambda text: text not in RESERVED) | st.sampled_from(['"NaN', 'x"NaN"', "nan"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


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
