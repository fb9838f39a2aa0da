"""The models of the zoo are sound: they build at every width, and their expected roles fit their shapes."""

import math
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations

import jax
import pytest

from tests.zoo.cases import (
    BASE_WIDTH,
    CASES,
    EMBEDDING,
    HIDDEN,
    INNER_READOUT,
    READOUT,
    TIED,
    UNSCALED,
    WIDTHS,
    Case,
    trainable,
)
from widthwise.trace.paths import named_leaves

KEY = jax.random.key(0)


CASE = {case.name: case for case in CASES}


@pytest.fixture(params=CASE)
def case(request: pytest.FixtureRequest) -> Case:
    return CASE[request.param]


@cache
def shapes(name: str, width: int) -> dict[str, tuple[int, ...]]:
    params = jax.eval_shape(lambda key: trainable(CASE[name].build(width, key))[0], KEY)
    return {path: leaf.shape for path, leaf in named_leaves(params).items()}


def role(case: Case, path: str) -> str:
    (found,) = (role for pattern, role in case.roles.items() if fnmatchcase(path, pattern))
    return found


def test_names_are_unique():
    assert len(CASE) == len(CASES)


def test_the_logits_at_two_widths_have_the_shape_of_the_targets(case: Case):
    for width in (BASE_WIDTH, WIDTHS[0]):
        logits = jax.eval_shape(lambda key, width=width: case.logits(case.build(width, key), case.example), KEY)
        assert logits.shape[:-1] == case.targets.shape
        assert case.targets.max() < logits.shape[-1]


def test_every_parameter_matches_one_pattern_and_every_pattern_a_parameter(case: Case):
    matches = {
        path: [pattern for pattern in case.roles if fnmatchcase(path, pattern)]
        for path in shapes(case.name, BASE_WIDTH)
    }
    assert {path: patterns for path, patterns in matches.items() if len(patterns) != 1} == {}
    assert {pattern for patterns in matches.values() for pattern in patterns} == set(case.roles)


def test_as_many_axes_grow_as_the_role_says(case: Case):
    at_base = shapes(case.name, BASE_WIDTH)
    for width in WIDTHS:
        at_width = shapes(case.name, width)
        assert list(at_width) == list(at_base)
        for path, shape in at_base.items():
            growing = sum(small != large for small, large in zip(shape, at_width[path], strict=True))
            fits = {
                EMBEDDING: growing == 1,
                HIDDEN: growing >= 2,
                READOUT: growing == 1 < len(shape),
                INNER_READOUT: growing == 1 < len(shape),
                TIED: growing == 1 < len(shape),
                UNSCALED: growing == 0,
            }
            assert fits[role(case, path)], f"{path} is {shape} and {at_width[path]}, not {role(case, path)}"


def test_fan_ins_are_products_of_axes(case: Case):
    for pattern, fan_in in case.inputs.items():
        matching = [shape for path, shape in shapes(case.name, 64).items() if fnmatchcase(path, pattern)]
        assert matching, pattern
        for shape in matching:
            products = {math.prod(axes) for count in range(len(shape) + 1) for axes in combinations(shape, count)}
            assert fan_in in products, f"{pattern}: {shape}"
