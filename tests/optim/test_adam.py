"""Adam and its variants: epsilons, scale invariance, parameter scaling."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.optim import adam, adam_atan2, adam_ps
from widthwise.parameterize import Axes, Rule, Scales, find_roles, ones_like
from widthwise.theory import Role

PARAMS = {"a": jnp.linspace(-1, 1, 24).reshape(4, 6), "b": jnp.ones(5)}
ONES = ones_like(PARAMS)
LAYOUT = find_roles(
    PARAMS,
    rules={
        "a": Rule(role=Role.READOUT, axes=Axes(inputs=(0,), outputs=(1,))),
        "b": Rule(role=Role.EMBEDDING),
    },
)


def gradients(seed: int):
    random = np.random.default_rng(seed)
    return {name: jnp.asarray(random.standard_normal(x.shape, np.float32)) for name, x in PARAMS.items()}


GRADIENTS = [gradients(seed) for seed in range(6)]


def updates(transformation: optax.GradientTransformation, size: float = 1.0, count: int = 6):
    """Give the updates for random gradients times `size`."""
    return jitted(transformation, count)(size)


@functools.lru_cache(maxsize=1)
def jitted(transformation: optax.GradientTransformation, count: int):
    def run(size):
        state, given = transformation.init(PARAMS), []
        for gradient in GRADIENTS[:count]:
            out, state = transformation.update(jax.tree.map(lambda g: g * size, gradient), state, PARAMS)
            given.append(out)
        return given

    return jax.jit(run)


def test_one_epsilon_for_every_leaf_is_optaxs_adam_to_the_bit():
    epsilon = 1e-3
    ours = updates(adam(0.1, replace(ONES, epsilon={"a": 0.25, "b": 0.25}), epsilon=4 * epsilon))
    theirs = updates(optax.adam(0.1, b1=0.9, b2=0.98, eps=epsilon))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_an_epsilon_acts_on_its_own_leaf():
    small, large = (updates(adam(0.1, replace(ONES, epsilon={"a": 1.0, "b": b}), epsilon=1e-3)) for b in (1.0, 1e3))
    for x, y in zip(small, large, strict=True):
        np.testing.assert_array_equal(x["a"], y["a"])
        assert (np.abs(y["b"]) < np.abs(x["b"])).all()


def test_constant_epsilon_is_the_same_for_every_leaf():
    scales = replace(ONES, epsilon={"a": 1e-3, "b": 1e3})
    jax.tree.map(
        np.testing.assert_array_equal,
        updates(adam(0.1, scales.with_constant_epsilon(), epsilon=1e-2)),
        updates(adam(0.1, ONES, epsilon=1e-2)),
    )


def test_without_gradient_and_epsilon_nothing_moves():
    transformation = adam(0.1, ONES, epsilon=0.0)
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    out, _ = transformation.update(zeros, transformation.init(PARAMS), PARAMS)
    assert all((x == 0).all() for x in jax.tree.leaves(out))


ATAN2 = adam_atan2(0.1, ONES)


@settings(max_examples=30)
@given(st.floats(-15, 15))
def test_adam_atan2_is_invariant_to_the_size_of_gradients(exponent: float):
    plain, scaled = updates(ATAN2), updates(ATAN2, size=10.0**exponent)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-7), plain, scaled)


def test_adam_is_not():
    plain, scaled = (updates(adam(0.1, ONES), size=size)[-1]["a"] for size in (1.0, 1e-9))
    assert (np.abs(scaled) < 0.75 * np.abs(plain)).mean() > 0.9


def test_adam_atan2_is_finite_and_still_at_zero_gradients():
    assert all((x == 0).all() for x in jax.tree.leaves(updates(adam_atan2(0.1, ONES), size=0.0)))


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.16, 2.0), (32.0, 32.0)])
def test_the_constants_of_adam_atan2(a: float, b: float):
    """At the first step m = g and √v = |g|, so the update is a·arctan(1/b)."""
    first = updates(adam_atan2(1.0, ONES, a=a, b=b), count=1)[0]["a"]
    np.testing.assert_allclose(np.abs(first), a * np.arctan(1 / b), rtol=1e-5)


def test_adam_atan2_approaches_adam_as_b_grows():
    close = updates(adam_atan2(0.1, ONES, a=1e3, b=1e3))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3), close, updates(adam(0.1, ONES, epsilon=0.0)))


def test_parameter_scaling_makes_steps_relative():
    first = updates(adam_ps(0.1, ONES, LAYOUT), count=1)[0]
    size = float(jnp.sqrt(jnp.mean(PARAMS["a"] ** 2)))
    np.testing.assert_allclose(np.abs(first["a"]), 0.1 * size, rtol=1e-4)


def test_a_small_parameter_is_taken_to_have_optaxs_floor():
    small = jax.tree.map(lambda x: 1e-5 * x, PARAMS)
    theirs = optax.chain(optax.scale_by_adam(0.9, 0.98, 1e-9), optax.scale_by_param_block_rms(1e-3), optax.scale(-0.1))
    ours = adam_ps(0.1, ONES, LAYOUT)
    x, y = (t.update(gradients(0), t.init(small), small)[0] for t in (ours, theirs))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), x, y)


def test_the_floor_is_the_base_floor_times_the_leafs_factor():
    scales = Scales(**{**vars(ONES), "floor": {"a": 1.0, "b": 7.0}})
    zero = jax.tree.map(jnp.zeros_like, PARAMS)
    transformation = adam_ps(1.0, scales, LAYOUT, floor=1e-2)
    out, _ = transformation.update(gradients(0), transformation.init(zero), zero)
    np.testing.assert_allclose(np.abs(out["a"]), 1e-2, rtol=1e-4)
    np.testing.assert_allclose(np.abs(out["b"]), 7e-2, rtol=1e-4)


def test_stacked_layers_are_scaled_each_by_its_own_size():
    params = {"stack": jnp.stack([jnp.full((3, 3), 1.0), jnp.full((3, 3), 5.0)])}
    rule = Rule(role=Role.HIDDEN, axes=Axes(stack=(0,), inputs=(1,), outputs=(2,)))
    layout = find_roles(params, rules={"stack": rule})
    transformation = adam_ps(0.1, ones_like(params), layout=layout)
    gradient = jax.tree.map(jnp.ones_like, params)
    out, _ = transformation.update(gradient, transformation.init(params), params)
    np.testing.assert_allclose(-out["stack"][:, 0, 0], [0.1, 0.5], rtol=1e-5)
