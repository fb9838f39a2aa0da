"""Coordinate checks tell right exponents from wrong ones, and say which layer is wrong and why."""

import math

import jax
import jax.numpy as jnp
import pytest

import widthwise as ww
from widthwise.fit import Estimate
from widthwise.measure import CoordinateCheck, LayerCheck, Subject, advice, check_coordinates, warning
from widthwise.measure.coordinates import Expectation
from widthwise.optim import adam
from widthwise.parameterize import flax, prescribe
from widthwise.theory import ADAM, FULL, MUP, SGD, STANDARD, Assessment, Role, check, solve

KEYS = jax.random.split(jax.random.key(7))
EXAMPLES = jax.random.normal(KEYS[0], (16, 8)), jax.random.normal(KEYS[1], (16, 4))
WIDTHS = (64, 256)


def build(width: int, key):
    """A model of a user's own, initialized as one would without a thought for width."""
    keys = jax.random.split(key, 3)
    shapes = {"in": (8, width), "middle": (width, width), "out": (width, 4)}
    params = {
        name: {"kernel": jax.random.normal(key, shape) / shape[0] ** 0.5}
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return params, forward


def forward(params, x):
    for name in ("in", "middle"):
        x = jnp.tanh(x @ params[name]["kernel"])
    return x @ params["out"]["kernel"]


def loss(model, batch):
    inputs, targets = batch
    return jnp.mean((model(inputs) - targets) ** 2)


def judge(exponents: Assessment, *, build=build, seeds: int = 2, steps: int = 3, **options) -> CoordinateCheck:
    plan = ww.plan(build, width=128, base_width=64, example=EXAMPLES[0], exponents=exponents)
    return plan.check(loss, EXAMPLES, widths=WIDTHS, seeds=seeds, steps=steps, show=False, **options)


def failed(result: CoordinateCheck) -> list[str]:
    return [layer.layer for layer in result.failed]


def test_mup_with_full_alignment_passes_and_the_theory_expects_it():
    result = judge(solve(MUP, ADAM, FULL))
    assert result.passed, result
    assert [layer.layer for layer in result.layers] == ["in/kernel", "middle/kernel", "out/kernel"]
    for layer in result.layers:
        assert layer.expected.slope == pytest.approx(layer.change.value, abs=0.15)
        assert layer.change.low < layer.change.value < layer.change.high
        assert advice(layer, result.exponents) is None


def test_sgd_passes_too():
    assert judge(solve(MUP, SGD, FULL), optimizer=lambda plan: plan.sgd(0.1, 0.9)).passed


def test_standard_with_a_global_rate_fails_and_says_what_to_change():
    result = judge(check(STANDARD, [0, 0, 0], ADAM, FULL))
    assert not result.passed
    assert "middle/kernel" in failed(result)
    assert "out/kernel" in failed(result)
    (middle,) = (layer for layer in result.layers if layer.layer == "middle/kernel")
    assert middle.change.low > 0
    assert "hidden learning rate scales as n^0" in (advice(middle, result.exponents) or "")
    assert "n^-1 is the largest stable" in (advice(middle, result.exponents) or "")


@pytest.mark.parametrize(
    ("rates", "layer"),
    [(["1/2", "1/2", "1/2"], "middle/kernel"), (["-1/2", 1, "1/2"], "in/kernel")],
    ids=["hidden", "embedding"],
)
def test_a_wrong_exponent_fails_in_its_layer(rates, layer: str):
    result = judge(check(MUP, rates, ADAM, FULL))
    assert failed(result)[0] == layer


def test_a_rate_that_is_too_small_fails_as_well():
    (first,) = (layer for layer in judge(check(MUP, [1, "3/2", 1], ADAM, FULL)).layers if layer.role == "embedding")
    assert first.change.value == pytest.approx(-0.5, abs=0.1)
    assert not first.passed


def test_a_term_that_grows_unseen_is_warned_of():
    """With a constant of 1 muP's readout hardly learns at small widths: its wrong exponent does not show yet."""

    def subject(width: int) -> Subject:
        def params(width: int, seed: int = 0):
            return build(width, jax.random.key(seed))[0]

        exponents = check(MUP, ["1/2", 1, -1], ADAM, FULL)  # in the paper's form, where the readout has a multiplier
        sizes = {"width": width, "base_width": 64, "base": params(64), "other": params(32)}
        plan = prescribe(params(width), exponents=exponents, **sizes, convention=flax)
        return Subject.of(
            plan,
            lambda seed: plan.rescale(params(width, seed)),
            model=forward,
            loss=lambda logits, targets: jnp.mean((logits - targets) ** 2),
            examples=EXAMPLES,
            optimizer=adam(1e-3, plan),
        )

    result = check_coordinates(subject, widths=WIDTHS, seeds=2, steps=3)
    assert result.passed
    (readout,) = (layer for layer in result.layers if layer.role is Role.READOUT)
    assert readout.expected.term == "inherited"
    assert readout.expected.slope == pytest.approx(readout.change.value, abs=0.1)
    assert "the updated term of its change is not the largest at these widths" in (warning(readout) or "")
    assert readout.expected.fastest_slope == pytest.approx(1.5, abs=0.1)
    assert all(warning(layer) is None for layer in result.layers if layer is not readout)


def test_a_readout_that_meets_aligned_changes_is_warned_of():
    """Of the standard parameterization, whose readout starts as n^-1/2; docs/width-4096.md tells what comes of it."""
    readout = judge(solve(STANDARD, ADAM, FULL)).layers[-1]
    assert readout.expected.takeover < min(WIDTHS)
    assert "moves the logits as n^1/2" in (warning(readout) or "")


def test_nothing_passes_that_was_not_seen():
    """A layer in a branch is not measured: silence about it must not look like a verdict."""

    def branching(params, x):
        x = jnp.tanh(x @ params["in"]["kernel"])
        x = jax.lax.cond(x.sum() < jnp.inf, lambda x: jnp.tanh(x @ params["middle"]["kernel"]), lambda x: x, x)
        return x @ params["out"]["kernel"]

    result = judge(solve(MUP, ADAM, FULL), build=lambda n, key: (build(n, key)[0], branching), seeds=1, steps=1)
    assert result.unseen == ("middle/kernel",)
    assert not result.failed
    assert not result.passed


def layer_check(role: Role = Role.HIDDEN, *, size: float = 0, change: float = 0, spread: float = 0, **values):
    def estimate(value: float) -> Estimate:
        return Estimate(value=value, low=value - spread, high=value + spread)

    return LayerCheck(
        layer="x",
        role=role,
        initial=estimate(values.pop("initial", 0)),
        size=estimate(size),
        change=estimate(change),
        expected=Expectation(
            slope=change, term=values.pop("term", "updated"), fastest="updated", fastest_slope=change, **values
        ),
        tolerance=0.15,
    )


def test_activations_may_neither_grow_nor_shrink_but_logits_may_shrink():
    assert layer_check(size=0.1, change=-0.1).passed
    assert not layer_check(size=-0.2).passed
    assert not layer_check(change=0.2).passed
    assert layer_check(Role.READOUT, size=-0.5, change=-0.5).passed
    assert not layer_check(Role.READOUT, change=0.2).passed
    assert not layer_check(change=math.nan).passed
    assert not layer_check(Role.READOUT, size=math.nan).passed


def test_a_verdict_is_settled_when_its_interval_does_not_reach_across_the_tolerance():
    assert layer_check(change=0.05, spread=0.05).settled
    assert not layer_check(change=0.05, spread=0.2).settled
    assert layer_check(change=0.5, spread=0.2).settled
    assert not layer_check(change=0.05, spread=math.inf).settled
    assert layer_check(change=math.nan).settled


def test_advice_tells_initialization_inheritance_and_rates_apart():
    full = solve(STANDARD, ADAM, FULL)
    assert "it starts out as n^0.50" in (advice(layer_check(initial=0.5, size=0.5), full) or "")
    inherited = advice(layer_check(Role.READOUT, change=0.34, term="inherited", omega=0.84), full) or ""
    assert "inherited from the layers below, with ω = 0.84, above the 1/2 assumed" in inherited
    shrinks = advice(layer_check(Role.READOUT, size=-0.5, change=0.3), full) or ""
    assert "its change scales as n^0.30" in shrinks
    assert "needs an exponent about 0.30 lower" in shrinks
    assert "its size grows as n^0.20" in (advice(layer_check(Role.READOUT, size=0.2, term="inherited"), full) or "")
    assert "needs an exponent about 0.30 lower" in (advice(layer_check(change=0.3), full) or "")
    assert "needs an exponent about 0.30 higher" in (advice(layer_check(change=-0.3), full) or "")
    assert "not finite" in (advice(layer_check(change=math.nan), full) or "")


def test_json_has_numbers_or_null():
    found = judge(solve(MUP, ADAM, FULL), seeds=1).to_json()
    assert found["passed"] is True
    assert found["layers"][0]["change"]["interval"] == [None, None]
    assert found["layers"][0]["expected"]["alpha"] is None
    assert isinstance(found["layers"][1]["expected"]["alpha"], float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (64,)}, "widths are \\[64\\]: expected two or more different ones"),
        ({"seeds": 0}, "seeds is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"tolerance": 0.0}, "tolerance is 0.0"),
    ],
)
def test_nonsense_is_refused(options, message: str):
    with pytest.raises(ValueError, match=message):
        check_coordinates(lambda width: pytest.fail("built"), **options)
