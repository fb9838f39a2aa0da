"""Depth: what follows from the multiplier of residual branches, and whether networks do what is claimed."""

import csv
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.residual import BASE_RATE, Sizes, train
from widthwise.theory import (
    ADAFACTOR,
    ADAM,
    ALL_FAMILIES,
    COMPLETEP,
    DEPTH_RULES,
    MUON,
    PLAIN_DEPTH,
    SGD,
    SQRT_DEPTH,
    DepthRule,
    assess_depth,
    depth_exponents,
    read_depth_rule,
    with_adam,
)

HALF = Fraction(1, 2)
ALPHAS = st.fractions(min_value=-1, max_value=3, max_denominator=8)
EVERY_FAMILY = pytest.mark.parametrize("family", ALL_FAMILIES.values(), ids=lambda family: family.name)
DEPTHS = (8, 32, 128)


def with_alpha(alpha) -> DepthRule:
    return DepthRule(name="own", branch=Fraction(alpha))


@pytest.mark.parametrize("rule", [COMPLETEP, SQRT_DEPTH, with_alpha("3/4")], ids=lambda rule: rule.name)
def test_adam_s_exponents_are_those_of_completep_s_table(rule):
    """The table of nanoGPT-mup's branch completep, for any α from 1/2 to 1: slope * alpha + intercept."""
    with (Path(__file__).parent / "completep.csv").open() as file:
        table = {row["quantity"]: row["power of the depth ratio"].split(" * alpha + ") for row in csv.DictReader(file)}
    found = depth_exponents(rule, ADAM)
    assert {name: -getattr(found, name) for name in table} == {
        name: Fraction(slope) * rule.branch + Fraction(intercept) for name, (slope, intercept) in table.items()
    }


def test_no_rate_is_given_to_branches_that_are_unstable_at_initialization():
    with pytest.raises(ValueError, match="no learning rate is stable"):
        depth_exponents(with_alpha(Fraction(1, 4)), ADAM)
    assert depth_exponents(DEPTH_RULES["constant"], ADAM).matrix_rate == 0  # which has a rate of its own


@pytest.mark.parametrize(
    ("alpha", "expected"), [(0, (HALF, 0)), (HALF, (HALF, 0)), ("3/4", ("1/4", -HALF)), (1, (0, -1)), (2, (0, -2))]
)
def test_rates_follow_from_alpha_and_the_power_of_the_gradient(alpha, expected):
    """SGD at α = 1/2 has the constant rate of Tensor Programs VI; at α = 1 its rate grows in proportion to L."""
    found = tuple(assess_depth(with_alpha(alpha), family).exponents.matrix_rate for family in (ADAM, SGD))
    assert found == tuple(map(Fraction, expected))


@EVERY_FAMILY
@given(alpha=ALPHAS)
def test_only_alpha_1_learns_in_every_block(family, alpha):
    verdict = assess_depth(with_alpha(alpha), family).verdict
    assert verdict.stable_at_init == verdict.stable == (alpha >= HALF)
    assert verdict.nontrivial == (alpha <= 1)
    assert verdict.every_block == (alpha == 1)


@EVERY_FAMILY
@given(alpha=ALPHAS)
def test_the_solved_rates_are_the_largest(family, alpha):
    case = assess_depth(with_alpha(alpha), family)
    rates = {"matrix_rate": "matrices", "vector_rate": "vectors"}
    for field, kind in rates.items():
        assert case.limits(kind)
        assert all(c.satisfied for c in case.constraints if c.layer == kind)
        raised = replace(case.rule, **{field: getattr(case.exponents, field) - Fraction(1, 100)})
        broken = [c for c in assess_depth(raised, family).broken if c.layer == kind]
        assert [c.name for c in broken] == [c.name for c in case.limits(kind)]


def test_what_binds_changes_at_alpha_1():
    def binding(alpha):
        return [c.name for c in assess_depth(with_alpha(alpha), ADAM).limits("matrices")]

    assert binding(HALF) == binding("3/4") == ["stable_stream.update"]
    assert binding(1) == ["stable_stream.update", "stable_block.update"]
    assert binding("5/4") == ["stable_block.update"]


@given(agreement=st.fractions(min_value=HALF, max_value=1, max_denominator=8))
def test_if_blocks_agreed_less_a_smaller_alpha_would_learn_in_every_block(agreement):
    """1/√L rules and 1/L rules differ in what they assume of updates: independence of blocks, or agreement."""
    assert assess_depth(with_alpha(agreement), ADAM, agreement=agreement).verdict.every_block
    assert depth_exponents(SQRT_DEPTH, ADAM).matrix_rate == HALF
    assert assess_depth(SQRT_DEPTH, ADAM, agreement=agreement).exponents.matrix_rate == agreement - HALF


def test_the_plain_model_breaks_at_initialization_and_in_training():
    case = assess_depth(PLAIN_DEPTH, ADAM)
    assert set(map(str, case.broken)) == {
        "stable_at_init (stream): scales as L^1/2, must be at most constant",
        "stable_stream.update (matrices): scales as L^1/2, must be at most constant",
        "stable_stream.update (vectors): scales as L^1/2, must be at most constant",
    }
    assert not case.verdict.stable


@EVERY_FAMILY
def test_the_constant_rule_changes_nothing(family):
    found = depth_exponents(DEPTH_RULES["constant"], family)
    assert found.branch == found.init == found.matrix_rate == found.vector_rate == found.epsilon == 0


def test_vectors_beside_muon_follow_the_optimizer_that_trains_them():
    mixed = replace(with_adam(MUON), embedding=SGD)
    found = depth_exponents(COMPLETEP, mixed)
    assert (found.matrix_rate, found.vector_rate) == (0, -1)


def test_folding_moves_the_multiplier_into_initialization_rate_and_epsilon():
    rates = {f.name: depth_exponents(COMPLETEP, f).folded(f).matrix_rate for f in (SGD, ADAM, ADAFACTOR)}
    assert rates == {"sgd": 1, "adam": 1, "adafactor": 0}
    folded = depth_exponents(COMPLETEP, ADAM).folded(ADAM)
    assert (folded.branch, folded.init, folded.epsilon) == (0, 1, 0)


def test_rules_are_read_by_name_or_from_alpha():
    assert read_depth_rule("completep") is read_depth_rule(COMPLETEP) is COMPLETEP
    assert read_depth_rule(" 3/4 ").branch == Fraction(3, 4)
    with pytest.raises(ValueError, match="depth_rule is 'deep': expected one of completep, sqrt, constant, or"):
        read_depth_rule("deep")
    with pytest.raises(ValueError, match="agreement is 2: expected 1/2"):
        assess_depth(COMPLETEP, ADAM, agreement=2)


@cache
def measured(family: str, rule: DepthRule) -> dict[str, float]:
    """Return the slope in depth of the logarithm of every size, over seeds."""
    exponents = depth_exponents(rule, ALL_FAMILIES[family])
    sizes: list[tuple[int, Sizes]] = [
        (depth, train(depth, exponents, family, seed=seed)[0]) for depth in DEPTHS for seed in range(3)
    ]

    def slope(name: str) -> float:
        logs = [(math.log(depth), math.log(getattr(each, name))) for depth, each in sizes]
        return float(np.polyfit(*zip(*logs, strict=True), 1)[0])

    return {name: slope(name) for name in ("stream", "stream_change", "block_change")}


@pytest.mark.parametrize("family", BASE_RATE)
@pytest.mark.parametrize("alpha", ["1/2", "3/4", "1", "3/2"])
def test_a_trained_network_has_the_exponents_that_are_derived(family, alpha):
    case = assess_depth(with_alpha(alpha), ALL_FAMILIES[family])
    slopes = measured(family, case.rule)
    assert slopes["stream"] == pytest.approx(-case.stream, abs=0.06)
    assert slopes["stream_change"] == pytest.approx(-case.stream_change, abs=0.06)
    assert slopes["block_change"] == pytest.approx(-case.block_change, abs=0.05)


@pytest.mark.parametrize("family", [family for family in BASE_RATE if family != "sgd"])
def test_the_plain_network_grows_with_depth(family):
    slopes = measured(family, PLAIN_DEPTH)
    assert slopes["stream"] == pytest.approx(0.5, abs=0.08)
    assert slopes["stream_change"] > 0.3
    assert abs(slopes["block_change"]) < 0.1


def test_an_epsilon_that_does_not_follow_gradients_makes_deep_blocks_learn_less():
    kept = measured("adam", replace(COMPLETEP, epsilon=Fraction(0)))
    assert kept["stream_change"] < -0.5 < measured("adam", COMPLETEP)["stream_change"]


@pytest.mark.parametrize("family", BASE_RATE)
@pytest.mark.parametrize("rule", [COMPLETEP, SQRT_DEPTH], ids=lambda rule: rule.name)
def test_folded_and_explicit_multipliers_train_alike(family, rule):
    exponents = depth_exponents(rule, ALL_FAMILIES[family])
    explicit, folded = (train(16, exponents, family, fold=fold, steps=10)[1] for fold in (False, True))
    np.testing.assert_allclose(folded, explicit, rtol=1e-9, atol=1e-9)
