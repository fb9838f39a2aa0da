"""A plan finds the role of every parameter of the zoo without rules: the trace agrees with what was derived by hand."""

from fnmatch import fnmatchcase
from functools import cache

import pytest

import widthwise as ww
from tests.zoo.cases import BASE_WIDTH, CASES, Case

CASE = {case.name: case for case in CASES}


@pytest.fixture(params=CASE)
def case(request: pytest.FixtureRequest) -> Case:
    return CASE[request.param]


@cache
def planned(name: str) -> ww.Plan:
    case = CASE[name]
    return ww.plan(case.build, width=64, base_width=BASE_WIDTH, example=case.example, call=case.call)


def expected(case: Case, path: str) -> str:
    (role,) = (role for pattern, role in case.roles.items() if fnmatchcase(path, pattern))
    return role


def test_the_trace_finds_the_role_of_every_parameter(case: Case):
    parameters = planned(case.name).parameters
    found = {parameter.path: parameter.part.value for parameter in parameters}
    assert found == {path: expected(case, path) for path in found}


def test_the_trace_finds_the_number_of_terms_that_are_summed(case: Case):
    parameters = planned(case.name).parameters
    for pattern, fan_in in case.inputs.items():
        found = {parameter.path: parameter.fan_in for parameter in parameters if fnmatchcase(parameter.path, pattern)}
        assert found == dict.fromkeys(found, fan_in)
        assert found, pattern


def test_roles_are_the_same_when_the_planned_model_is_narrower(case: Case):
    narrower = ww.plan(case.build, width=BASE_WIDTH, base_width=64, example=case.example, call=case.call)
    assert [p.part for p in narrower.parameters] == [p.part for p in planned(case.name).parameters]


def test_roles_are_known_at_the_base_width_too(case: Case):
    same = ww.plan(case.build, width=BASE_WIDTH, base_width=BASE_WIDTH, example=case.example, call=case.call)
    assert [p.part for p in same.parameters] == [p.part for p in planned(case.name).parameters]
    assert {(p.grows_in, p.grows_out) for p in same.parameters} == {(1, 1)}


@pytest.mark.parametrize(
    ("name", "gains"),
    [("gpt2-linen-tied", ["params/ln_f/bias", "params/ln_f/scale"]), ("mamba-dict", ["norm_f"])],
)
def test_the_final_norm_takes_the_factor_of_tied_logits(name: str, gains: list[str]):
    assert [p.path for p in planned(name).parameters if p.gain_of is not None] == gains


def test_nothing_in_the_zoo_scales_itself_with_width(case: Case):
    assert planned(case.name).numbers == ()
