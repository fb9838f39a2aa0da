"""Limits are what breaks when a rate is raised: exactly, and as one finds by trying."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.theory.cases import Case, cases, exponents
from widthwise.theory import (
    ADAM,
    FULL,
    MUP,
    NONE,
    SGD,
    STANDARD,
    TENSOR_PROGRAMS,
    Assessment,
    Parameterization,
    check,
    limits,
    solve,
)

LITTLE = Fraction(1, 10**9)
"""Less than the exponents of random cases, which have small denominators, can differ by."""


def broken_by_trying(case: Assessment) -> list[set[tuple[str, str]]]:
    rates = case.rates or ()
    found: list[set[tuple[str, str]]] = []
    for index in range(len(rates)):
        faster = (*rates[:index], rates[index] - LITTLE, *rates[index + 1 :])
        after = check(case.parameterization, faster, case.family, case.alignment)
        pairs = zip(case.constraints, after.constraints, strict=True)
        found.append({(x.name, x.layer) for x, y in pairs if x.satisfied and not y.satisfied})
    return found


def named(case: Assessment) -> list[set[tuple[str, str]]]:
    return [{(c.name, c.layer) for c in constraints} for constraints in limits(case)]


@given(cases())
def test_every_solved_rate_has_limits_and_they_are_what_trying_finds(case: Case):
    solution = solve(*case)
    assert all(limits(solution))
    assert named(solution) == broken_by_trying(solution)


@given(cases(), st.data())
def test_limits_of_any_rates_are_what_trying_finds(case: Case, data: st.DataObject):
    network, family, alignment = case
    rates = [data.draw(exponents) for _ in network.layers]
    brought = check(network, rates, family, alignment)
    assert named(brought) == broken_by_trying(brought)


def test_limits_name_the_layer_that_pays():
    """With SGD and no alignment, muP's readout could be faster by itself; every earlier gradient would grow."""
    readout = named(solve(MUP, SGD, NONE))[-1]
    assert ("stable_activations.update", "embedding") in readout
    assert not any(name.startswith("stable_logits") for name, _ in readout)


def test_standard_under_tensor_programs_is_limited_by_what_its_readout_inherits():
    assert named(solve(STANDARD, ADAM, TENSOR_PROGRAMS))[:2] == [{("stable_logits.inherited", "readout")}] * 2


def test_a_constraint_with_the_least_slack_is_no_limit():
    assert limits(check(STANDARD, [0, 1, "1.0000000001"], ADAM, FULL))[-1] == ()


def test_rates_that_could_be_larger_have_no_limits():
    assert limits(check(STANDARD, [5, 5, 5], ADAM, FULL)) == ((), (), ())


def test_a_network_unstable_at_initialization_has_no_limits():
    growing = Parameterization.of(embedding=(0, 0), hidden=(0, 0), readout=(0, "1/2"))
    assert limits(solve(growing, ADAM, FULL)) == ()
    assert limits(check(growing, [0, 0, 0], ADAM, FULL)) == ()


def test_a_network_may_be_a_thousand_layers_deep():
    found = limits(solve(MUP.with_hidden_layers(1000), SGD, FULL))
    assert len(found) == 1002
    assert all(found)
