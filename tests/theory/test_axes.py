"""Batch size and tokens: rules as data, and the factors that follow."""

from fractions import Fraction

import pytest

from widthwise.theory import BATCH_RULES, TOKEN_RULES, AxisFactors, AxisRule, read_batch_rule, read_token_rule

RULES = [*BATCH_RULES.values(), *TOKEN_RULES.values()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_at_the_base_nothing_changes(rule: AxisRule):
    assert rule.factors(1) == AxisFactors()
    assert rule.title
    assert rule.source


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_there_and_back_is_nothing(rule: AxisRule):
    there, back = rule.factors(8), rule.factors(1 / 8)
    for name in ("learning_rate", "epsilon", "one_minus_b2", "weight_decay"):
        assert getattr(there, name) * getattr(back, name) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sde", {"learning_rate": 4, "epsilon": 0.25, "one_minus_b2": 16, "weight_decay": 1}),
        ("sde2", {"learning_rate": 1, "epsilon": 0.25, "one_minus_b2": 4, "weight_decay": 4}),
        ("sqrt", {"learning_rate": 4, "epsilon": 1, "one_minus_b2": 1, "weight_decay": 1}),
        ("timescale", {"learning_rate": 1, "epsilon": 1, "one_minus_b2": 1, "weight_decay": 16}),
        ("constant", {"learning_rate": 1, "epsilon": 1, "one_minus_b2": 1, "weight_decay": 1}),
    ],
)
def test_rules_for_a_batch_of_sixteen_times_the_size(name, expected):
    assert BATCH_RULES[name].factors(16) == AxisFactors(**expected)


def test_rules_for_more_tokens():
    assert TOKEN_RULES["horizon"].factors(16).learning_rate == pytest.approx(16**-0.32)
    assert TOKEN_RULES["timescale"].factors(16).removed == pytest.approx(1 / 16)
    assert TOKEN_RULES["constant"].factors(16) == AxisFactors()


def test_what_a_step_removes_is_the_learning_rate_times_the_decay():
    """Over the same tokens, sde removes 1/√κ of what it should to keep the time scale; so does sde2."""
    assert BATCH_RULES["sde"].factors(16).removed == BATCH_RULES["sde2"].factors(16).removed == 4
    assert BATCH_RULES["timescale"].factors(16).removed == 16


def test_beta_2_follows_until_it_would_be_negative():
    factors = BATCH_RULES["sde"].factors(8)
    assert factors.b2(0.99) == pytest.approx(0.92)
    with pytest.raises(ValueError, match=r"1 - β₂ would be 1.6, with β₂ = 0.8 at the base"):
        factors.b2(0.8)


def test_rules_are_read_by_name_or_from_the_exponent_of_the_rate():
    assert read_batch_rule("sde") is read_batch_rule(BATCH_RULES["sde"]) is BATCH_RULES["sde"]
    own = read_token_rule("-0.32")
    assert (own.name, own.source, own.learning_rate) == ("-8/25", "given", Fraction(-32, 100))
    with pytest.raises(ValueError, match="batch_rule is 'horizon': expected one of constant, sde, sde2"):
        read_batch_rule("horizon")
    with pytest.raises(ValueError, match="token_rule is 'sde': expected one of constant, horizon"):
        read_token_rule("sde")


@pytest.mark.parametrize("ratio", [0, -1, float("inf"), float("nan")])
def test_a_ratio_that_is_no_ratio_is_refused(ratio):
    with pytest.raises(ValueError, match="ratio to the base is"):
        BATCH_RULES["sde"].factors(ratio)
