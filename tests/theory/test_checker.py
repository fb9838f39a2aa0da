"""The checker agrees with the paper's constraints, written out once more by hand."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.cases import Case, cases, exponents
from widthwise.theory import (
    ADAFACTOR,
    ADAM,
    FULL,
    MUP,
    NONE,
    SGD,
    STANDARD,
    Alignment,
    Bound,
    Constraint,
    Parameterization,
    check,
    solve,
)

HALF = Fraction(1, 2)


def residuals_by_table_2(case: Case, c: list[Fraction]) -> tuple[list[Fraction], list[Fraction]]:
    """Table 2 of the paper, a column for each family, with min for max in SGD's gradient (first erratum)."""
    network, family, alignment = case
    a = [layer.a for layer in network.layers]
    b = [layer.b for layer in network.layers]
    readout = len(a) - 1
    g = [min(a[-1] + b[-1], 2 * a[-1] + c[-1]) + a_l for a_l in a]
    effective_update = {  # of all layers but the readout
        "sgd": [g_l + a_l + c_l for g_l, a_l, c_l in zip(g, a, c, strict=True)],
        "adam": [a_l + c_l for a_l, c_l in zip(a, c, strict=True)],
        "adafactor": [(0 if i == 0 else HALF) + c_l for i, c_l in enumerate(c)],
    }[family.name]
    effective_update[readout] = {
        "sgd": 2 * a[-1] + c[-1],
        "adam": a[-1] + c[-1],
        "adafactor": a[-1] + b[-1] + c[-1],
    }[family.name]

    r = [effective_update[0]]
    for layer in range(1, readout):
        align = alignment.hidden[layer - 1]
        update = effective_update[layer]
        r.append(min(update - align.alpha, update + r[-1] - align.u, HALF + r[-1] - align.omega))
    align, update = alignment.readout, effective_update[readout]
    return r, [update - align.alpha, update + r[-1] - align.u, a[-1] + b[-1] + r[-1] - align.omega]


@given(cases(), st.sampled_from([SGD, ADAM, ADAFACTOR]), st.data())
def test_residuals_logits_and_verdict_are_those_of_table_2(case: Case, family, data: st.DataObject):
    network, _, alignment = case
    c = [data.draw(exponents) for _ in network.layers]
    r, logits = residuals_by_table_2((network, family, alignment), c)
    assessment = check(network, c, family, alignment)
    verdict = assessment.verdict

    assert list(assessment.residuals or ()) == r
    assert [x.slack for x in assessment.constraints if x.name.startswith("stable_logits")] == logits
    assert assessment.logit_change == min(logits)
    assert verdict.residual == r[-1]
    growth = family is ADAFACTOR and min(c) < 0
    assert verdict.stable == (min(r) >= 0 and min(logits) >= 0 and not growth)
    assert verdict.nontrivial == (min(logits) <= 0)
    assert verdict.feature_learning == (min(r) >= 0 and r[-1] == 0)


def test_a_global_rate_breaks_the_hidden_layers_and_says_by_how_much():
    case = check(STANDARD, [0, 0, 0], ADAM, FULL)
    worst = min(case.broken, key=lambda constraint: constraint.slack)
    assert not case.verdict.stable
    assert {c.layer for c in case.broken} == {"hidden", "readout"}
    assert (worst.name, worst.slack) == ("stable_logits.joint", Fraction(-2))


def test_rates_below_the_largest_are_stable_but_learn_less():
    case = check(MUP, [1, 2, 1], ADAM, FULL)
    assert case.verdict.stable
    assert not case.verdict.nontrivial
    assert not case.verdict.feature_learning
    assert case.verdict.residual == Fraction(1, 2)


def test_parameter_scaling_must_not_multiply_weights_by_a_power_of_n():
    case = check(STANDARD, [0, HALF, "-1/4"], ADAFACTOR, Alignment.of(alpha=0, omega=HALF, u=0))
    assert not case.verdict.stable
    assert [(c.name, c.layer, c.slack) for c in case.broken] == [("bounded_growth", "readout", Fraction(-1, 4))]


def test_only_parameter_scaling_has_that_constraint():
    names = {family.name: {c.name for c in solve(MUP, family, NONE).constraints} for family in (SGD, ADAM, ADAFACTOR)}
    assert {name for name, constraints in names.items() if "bounded_growth" in constraints} == {"adafactor"}


def test_a_fast_sgd_readout_enlarges_every_earlier_gradient():
    """The first erratum: with the printed max these embedding and hidden rates would seem stable."""
    solved = solve(STANDARD, SGD, FULL)
    assert solved.rates is not None
    faster = check(STANDARD, [*solved.rates[:-1], 0], SGD, FULL)
    assert faster.gradients is not None
    assert faster.gradients.at_init == (HALF, HALF, 0)
    assert faster.gradients.trained == (0, 0, 0)
    assert ("embedding", -HALF) in {(c.layer, c.slack) for c in faster.broken}


def test_activations_that_blow_up_on_the_way_are_not_features():
    """The embedding's output grows as n^1/2, and a hidden layer that is blind to it passes on a constant change."""
    blind = Alignment.of(alpha=1, omega=0, u=0)
    case = check(STANDARD, ["-1/2", 1, 1], ADAM, blind)
    assert case.residuals == (-HALF, 0)
    assert not case.verdict.feature_learning


@pytest.mark.parametrize("value", [Fraction(-1, 3), Fraction(0), Fraction(1, 3)])
def test_slack_is_negative_exactly_where_a_bound_is_broken(value: Fraction):
    exactly, at_most, at_least = (
        Constraint("x", "hidden", value, bound) for bound in (Bound.EXACTLY, Bound.AT_MOST, Bound.AT_LEAST)
    )
    assert (exactly.slack, at_most.slack, at_least.slack) == (-abs(value), value, -value)
    assert (exactly.satisfied, at_most.satisfied, at_least.satisfied) == (value == 0, value >= 0, value <= 0)
    assert exactly.binding is at_most.binding is at_least.binding is (value == 0)


def test_the_readout_may_start_small_but_activations_may_not():
    shrinking = Parameterization.of(embedding=(0, 0), hidden=(0, 1), readout=(0, 2))
    case = check(shrinking, [0, 0, 0], ADAM, FULL)
    assert [(c.layer, c.bound) for c in case.broken] == [("hidden", Bound.EXACTLY)]


def test_rates_that_were_brought_are_kept_where_nothing_can_be_said_about_them():
    case = check(Parameterization.of(embedding=(0, 1), hidden=(0, HALF), readout=(0, HALF)), [1, 2, 3], ADAM, FULL)
    assert case.rates == (1, 2, 3)
    assert case.residuals is None


def test_rates_for_another_depth_are_refused():
    with pytest.raises(ValueError, match="2 numbers for 3 layers: expected one for each of embedding, hidden, readout"):
        check(STANDARD, [0, 0], ADAM, FULL)
