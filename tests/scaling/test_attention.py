"""Which side of a product of activations takes the factor of attention, and when neither can."""

from fractions import Fraction

import pytest

from widthwise.scaling.attention import find_queries
from widthwise.scaling.uses import Meeting


def meet(left: str, right: str, terms: int) -> Meeting:
    return Meeting(left=frozenset(left.split()), right=frozenset(right.split()), terms=terms)


def found(*pairs: tuple[str, str, int, int], spent: str = "") -> dict[str, Fraction]:
    here = [meet(left, right, terms) for left, right, terms, _ in pairs]
    base = [meet(left, right, terms) for left, right, _, terms in pairs]
    return find_queries(here, base, spent.split())


def test_the_left_side_takes_it_and_values_do_not_matter():
    assert found(("q", "k", 48, 16), ("", "v", 12, 12)) == {"q": 3}


def test_what_is_added_to_queries_takes_it_too():
    assert found(("q bias", "k", 48, 16)) == {"q": 3, "bias": 3}


def test_the_right_side_takes_it_where_the_left_one_cannot():
    assert found(("q", "k", 48, 16), spent="q") == {"k": 3}
    assert found(("", "k", 48, 16)) == {"k": 3}


def test_heads_of_fixed_size_need_nothing():
    assert found(("q", "k", 16, 16), ("qkv", "qkv", 16, 16)) == {}


def test_heads_may_grow_by_different_factors():
    assert found(("q", "k", 48, 16), ("r", "k", 32, 16)) == {"q": 3, "r": 2}


@pytest.mark.parametrize(
    ("pairs", "spent", "named"),
    [
        ([("qkv", "qkv", 48, 16)], "", "'qkv' makes queries"),
        ([("q", "k", 48, 16)], "q k", "'q' makes queries"),
        ([("", "", 48, 16)], "", "queries and keys are not proportional"),
        ([("q", "k", 48, 16), ("", "q", 12, 12)], "", "'q' makes queries"),  # queries that are values too
        ([("q", "k", 48, 16), ("k2", "q", 48, 16)], "", "'k2' makes queries"),  # and keys of another attention
        ([("q", "k", 48, 16), ("q", "k", 32, 16)], "", "'q' makes queries"),
        ([("q bias", "k", 48, 16), ("q", "k", 48, 16), ("", "bias", 7, 7)], "", "'bias' makes queries"),
    ],
)
def test_what_would_change_anything_else_is_refused_by_name(pairs, spent: str, named: str):
    with pytest.raises(ValueError, match=rf"cannot be folded into the model, since {named}"):
        found(*pairs, spent=spent)


def test_models_that_differ_between_widths_are_refused():
    with pytest.raises(ValueError, match="multiplies activations differently at the base width"):
        find_queries([meet("q", "k", 48)], [], ())
