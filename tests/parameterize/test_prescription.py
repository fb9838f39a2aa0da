"""Exponents become the right numbers for every leaf, and leave nothing hidden behind."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from widthwise.parameterize import UNSCALED, Axes, Constants, Rule, explain, flax, ones_like, prescribe, stack
from widthwise.theory import (
    ADAFACTOR,
    ADAM,
    FAMILIES,
    FULL,
    MUP,
    NONE,
    NTK,
    PARAMETERIZATIONS,
    SGD,
    STANDARD,
    Alignment,
    OptimizerFamily,
    Parameterization,
    Role,
    check,
    solve,
)

BASE = 16


def model(n: int, seed: int = 0):
    """Initialized as people do: fan-in everywhere, ones for the scale, zeros for biases."""
    random = np.random.default_rng(seed)

    def kernel(i: int, o: int):
        return jnp.asarray(random.standard_normal((i, o), np.float32) / i**0.5)

    return {
        "in": {"kernel": kernel(5, n), "bias": jnp.zeros(n)},
        "norm": {"scale": jnp.ones(n)},
        "mid": {"kernel": kernel(n, 4 * n)},
        "out": {"kernel": kernel(4 * n, 3), "bias": jnp.zeros(3)},
    }


def plan_for(n: int, exponents, **options):
    options = {"other": model(2 * n), "convention": flax, "base_width": BASE, **options}
    return prescribe(model(n), exponents=exponents, width=n, **options)


def rms(x) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(x, np.float64)))))


@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=list(PARAMETERIZATIONS))
@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_scales_are_the_powers_that_the_exponents_name(network: Parameterization, family: OptimizerFamily):
    exponents = solve(network, family, FULL)
    constants = Constants(embedding=2.0, hidden=3.0, readout=5.0)
    n = 64
    scales = plan_for(n, exponents, constants=constants).scales
    assert exponents.rates is not None
    assert exponents.gradients is not None
    for name, index, leaf_n, constant in (("in", 0, n, 2.0), ("mid", 1, n, 3.0), ("out", 2, 4 * n, 5.0)):
        layer = network.layers[index]
        rate, g = exponents.rates[index], exponents.gradients.at_init[index]
        np.testing.assert_allclose(scales.init_std[name]["kernel"], leaf_n ** float(-layer.b))
        np.testing.assert_allclose(scales.multiplier[name]["kernel"], leaf_n ** float(-layer.a))
        np.testing.assert_allclose(scales.learning_rate[name]["kernel"], constant * (n / BASE) ** float(-rate))
        np.testing.assert_allclose(scales.epsilon[name]["kernel"], (n / BASE) ** float(-g))
    assert jax.tree.leaves(scales.floor) == [1.0] * 6


def test_at_the_base_width_rates_and_epsilons_are_the_base_ones():
    scales = plan_for(BASE, solve(MUP, ADAM, NONE)).scales
    assert set(jax.tree.leaves((scales.learning_rate, scales.epsilon))) == {1.0}


def test_unscaled_leaves_are_left_alone():
    scales = plan_for(64, solve(MUP, ADAM, FULL)).scales
    assert {getattr(scales, f)["out"]["bias"] for f in ("multiplier", "learning_rate", "epsilon", "floor")} == {1.0}


@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=list(PARAMETERIZATIONS))
def test_with_a_base_the_model_starts_there_exactly_as_it_was_initialized(network: Parameterization):
    base = model(BASE)
    plan = plan_for(BASE, solve(network, ADAM, FULL), base=base)
    effective = plan.effective(plan.rescale(base))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), effective, base)


@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=list(PARAMETERIZATIONS))
def test_with_a_base_effective_sizes_follow_a_plus_b(network: Parameterization):
    n, base = 64, model(BASE)
    plan = plan_for(n, solve(network, ADAM, FULL), base=base)
    effective = plan.effective(plan.rescale(model(n, seed=1)))
    for name, layer in (("in", network.embedding), ("mid", network.hidden[0]), ("out", network.readout)):
        expected = rms(base[name]["kernel"]) * (n / BASE) ** float(-layer.total)
        assert rms(effective[name]["kernel"]) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(effective["norm"]["scale"], 1.0, rtol=1e-6)
    assert not effective["in"]["bias"].any()


def test_rescaling_keeps_directions_and_twice_is_once():
    params = model(64)
    plan = plan_for(64, solve(MUP, ADAM, FULL), base=model(BASE))
    once = plan.rescale(params)
    jax.tree.map(np.testing.assert_array_equal, plan.rescale(once), once)
    ratio = once["mid"]["kernel"] / params["mid"]["kernel"]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)


def test_rescaling_acts_on_each_of_stacked_layers():
    params = {"blocks": jnp.stack([jnp.ones((8, 8)), 7 * jnp.ones((8, 8))]), "out": jnp.ones((8, 2))}
    rules = {
        "blocks": Rule(role=Role.HIDDEN, axes=Axes(stack=(0,), inputs=(1,), outputs=(2,))),
        "out": Rule(role=Role.READOUT, axes=Axes(inputs=(0,), outputs=(1,))),
    }
    plan = prescribe(params, exponents=solve(STANDARD, ADAM, FULL), width=8, base_width=8, rules=rules)
    assert [rms(layer) for layer in plan.rescale(params)["blocks"]] == pytest.approx([8**-0.5] * 2)


def test_with_a_base_each_of_stacked_layers_starts_as_it_was_initialized():
    def stacked(n: int):
        layers = jnp.stack([jnp.full((n, n), 0.24), jnp.full((n, n), 2.5)])
        return {"blocks": layers, "out": jnp.ones((n, 2))}

    rules = {
        "blocks": Rule(axes=Axes(stack=(0,), inputs=(1,), outputs=(2,))),
        "out": Rule(axes=Axes(inputs=(0,), outputs=(1,))),
    }
    options = {"exponents": solve(NTK, ADAM, FULL), "base_width": 8, "rules": rules, "base": stacked(8)}
    plan = prescribe(stacked(8), width=8, other=stacked(16), **options)
    effective = plan.effective(plan.rescale(stacked(8)))
    np.testing.assert_allclose(effective["blocks"][:, 0, 0], [0.24, 2.5], rtol=1e-5)
    wide = prescribe(stacked(32), width=32, other=stacked(16), **options)
    effective = wide.effective(wide.rescale(stacked(32)))
    np.testing.assert_allclose(effective["blocks"][:, 0, 0], [0.12, 1.25], rtol=1e-5)
    assert explain(wide).rows[0].init_std == pytest.approx(rms([0.12, 1.25]) * 32**0.5, rel=1e-5)


def test_unscaled_leaves_are_not_rescaled():
    plan = plan_for(64, solve(MUP, ADAM, FULL), base=model(BASE))
    params = {**model(64), "out": {**model(64)["out"], "bias": jnp.array([1.0, 2.0, 3.0])}}
    np.testing.assert_array_equal(plan.rescale(params)["out"]["bias"], [1.0, 2.0, 3.0])


def test_random_biases_are_not_blown_up_without_a_base():
    params = {**model(64), "in": {**model(64)["in"], "bias": jnp.linspace(-0.1, 0.1, 64)}}
    with pytest.raises(ValueError, match=r"'in/bias' is not constant, .*: give `base` to prescribe"):
        plan_for(64, solve(MUP, ADAM, FULL)).rescale(params)
    plan_for(64, solve(MUP, ADAM, FULL), base=model(BASE)).rescale(params)


def test_multipliers_act_in_float32_on_bfloat16_parameters():
    plan = plan_for(48, solve(MUP, ADAM, FULL))
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), model(48))
    expected = (half["out"]["kernel"].astype(jnp.float32) * (4 * 48) ** -0.5).astype(jnp.bfloat16)
    np.testing.assert_array_equal(plan.effective(half)["out"]["kernel"], expected)
    lanes = jax.vmap(lambda scales: scales.effective(half))(stack([plan.scales] * 2))
    assert lanes["out"]["kernel"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(lanes["out"]["kernel"][1], expected)


def test_moving_leaves_parameters_alone_that_are_not_used_linearly():
    plan = plan_for(64, solve(NTK, ADAM, FULL), rules={"mid/kernel": Rule(linear=False)})
    assert plan.move({Role.HIDDEN: "1/2"}).scales.multiplier["mid"]["kernel"] == 1.0
    with pytest.raises(ValueError, match="'hiden' is not a role"):
        plan.move({"hiden": "1/2"})


def test_pretrained_weights_act_unchanged_when_adopted():
    weights = model(64)
    plan = plan_for(64, solve(MUP, ADAM, FULL))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), plan.effective(plan.adopt(weights)), weights)


def test_drawn_parameters_start_at_the_prescribed_size():
    plan = plan_for(64, solve(NTK, ADAM, FULL), rules={"in/kernel": Rule(init=0.01)})
    initial = plan.scales.initial(jax.tree.map(jnp.ones_like, model(64)))
    assert float(initial["in"]["kernel"][0, 0]) == pytest.approx(0.01)
    assert float(initial["mid"]["kernel"][0, 0]) == 1.0


def test_a_parameter_that_is_not_used_linearly_gets_no_multiplier_but_the_same_effective_size_and_step():
    exponents = solve(NTK, ADAM, FULL)
    linear, other = (
        plan_for(64, exponents, rules={"out/kernel": Rule(linear=is_linear)}).scales for is_linear in (True, False)
    )

    def of(scales, name):
        return getattr(scales, name)["out"]["kernel"]

    assert of(linear, "multiplier") == 1 / 16
    assert of(other, "multiplier") == 1.0
    assert of(other, "init_std") == of(linear, "init_std") * of(linear, "multiplier")
    assert of(other, "learning_rate") == of(linear, "learning_rate") * of(linear, "multiplier")


@pytest.mark.parametrize(
    ("family", "correction"), [(SGD, 2), (ADAM, 1), (ADAFACTOR, 0)], ids=["sgd", "adam", "adafactor"]
)
def test_moving_multiplies_every_scale_by_its_power_of_the_leafs_n(family: OptimizerFamily, correction: int):
    before = plan_for(64, solve(STANDARD, family, FULL))
    after = before.move({Role.READOUT: "1/2"})
    m = 4 * 64
    powers = {"multiplier": -0.5, "init_std": 0.5, "learning_rate": correction * 0.5, "epsilon": -0.5, "floor": 0.5}
    for name, power in powers.items():
        old, new = getattr(before.scales, name), getattr(after.scales, name)
        assert new["out"]["kernel"] == pytest.approx(old["out"]["kernel"] * m**power)
        assert new["mid"] == old["mid"]
    assert after.exponents.parameterization.readout.a == Fraction(1, 2)
    assert after.exponents.verdict == before.exponents.verdict


def test_scales_of_several_runs_stack_into_lanes():
    lanes = [plan_for(64, solve(network, ADAM, FULL)).scales for network in (STANDARD, NTK)]
    stacked = stack(lanes)
    assert stacked.multiplier["mid"]["kernel"].tolist() == [1.0, 0.125]
    params = jax.tree.map(lambda x: jnp.stack([x, x]), model(64))
    effective = jax.vmap(lambda scales, p: scales.effective(p))(stacked, params)
    np.testing.assert_allclose(effective["mid"]["kernel"][1], 0.125 * params["mid"]["kernel"][1], rtol=1e-6)


def test_the_scales_of_a_plain_model_change_nothing():
    params = model(8)
    jax.tree.map(np.testing.assert_array_equal, ones_like(params).effective(params), params)


def test_effective_parameters_keep_their_type():
    plan = plan_for(64, solve(MUP, ADAM, FULL))
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), model(64))
    assert {x.dtype for x in jax.tree.leaves(plan.effective(half))} == {jnp.dtype(jnp.bfloat16)}


def test_constants_are_above_zero():
    with pytest.raises(ValueError, match="the constant of hidden is -1: expected a number above 0"):
        Constants(hidden=-1)


def test_own_rates_can_be_prescribed():
    scales = plan_for(64, check(STANDARD, [0, 0, 0], ADAM, FULL)).scales
    assert set(jax.tree.leaves(scales.learning_rate)) == {1.0}


def test_explain_squares_the_factor_of_an_epsilon_that_is_added_to_squares():
    plan = plan_for(64, solve(MUP, ADAFACTOR, FULL))
    plain, squared = (explain(plan, epsilon=1e-30, epsilon_power=power).rows[2].epsilon for power in (1, 2))
    assert plain is not None
    assert squared == pytest.approx(plain**2 / 1e-30)


def test_explain_shows_every_leaf_to_people_and_programs():
    plan = plan_for(64, solve(MUP, ADAM, FULL))
    explanation = explain(plan, learning_rate=0.1, epsilon=1e-8)
    rows = {row["path"]: row for row in explanation.to_json()}
    assert rows["mid/kernel"] == {
        "path": "mid/kernel",
        "shape": [64, 256],
        "role": "hidden",
        "fan_in": 64,
        "init_std": 0.125,
        "multiplier": 1.0,
        "learning_rate": pytest.approx(0.025),
        "epsilon": pytest.approx(1e-8 / 4),
    }
    assert rows["out/bias"]["role"] == "unscaled"
    assert rows["out/bias"]["init_std"] is None
    lines = str(explanation).splitlines()
    assert len(lines) == 2 + len(rows)
    assert any(
        line.split() == ["mid/kernel", "64×256", "hidden", "64", "0.125", "1", "0.025", "2.5e-09"] for line in lines
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"width": 0}, "width is 0"),
        ({"width": 64.0}, "width is 64.0: expected a whole number"),
        ({"exponents": MUP}, r"expected the result of solve\(...\) or check"),
        ({"base": model(8)}, "'in/bias' has shape .* expected a factor of width / base_width = 4"),
        ({"base": model(64)}, "'in/bias' has shape .* expected a factor of width / base_width = 4"),
        ({"base": {**model(BASE), "norm": {"scale": jnp.ones((1, 16))}}}, "'norm/scale' has shape"),
        ({"base_width": -1}, "base_width is -1"),
        (
            {"exponents": solve(Parameterization.of(embedding=(0, 0), hidden=(0, 0), readout=(0, 1)), ADAM, FULL)},
            "unstable at init",
        ),
        (
            {"exponents": solve(MUP.with_hidden_layers(2), ADAM, Alignment.of(alpha=1, omega="3/4", u=1))},
            "2 hidden layers that differ",
        ),
        ({"exponents": solve(MUP.with_hidden_layers(0), ADAM, FULL)}, "0 hidden layers that do not exist"),
        ({"base": jax.eval_shape(lambda: model(BASE))}, "'in/bias' of `base` is only a shape"),
        ({"rules": {"nothing": Rule(role=UNSCALED)}}, "rule 'nothing' applies to nothing"),
    ],
)
def test_what_cannot_be_prescribed_is_refused(options, named: str):
    arguments = {"exponents": solve(MUP, ADAM, FULL), "width": 64, "base_width": BASE, **options}
    with pytest.raises(ValueError, match=named):
        prescribe(model(64), other=model(32), convention=flax, **arguments)


def test_rescaling_in_bfloat16_corrects_what_is_a_few_percent_off():
    exponents = solve(STANDARD, ADAM, FULL)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), model(64))
    plan = prescribe(half, exponents=exponents, width=64, base_width=64, other=model(32), base=half, convention=flax)
    wrong = jax.tree.map(lambda x: (1.42 * x).astype(jnp.bfloat16), half)
    for before, after in zip(jax.tree.leaves(half), jax.tree.leaves(plan.rescale(wrong)), strict=True):
        np.testing.assert_allclose(np.asarray(before, np.float32), np.asarray(after, np.float32), rtol=0.02)


def test_a_model_of_another_width_cannot_be_rescaled():
    plan = prescribe(
        model(64), exponents=solve(MUP, ADAM, FULL), width=64, base_width=32, other=model(32), convention=flax
    )
    with pytest.raises(ValueError, match=r"has shape .*: the plan is for a model with"):
        plan.rescale(model(128))


@pytest.mark.parametrize("value", [1e-4, -2.0])
def test_without_a_base_constant_vectors_are_not_overwritten(value: float):
    def scaled(n: int):
        return {**model(n), "scale": jnp.full(n, value)}

    options = {"exponents": solve(STANDARD, ADAM, FULL), "width": 64, "base_width": 32, "other": scaled(32)}
    plan = prescribe(scaled(64), **options, convention=flax)
    with pytest.raises(ValueError, match=f"'scale' is {value:g}, and would be made 1: give `base`"):
        plan.rescale(scaled(64))
    plan = prescribe(scaled(64), **options, convention=flax, rules={"scale": Rule(init=abs(value))})
    np.testing.assert_allclose(plan.rescale(scaled(64))["scale"], value)
