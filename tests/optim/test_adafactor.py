"""Adafactor is factored by what axes are, never by how long they are."""

from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from widthwise.optim import adafactor
from widthwise.parameterize import Axes, Rule, find_roles, ones_like
from widthwise.theory import Role


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def first_update(transformation: optax.GradientTransformation, params, gradient):
    return jax.jit(lambda p, g: transformation.update(g, transformation.init(p), p)[0])(params, gradient)


def heads(width: int):
    """A head-split kernel and its flat twin: Optax factors the first over different axes as heads grow in number."""
    kernel = normal(0, width, width // 8, 8)
    return {"split": kernel, "flat": kernel.reshape(width, width), "bias": ones(width // 8, 8)}


RULES = {
    "split": Rule(role=Role.HIDDEN, axes=Axes(inputs=(0,), outputs=(1, 2))),
    "flat": Rule(role=Role.HIDDEN, axes=Axes(inputs=(0,), outputs=(1,))),
    "bias": Rule(role=Role.EMBEDDING, axes=Axes(outputs=(0, 1))),
}


def matrices(params):
    return find_roles(params, rules={"*": Rule(role=Role.HIDDEN, axes=Axes(inputs=(0,), outputs=(1,)))})


@pytest.mark.parametrize("width", [16, 256])
def test_factoring_is_the_same_at_every_width(width: int):
    params = heads(width)
    layout = find_roles(params, rules=RULES, headless=True)
    state = jax.eval_shape(adafactor(0.1, ones_like(params), layout=layout).init, params)[0]
    assert state.row["split"].shape == (width, 1, 1)
    assert state.column["split"].shape == (1, width // 8, 8)
    assert state.row["flat"].shape == (width, 1)
    assert state.column["flat"].shape == (1, width)
    assert state.full["bias"].shape == (width // 8, 8)
    unused = state.full["split"], state.full["flat"], state.row["bias"], state.column["bias"]
    assert {x.shape for x in unused} == {(1,)}  # what is empty cannot be saved


def test_a_head_split_kernel_trains_as_its_flat_twin():
    params = heads(16)
    layout = find_roles(params, rules=RULES, headless=True)
    transformation = adafactor(0.1, ones_like(params), layout=layout)
    state, update = jax.jit(transformation.init)(params), jax.jit(transformation.update)
    for seed in range(3):
        gradient = normal(seed, 16, 2, 8)
        gradients = {"split": gradient, "flat": gradient.reshape(16, 16), "bias": gradient[0]}
        updates, state = update(gradients, state, params)
        np.testing.assert_allclose(np.asarray(updates["split"]).reshape(16, 16), updates["flat"], rtol=1e-5)


def test_stacked_layers_train_as_separate_ones():
    layers = [normal(i, 6, 4) * np.float32(10) ** i for i in range(2)]
    stacked, single = {"w": np.stack(layers)}, {"w0": layers[0], "w1": layers[1]}
    rules = {"w": Rule(role=Role.HIDDEN, axes=Axes(stack=(0,), inputs=(1,), outputs=(2,)))}
    together = adafactor(0.1, ones_like(stacked), layout=find_roles(stacked, rules=rules))
    plain = Rule(role=Role.HIDDEN, axes=Axes(inputs=(0,), outputs=(1,)))
    apart = adafactor(0.1, ones_like(single), find_roles(single, rules={"*": plain}))
    gradients = [normal(9 + i, 6, 4) * np.float32(100) ** i for i in range(2)]
    joint = first_update(together, stacked, {"w": np.stack(gradients)})
    separate = first_update(apart, single, {"w0": gradients[0], "w1": gradients[1]})
    np.testing.assert_allclose(joint["w"], np.stack([separate["w0"], separate["w1"]]), rtol=1e-5)


def test_updates_are_clipped_to_the_size_of_the_parameter():
    params = {"w": ones(4, 4)}
    transformation = adafactor(1.0, ones_like(params), matrices(params), clip=0.5)
    updates = first_update(transformation, params, {"w": normal(0, 4, 4)})
    assert np.sqrt(np.mean(np.asarray(updates["w"]) ** 2)) <= 0.5 * 1.00001


BOTH = {"w": ones(4, 6), "b": ones(6)}
LAYOUT = find_roles(BOTH, rules={"w": RULES["flat"], "b": Rule(role=Role.EMBEDDING)}, headless=True)


@pytest.mark.parametrize("epsilon", [0.0, 1e-30, 1e-44])
def test_without_gradient_nothing_moves_however_small_epsilon_is(epsilon: float):
    transformation = adafactor(0.1, ones_like(BOTH), LAYOUT, epsilon=epsilon)
    updates = first_update(transformation, BOTH, {"w": 0 * ones(4, 6), "b": 0 * ones(6)})
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(updates))


def test_epsilon_takes_the_square_of_its_factor():
    """It is added to squared gradients, so gradients and factor may be scaled together."""

    def update(size: float):
        scales = replace(ones_like(BOTH), epsilon=jax.tree.map(lambda _: size, BOTH))
        gradients = {"w": np.float32(size) * normal(0, 4, 6), "b": np.float32(size) * normal(1, 6)}
        return first_update(adafactor(0.1, scales, LAYOUT, epsilon=1e-2, clip=1e9), BOTH, gradients)

    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), update(1.0), update(1e-3))


def test_the_floor_follows_its_factor():
    scales = replace(ones_like(BOTH), floor=jax.tree.map(lambda _: 7.0, BOTH))
    updates = first_update(adafactor(1.0, scales, LAYOUT, floor=10.0), BOTH, BOTH)
    np.testing.assert_allclose(np.abs(updates["b"]), 70.0, rtol=1e-4)
