"""A view follows the axes of a parameter through moves of its elements."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.scaling.views import Piece, View

WEIGHT = View.of("w", (6, 8))


def axes_of(view: View) -> list[list[int | None]]:
    return [[piece.axis for piece in parts] for parts in view.parts]


def test_a_whole_parameter_has_its_own_axes():
    assert WEIGHT.shape == (6, 8)
    assert axes_of(WEIGHT) == [[0], [1]]
    assert View.of("w", (1, 8)).shape == (1, 8)


def test_transposing_permutes_axes():
    assert axes_of(WEIGHT.transposed([1, 0])) == [[1], [0]]


def test_splitting_heads_off_an_axis_and_merging_them_again_loses_nothing():
    split = WEIGHT.reshaped((6, 4, 2))
    assert split is not None
    assert split.parts == ((Piece(0, 6),), (Piece(1, 4),), (Piece(1, 2),))
    assert split.reshaped((6, 8)) == View("w", ((Piece(0, 6),), (Piece(1, 4), Piece(1, 2))), (6, 8))
    assert split.axes([1]) == split.axes([2]) == {1}


def test_merged_axes_are_both_axes():
    merged = WEIGHT.reshaped((48,))
    assert merged is not None
    assert merged.axes([0]) == {0, 1}
    assert merged.size([0]) == 48


def test_an_axis_that_is_cut_across_is_not_followed():
    assert WEIGHT.reshaped((4, 12)) is None
    assert View.of("w", (6, 5)).reshaped((2, 15)) == View("w", ((Piece(0, 2),), (Piece(0, 3), Piece(1, 5))), (6, 5))


def test_axes_of_size_one_come_from_nowhere():
    assert View.of("w", (1, 8)).axes([0]) == set()
    expanded = WEIGHT.reshaped((6, 1, 8))
    assert expanded is not None
    assert axes_of(expanded) == [[0], [], [1]]


def test_broadcast_axes_do_not_come_from_the_parameter():
    view = View.of("b", (8,)).broadcast((3, 8), [1])
    assert axes_of(view) == [[None], [0]]
    assert view.size([0, 1]) == 8


def test_one_entry_of_an_axis_is_an_entry_of_a_stack():
    view = View.of("w", (3, 6, 8)).one_of([0])
    assert view.shape == (6, 8)
    assert view.stack == {0}
    assert axes_of(view) == [[1], [2]]
    assert View.of("w", (3, 6, 8)).sliced((1, 6, 8)).stack == {0}
    assert View.of("w", (3, 6, 8)).sliced((2, 6, 8)).stack == set()


def test_a_slice_has_fewer_entries_of_the_same_axis():
    half = WEIGHT.resized((6, 4))
    assert axes_of(half) == [[0], [1]]
    assert half.size([1]) == 4


def test_beside_others_a_parameter_counts_only_its_own_entries():
    assert WEIGHT.resized((6, 24)).size([1]) == 8


def test_the_outer_piece_of_a_split_axis_is_cut():
    merged = View.of("w", (4, 6)).reshaped((24,))
    assert merged is not None
    assert merged.resized((12,)).parts == ((Piece(0, 2), Piece(1, 6)),)
    assert merged.resized((6,)).parts == ((Piece(1, 6),),)


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    factors=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_reshaping_agrees_with_where_elements_really_are(shape: list[int], factors: list[int]):
    """Along each axis of the reshaped array, exactly the axes of the view change."""
    total = math.prod(shape)
    target = []
    for factor in factors:
        size = math.gcd(factor, total)
        target.append(size)
        total //= size
    target.append(total)
    view = View.of("w", shape).reshaped(target)
    if view is None:
        return
    assert view.shape == tuple(target)
    places = np.stack(np.meshgrid(*(np.arange(size) for size in shape), indexing="ij")).reshape(len(shape), *target)
    for at in range(len(target)):
        moving = {axis for axis in range(len(shape)) if (np.ptp(places[axis], axis=at) > 0).any()}
        assert moving == view.axes([at])


@pytest.mark.parametrize("dimensions", [(0, 1), (1, 2), (0, 2)])
def test_broadcasting_keeps_axes_apart(dimensions: tuple[int, int]):
    shape = [5, 5, 5]
    for size, at in zip(WEIGHT.shape, dimensions, strict=True):
        shape[at] = size
    view = WEIGHT.broadcast(shape, dimensions)
    assert [view.axes([at]) for at in dimensions] == [{0}, {1}]
    assert view.shape == tuple(shape)
