"""Axes: which fields of a run change along each of them, and what stays."""

import pytest

from widthwise.study.axes import AXES, axis_of, changing, size_of

SPEC = {"width": 64, "blocks": 4, "batch": 32, "steps": 300, "warmup": 30, "context": 128, "eval_batches": 8}


@pytest.mark.parametrize(
    ("axis", "size", "changed"),
    [
        ("width", 256, {"width": 256}),
        ("depth", 16, {"blocks": 16}),
        ("batch", 128, {"batch": 128, "steps": 75, "warmup": 8, "eval_batches": 2}),  # the same tokens
        ("batch", 512, {"batch": 512, "steps": 19, "warmup": 2, "eval_batches": 1}),
        ("tokens", 4 * 300 * 32 * 128, {"steps": 1200, "warmup": 120}),
        (  # tokens grow with the batch, so steps stay
            "together",
            512,
            {"width": 512, "blocks": 16, "batch": 256, "steps": 300, "warmup": 30, "eval_batches": 1},
        ),
        (
            "together",
            8,
            {"width": 8, "blocks": 1, "batch": 4, "steps": 300, "warmup": 30, "eval_batches": 64},
        ),
    ],
)
def test_a_size_changes_the_fields_of_its_axis_and_is_read_back(axis, size, changed):
    found = AXES[axis].change(SPEC, size)
    assert found == changed
    assert found.keys() == AXES[axis].fields
    assert AXES[axis].size({**SPEC, **found}) == size


def test_tokens_are_those_of_whole_steps():
    tokens = AXES["tokens"]
    assert tokens.size({**SPEC, **tokens.change(SPEC, 1_000_000)}) == 244 * 32 * 128


def test_a_request_that_names_no_axis_was_made_for_widths():
    assert axis_of({"width": 64}).name == "width"
    assert axis_of({"width": 64, "axis": "depth"}).name == "depth"


@pytest.mark.parametrize(
    ("axis", "ratio"), [("width", 16), ("depth", 4), ("batch", 1), ("tokens", 4), ("together", 4 ** (11 / 3))]
)
def test_what_a_run_costs_along_an_axis_where_nothing_else_is_known(axis: str, ratio: float):
    assert AXES[axis].cost(32) == pytest.approx(ratio * AXES[axis].cost(8))


def test_the_size_of_a_run_of_one_s_own_has_the_name_of_its_axis():
    own = {"axis": "depth", "depth": 8, "learning_rate": 0.1, "seed": 0, "settings": {}}
    assert (size_of(own), changing(own)) == (8, {"depth"})
    assert (size_of({**SPEC, "axis": "depth"}), changing({**SPEC, "axis": "depth"})) == (4, {"blocks"})
