"""Rescaling brings freshly built parameters to the planned size, and changes nothing else."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import widthwise as ww
from tests.planning.network import X, build

KEY = jax.random.key(5)


def rms(x: Any, axis: Any = None) -> np.ndarray:
    return np.sqrt(np.mean(np.square(np.asarray(x, np.float64)), axis=axis))


@pytest.fixture(scope="module")
def plan() -> ww.Plan:
    return ww.plan(build, width=32, base_width=8, example=X)


def test_every_kernel_gets_its_size_at_the_base_width_times_its_factor(plan: ww.Plan):
    """The network's own initialization follows the fan-in, so only the readout differs from it."""
    found, base = plan.init(KEY), build(8, jax.random.key(0))[0]
    for name, factor in {"in": 1, "up": 4**-0.5, "down": 16**-0.5, "out": 1 / 4}.items():
        assert rms(found[name]["kernel"]) == pytest.approx(factor * rms(base[name]["kernel"]), rel=1e-6)


def test_sizes_are_the_same_for_every_draw_and_directions_are_not(plan: ww.Plan):
    one, other = (plan.init(jax.random.key(seed))["up"]["kernel"] for seed in (1, 2))
    assert rms(one) == pytest.approx(rms(other), rel=1e-6)
    assert abs(np.vdot(one, other)) < 0.2 * np.vdot(one, one)


def test_directions_are_kept(plan: ww.Plan):
    built = build(32, KEY)[0]
    for x, y in zip(jax.tree.leaves(built), jax.tree.leaves(plan.rescale(built)), strict=True):
        ratio = np.asarray(y)[np.asarray(x) != 0] / np.asarray(x)[np.asarray(x) != 0]
        np.testing.assert_allclose(ratio, ratio.flat[0] if ratio.size else 1, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("times", [1.0, 1.4, 1e-3, 50.0])
def test_rescaling_twice_is_rescaling_once(plan: ww.Plan, dtype: Any, times: float):
    built = jax.tree.map(lambda x: (x * times).astype(dtype), build(32, KEY)[0])
    once = plan.rescale(built)
    twice = plan.rescale(once)
    for x, y in zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True):
        assert x.dtype == dtype
        assert np.array_equal(x, y)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_parameter_of_the_wrong_size_is_corrected(plan: ww.Plan, dtype: Any):
    right = jax.tree.map(lambda x: x.astype(dtype), plan.init(KEY))
    wrong = right | {"up": right["up"] | {"kernel": (right["up"]["kernel"] * 1.4).astype(dtype)}}
    found, expected = rms(plan.rescale(wrong)["up"]["kernel"]), plan.base_sizes["up/kernel"].item() / 2
    assert rms(wrong["up"]["kernel"]) == pytest.approx(1.4 * expected, rel=0.01)
    assert found == pytest.approx(expected, rel=1e-5 if dtype == jnp.float32 else 2e-3)


def test_the_base_width_need_not_be_of_the_same_type(plan: ww.Plan):
    half = plan.rescale(jax.tree.map(lambda x: x.astype(jnp.bfloat16), build(32, KEY)[0]))
    full = plan.rescale(build(32, KEY)[0])
    assert rms(half["out"]["kernel"]) == pytest.approx(rms(full["out"]["kernel"]), rel=2e-3)


def constants(width, key):
    """Vectors with constants, as many models have them, and one array for two biases."""
    keys = jax.random.split(key)
    nothing = jnp.zeros(width)
    params = {
        "in": jax.random.normal(keys[0], (5, width)),
        "layer_scale": jnp.full(width, 1e-4),
        "forget_bias": jnp.full(width, -2.0),
        "one": nothing,
        "other": nothing,
        "out": jax.random.normal(keys[1], (width, 3)),
        "temperature": jnp.full((), 0.07),
    }
    return params, use_constants


def use_constants(params, x):
    x = x @ params["in"] + params["one"]
    x = x + params["layer_scale"] * jax.nn.sigmoid(x + params["forget_bias"]) + params["other"]
    return x @ params["out"] / params["temperature"]


@pytest.mark.parametrize("parameterization", ["standard", "mup"])
def test_constants_keep_their_value(parameterization: str):
    plan = ww.plan(constants, width=32, base_width=8, example=X, parameterization=parameterization)
    found = plan.init(KEY)
    np.testing.assert_allclose(found["layer_scale"], 1e-4, rtol=1e-6)
    np.testing.assert_allclose(found["forget_bias"], -2, rtol=1e-6)
    assert found["temperature"] == jnp.float32(0.07)
    assert not found["one"].any()
    assert not found["other"].any()


def stacked(width, key, *, sizes):
    keys = jax.random.split(key, 3)
    size = jnp.asarray(sizes)[:, None, None]
    params = {
        "in": jax.random.normal(keys[0], (5, width)),
        "blocks": size * jax.random.normal(keys[1], (len(sizes), width, width)) * width**-0.5,
        "out": jax.random.normal(keys[2], (width, 3)),
    }
    return params, scan_blocks


def scan_blocks(params, x):
    x, _ = jax.lax.scan(lambda x, w: (x + jnp.tanh(x @ w), None), x @ params["in"], params["blocks"])
    return x @ params["out"]


def test_stacked_layers_keep_their_own_sizes():
    """The second of three layers is smaller on purpose, and the third starts at zero."""
    plan = ww.plan(partial(stacked, sizes=(1.0, 0.1, 0.0)), width=32, base_width=8, example=X)
    assert plan.base_sizes["blocks"].shape == (3, 1, 1)
    found = rms(plan.init(KEY)["blocks"], axis=(1, 2))
    np.testing.assert_allclose(found, plan.base_sizes["blocks"].ravel() / 2, rtol=1e-6)
    assert found[1] == pytest.approx(0.1 * found[0], rel=0.3)
    assert found[2] == 0


def test_a_layer_of_a_stack_that_is_wrong_is_corrected_alone():
    right, wrong = (partial(stacked, sizes=sizes) for sizes in ((1.0, 1.0), (1.0, 7.0)))
    plan = ww.plan(right, width=32, base_width=8, example=X)
    one, other = (plan.rescale(build(32, KEY)[0])["blocks"] for build in (right, wrong))
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_parameters_that_start_at_zero_stay_zero():
    def zero_readout(width, key):
        params, apply = build(width, key)
        return params | {"out": {"kernel": jnp.zeros((width, 3)), "bias": jnp.zeros(3)}}, apply

    plan = ww.plan(zero_readout, width=32, base_width=8, example=X)
    assert not plan.init(KEY)["out"]["kernel"].any()


def test_a_zero_at_the_base_width_makes_a_zero():
    """The planned size is what the base width has: a model that differs there cannot be the same model."""
    plan = ww.plan(partial(stacked, sizes=(0.0, 0.0)), width=32, base_width=8, example=X)
    assert not plan.rescale(partial(stacked, sizes=(1.0, 1.0))(32, KEY)[0])["blocks"].any()


def test_rescaling_works_under_jit(plan: ww.Plan):
    compiled = jax.jit(plan.init)(KEY)
    for x, y in zip(jax.tree.leaves(compiled), jax.tree.leaves(plan.init(KEY)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("parameterization", ["ntk", "mup", "mean_field"])
def test_stored_parameters_act_with_the_planned_size(parameterization: str):
    options: Any = {"width": 32, "base_width": 8, "example": X, "parameterization": parameterization}
    stored = ww.plan(build, multipliers=True, **options)
    plain = ww.plan(build, **options)
    acting = stored.effective(stored.init(KEY))
    for x, y in zip(jax.tree.leaves(acting), jax.tree.leaves(plain.init(KEY)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)
