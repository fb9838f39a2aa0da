"""The solved rates are stable, as large as can be, and react to alignment as they must."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.cases import Case, amounts, cases, unit
from widthwise.theory import (
    ADAM,
    FAMILIES,
    FULL,
    MUP,
    PARAMETERIZATIONS,
    STANDARD,
    TENSOR_PROGRAMS,
    Alignment,
    LayerAlignment,
    MixedFamily,
    OptimizerFamily,
    Parameterization,
    Role,
    check,
    solve,
)


def solved_rates(case: Case) -> tuple[Fraction, ...]:
    rates = solve(*case).rates
    assert rates is not None
    return rates


def is_stable(case: Case, rates: list[Fraction] | tuple[Fraction, ...]) -> bool:
    network, family, alignment = case
    return check(network, rates, family, alignment).verdict.stable


@given(cases())
def test_the_solution_is_stable(case: Case):
    solution = solve(*case)
    assert solution.verdict.stable
    assert [c.name for c in solution.broken] == ([] if solution.verdict.nontrivial else ["nontrivial"])


@given(cases(), amounts)
def test_lowering_any_single_exponent_breaks_stability(case: Case, amount: Fraction):
    rates = solved_rates(case)
    for index in range(len(rates)):
        assert not is_stable(case, (*rates[:index], rates[index] - amount, *rates[index + 1 :]))


@given(cases(), amounts, st.data())
def test_no_slowing_of_later_layers_lets_an_earlier_one_learn_faster(case: Case, amount: Fraction, data: st.DataObject):
    rates = solved_rates(case)
    index = data.draw(st.integers(0, len(rates) - 1))
    slower = [c + data.draw(st.integers(0, 5)) for c in rates[index + 1 :]]
    assert not is_stable(case, [*rates[:index], rates[index] - amount, *slower])


def without_competition(case: Case) -> Case:
    network, family, alignment = case
    *hidden, readout = (replace(x, u=min(x.u, x.alpha)) for x in alignment.layers(len(network.hidden)))
    normalized = {role.value: replace(family.at(role), gradient_power=Fraction(0)) for role in Role}
    return network, MixedFamily(name="normalized", **normalized), Alignment(hidden=tuple(hidden), readout=readout)


@given(cases().map(without_competition), amounts)
def test_where_layers_do_not_compete_slowing_all_others_lets_none_learn_faster(case: Case, amount: Fraction):
    rates = solved_rates(case)
    for fast in range(len(rates)):
        others_at_rest = [c + 10 if i != fast else c - amount for i, c in enumerate(rates)]
        assert not is_stable(case, others_at_rest)


@given(cases(), st.data(), st.sampled_from(["alpha", "omega", "u"]), unit)
def test_more_alignment_never_allows_a_larger_rate(case: Case, data: st.DataObject, which: str, more: Fraction):
    network, family, alignment = case
    aligned = alignment.layers(len(network.hidden))
    index = data.draw(st.integers(0, len(aligned) - 1))
    if which == "omega":
        aligned = [replace(layer, u=min(layer.u, layer.alpha)) for layer in aligned]
    raised = list(aligned)
    raised[index] = replace(aligned[index], **{which: max(more, getattr(aligned[index], which))})
    before, after = (
        solved_rates((network, family, Alignment(hidden=tuple(hidden), readout=readout)))
        for *hidden, readout in (aligned, raised)
    )
    assert all(c_after >= c for c, c_after in zip(before, after, strict=True))


def test_raising_omega_can_allow_a_larger_rate_where_u_exceeds_alpha():
    """Why the property above needs its condition: the layer below steps back, and u multiplies what it leaves."""

    def readout_rate(omega: str) -> Fraction:
        return solved_rates((STANDARD, ADAM, Alignment.of(alpha="1/2", omega=("1/2", omega), u=1)))[-1]

    assert readout_rate("1") < readout_rate("1/2")


def test_hidden_omega_above_one_half_compounds_over_depth():
    alignment = Alignment.of(alpha="3/4", omega=("3/4", "1/2"), u="3/4")
    case = solve(STANDARD.with_hidden_layers(3), ADAM, alignment)
    assert case.residuals == (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4), 0)
    assert case.rates == (Fraction(3, 4), Fraction(5, 4), 1, Fraction(3, 4), Fraction(3, 4))


def test_tensor_programs_rates_of_the_standard_parameterization():
    """Its logits would outgrow any activation change above n^-1/2, so every layer below the readout steps back."""
    case = solve(STANDARD, ADAM, TENSOR_PROGRAMS)
    assert case.rates == (Fraction(1, 2), Fraction(3, 2), 1)
    assert case.residuals == (Fraction(1, 2), Fraction(1, 2))


def test_under_tensor_programs_u_does_not_matter():
    for name, network in PARAMETERIZATIONS.items():
        for family in FAMILIES.values():
            other = Alignment.of(alpha=1, omega=("1/2", 1), u=0)
            assert solve(network, family, other).rates == solve(network, family, TENSOR_PROGRAMS).rates, name


def test_unstable_at_initialization_gets_that_verdict_and_no_rates():
    growing = Parameterization.of(embedding=(0, 0), hidden=(0, 0), readout=(0, "1/2"))
    case = solve(growing, ADAM, FULL)
    assert not case.verdict.stable_at_init
    assert not case.verdict.stable
    assert (case.rates, case.residuals, case.gradients, case.verdict.residual) == (None, None, None, None)
    assert [(c.name, c.layer, c.slack) for c in case.broken] == [("stable_at_init", "hidden", Fraction(-1, 2))]


def test_a_new_family_is_one_value():
    """Sign descent ignores the size of gradients and weights, so its exponents are Adam's."""
    sign = OptimizerFamily(name="sign")
    assert solve(MUP, sign, FULL).rates == solve(MUP, ADAM, FULL).rates


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"gradient_power": Fraction(-1)}, "gradient_power of 'odd' is -1"),
        ({"parameter_power": 2}, "parameter_power of 'odd' is 2"),
    ],
)
def test_a_family_outside_the_theory_is_refused(wrong: dict[str, Fraction | int], named: str):
    with pytest.raises(ValueError, match=named):
        OptimizerFamily(name="odd", **wrong)  # pyright: ignore[reportArgumentType]


def test_alignment_for_another_depth_is_refused():
    layer = LayerAlignment(1, "1/2", 1)
    with pytest.raises(ValueError, match="given for 2 hidden layers but the network has 1"):
        solve(STANDARD, ADAM, Alignment(hidden=(layer, layer), readout=layer))
