"""Moving a layer by θ changes the exponents and nothing else."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.cases import Case, cases, exponents
from widthwise.theory import (
    ADAFACTOR,
    ADAM,
    FAMILIES,
    FULL,
    MEAN_FIELD,
    MUP,
    NTK,
    SGD,
    STANDARD,
    EquivalenceClass,
    OptimizerFamily,
    Parameterization,
    check,
    compare,
    move,
    solve,
)

HALF = Fraction(1, 2)


@pytest.mark.parametrize(("family", "correction"), [(SGD, 2), (ADAM, 1), (ADAFACTOR, 0)], ids=list(FAMILIES))
def test_the_correction_of_each_family_is_the_papers(family: OptimizerFamily, correction: int):
    assert family.rate_correction == correction


@given(cases(), st.data())
def test_moving_keeps_verdict_and_residuals_and_shifts_rates_by_the_correction(case: Case, data: st.DataObject):
    network, family, alignment = case
    theta = [data.draw(exponents) for _ in network.layers]
    before, after = solve(network, family, alignment), solve(move(network, theta), family, alignment)
    assert before.rates is not None
    assert after.verdict == before.verdict
    assert after.residuals == before.residuals
    assert [c.slack for c in after.constraints] == [c.slack for c in before.constraints]
    corrections = [family.at(role).rate_correction for role in network.roles]
    assert after.rates == tuple(c - f * t for c, f, t in zip(before.rates, corrections, theta, strict=True))
    assert after.rates == compare(network, after.parameterization).rates(before.rates, family)


@given(cases(), st.data())
def test_moving_keeps_the_verdict_on_any_rates(case: Case, data: st.DataObject):
    network, family, alignment = case
    theta = [data.draw(exponents) for _ in network.layers]
    rates = [data.draw(exponents) for _ in network.layers]
    moved = move(network, theta)
    same = compare(network, moved)
    before = check(network, rates, family, alignment)
    after = check(moved, same.rates(rates, family), family, alignment)
    assert (after.verdict, after.residuals, after.logit_change) == (
        before.verdict,
        before.residuals,
        before.logit_change,
    )
    assert same.equivalent_in_training(rates, after.rates or (), family)


def test_the_presets_form_two_classes():
    assert EquivalenceClass.of(STANDARD).presets == (STANDARD, NTK)
    assert EquivalenceClass.of(MUP).presets == (MUP, MEAN_FIELD)
    deep = EquivalenceClass.of(NTK.with_hidden_layers(7))
    assert [p.name for p in deep.presets] == ["standard", "ntk"]
    assert STANDARD.with_hidden_layers(7) in deep
    assert STANDARD not in deep


def test_the_classes_differ_in_the_readout_only():
    comparison = compare(STANDARD, MUP)
    assert not comparison.equivalent_at_init
    assert comparison.differing == ("readout",)
    with pytest.raises(ValueError, match=r"no learning rates make 'mup' train as 'standard': .* in readout"):
        comparison.rates([0, 1, 1], ADAM)
    assert not comparison.equivalent_in_training([0, 1, 1], [0, 1, 1], ADAM)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
@pytest.mark.parametrize("pair", [(STANDARD, NTK), (MUP, MEAN_FIELD)], ids=["standard-ntk", "mup-mean_field"])
def test_solved_rates_of_equivalent_presets_train_identically(
    pair: tuple[Parameterization, Parameterization], family: OptimizerFamily
):
    first, second = (solve(network, family, FULL) for network in pair)
    assert first.rates is not None
    assert second.rates is not None
    comparison = compare(*pair)
    assert comparison.equivalent_in_training(first.rates, second.rates, family)
    assert not comparison.equivalent_in_training(first.rates, [c + 1 for c in second.rates], family)


def test_the_mup_package_implements_another_member_of_the_class():
    """Adam with (a, b, c) = (0, 0, 0), (0, 1/2, 1), (1, 0, 0): half a unit away in embedding and readout."""
    package = Parameterization.of(embedding=(0, 0), hidden=(0, HALF), readout=(1, 0))
    comparison = compare(MUP, package)
    assert comparison.theta == (HALF, 0, HALF)
    assert comparison.rates(solve(MUP, ADAM, FULL).rates or (), ADAM) == (0, 1, 0)


def test_a_class_has_a_member_without_multipliers():
    plain = EquivalenceClass.of(MUP).member([0, 0, 0], name="plain")
    assert plain == Parameterization.of(embedding=(0, 0), hidden=(0, HALF), readout=(0, 1), name="plain")
    assert plain in EquivalenceClass.of(MEAN_FIELD)


def test_networks_of_different_depth_cannot_be_compared():
    with pytest.raises(ValueError, match="'ntk' has 1 hidden layers and 'standard' has 2"):
        compare(NTK, STANDARD.with_hidden_layers(2))


def test_a_theta_for_each_layer_is_needed():
    with pytest.raises(ValueError, match="2 numbers for 3 layers"):
        move(STANDARD, [0, 1])
    with pytest.raises(ValueError, match="1 multipliers for 3 layers"):
        EquivalenceClass.of(MUP).member([0])
