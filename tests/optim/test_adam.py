"""Adam and its variants: epsilons, scale invariance, parameter scaling."""

import functools
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.optim import adam, adam_atan2, adam_ps
from widthwise.parameterize import Axes, Rule, Scales, find_roles, ones_like
from widthwise.theory import Role

PARAMS = {"a": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), "b": np.ones(5, np.float32)}
ONES = ones_like(PARAMS)
LAYOUT = find_roles(
    PARAMS,
    rules={
        "a": Rule(role=Role.READOUT, axes=Axes(inputs=(0,), outputs=(1,))),
        "b": Rule(role=Role.EMBEDDING),
    },
)


GRADIENTS = {name: np.random.default_rng(0).standard_normal((6, *x.shape), np.float32) for name, x in PARAMS.items()}
FIRST = jax.tree.map(lambda x: x[0], GRADIENTS)


def updates(transformation: optax.GradientTransformation, size: float = 1.0):
    """Return the updates of all steps for random gradients times `size`."""
    return jax.tree.map(np.asarray, jitted(transformation)(size))


@functools.lru_cache(maxsize=1)
def jitted(transformation: optax.GradientTransformation):
    def run(size):
        def step(state, gradient):
            out, state = transformation.update(jax.tree.map(lambda g: g * size, gradient), state, PARAMS)
            return state, out

        return jax.lax.scan(step, transformation.init(PARAMS), GRADIENTS)[1]

    return jax.jit(run)


def update(transformation: optax.GradientTransformation, params, gradient):
    """Return the first update."""
    return jax.jit(lambda p, g: transformation.update(g, transformation.init(p), p)[0])(params, gradient)


def test_one_epsilon_for_every_leaf_is_optaxs_adam_to_the_bit():
    epsilon = 1e-3
    ours = updates(adam(0.1, replace(ONES, epsilon={"a": 0.25, "b": 0.25}), epsilon=4 * epsilon))
    theirs = updates(optax.adam(0.1, b1=0.9, b2=0.98, eps=epsilon))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_an_epsilon_acts_on_its_own_leaf():
    small, large = (updates(adam(0.1, replace(ONES, epsilon={"a": 1.0, "b": b}), epsilon=1e-3)) for b in (1.0, 1e3))
    np.testing.assert_array_equal(small["a"], large["a"])
    assert (np.abs(large["b"]) < np.abs(small["b"])).all()


def test_constant_epsilon_is_the_same_for_every_leaf():
    scales = replace(ONES, epsilon={"a": 1e-3, "b": 1e3})
    jax.tree.map(
        np.testing.assert_array_equal,
        updates(adam(0.1, scales.with_constant_epsilon(), epsilon=1e-2)),
        updates(adam(0.1, ONES, epsilon=1e-2)),
    )


def test_without_gradient_and_epsilon_nothing_moves():
    out = updates(adam(0.1, ONES, epsilon=0.0), size=0.0)
    assert all((x == 0).all() for x in jax.tree.leaves(out))


ADAM, ATAN2 = adam(0.1, ONES), adam_atan2(0.1, ONES)


@settings(max_examples=30)
@given(st.floats(-15, 15))
def test_adam_atan2_is_invariant_to_the_size_of_gradients(exponent: float):
    plain, scaled = updates(ATAN2), updates(ATAN2, size=10.0**exponent)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-7), plain, scaled)


def test_adam_is_not():
    plain, scaled = (updates(ADAM, size=size)["a"][-1] for size in (1.0, 1e-9))
    assert (np.abs(scaled) < 0.75 * np.abs(plain)).mean() > 0.9


def test_adam_atan2_is_finite_and_still_at_zero_gradients():
    assert all((x == 0).all() for x in jax.tree.leaves(updates(ATAN2, size=0.0)))


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.16, 2.0), (32.0, 32.0)])
def test_the_constants_of_adam_atan2(a: float, b: float):
    """At the first step m = g and √v = |g|, so the update is a·arctan(1/b)."""
    first = update(adam_atan2(1.0, ONES, a=a, b=b), PARAMS, FIRST)["a"]
    np.testing.assert_allclose(np.abs(first), a * np.arctan(1 / b), rtol=1e-5)


def test_adam_atan2_approaches_adam_as_b_grows():
    close = updates(adam_atan2(0.1, ONES, a=1e3, b=1e3))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3), close, updates(adam(0.1, ONES, epsilon=0.0)))


def test_parameter_scaling_makes_steps_relative():
    first = update(adam_ps(0.1, ONES, LAYOUT), PARAMS, FIRST)
    size = np.sqrt(np.mean(PARAMS["a"] ** 2))
    np.testing.assert_allclose(np.abs(first["a"]), 0.1 * size, rtol=1e-4)


def test_a_small_parameter_is_taken_to_have_optaxs_floor():
    small = jax.tree.map(lambda x: np.float32(1e-5) * x, PARAMS)
    theirs = optax.chain(optax.scale_by_adam(0.9, 0.98, 1e-9), optax.scale_by_param_block_rms(1e-3), optax.scale(-0.1))
    ours = adam_ps(0.1, ONES, LAYOUT)
    x, y = (update(transformation, small, FIRST) for transformation in (ours, theirs))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), x, y)


def test_the_floor_is_the_base_floor_times_the_leafs_factor():
    scales = Scales(**{**vars(ONES), "floor": {"a": 1.0, "b": 7.0}})
    zero = jax.tree.map(np.zeros_like, PARAMS)
    out = update(adam_ps(1.0, scales, LAYOUT, floor=1e-2), zero, FIRST)
    np.testing.assert_allclose(np.abs(out["a"]), 1e-2, rtol=1e-4)
    np.testing.assert_allclose(np.abs(out["b"]), 7e-2, rtol=1e-4)


def test_stacked_layers_are_scaled_each_by_its_own_size():
    params = {"stack": np.stack([np.full((3, 3), size, np.float32) for size in (1, 5)])}
    rule = Rule(role=Role.HIDDEN, axes=Axes(stack=(0,), inputs=(1,), outputs=(2,)))
    layout = find_roles(params, rules={"stack": rule})
    out = update(adam_ps(0.1, ones_like(params), layout=layout), params, jax.tree.map(np.ones_like, params))
    np.testing.assert_allclose(-np.asarray(out["stack"])[:, 0, 0], [0.1, 0.5], rtol=1e-5)
