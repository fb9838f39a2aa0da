"""At the base width a plan is the plain model with the plain optimizer, bit for bit."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import widthwise as ww
from tests.planning.network import X, build, train
from tests.zoo.cases import CASES, trainable
from widthwise.trace.paths import named_leaves

KEY = jax.random.key(3)


class Linen(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.LayerNorm()(nn.Dense(self.width)(x)))


def assert_identical(found: Any, expected: Any):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, x), y in zip(named_leaves(found).items(), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        assert np.array_equal(x, y), path


def at_base_width(optimizer: str = "adamw", parameterization: str = "mup") -> ww.Plan:
    return ww.plan(build, width=8, base_width=8, example=X, optimizer=optimizer, parameterization=parameterization)


@pytest.mark.parametrize("parameterization", ["standard", "ntk", "mup", "mean_field"])
def test_init_returns_what_build_returns(parameterization: str):
    assert_identical(at_base_width(parameterization=parameterization).init(KEY), build(8, KEY)[0])


@pytest.mark.parametrize("name", ["gpt2-linen-tied", "llama-nnx-scanned", "vit-equinox"])
def test_init_returns_a_module_of_the_framework_as_it_was_built(name: str):
    (case,) = (case for case in CASES if case.name == name)
    plan = ww.plan(case.build, width=32, base_width=32, example=case.example, call=case.call)
    found, expected = plan.init(KEY), case.build(32, KEY)
    if isinstance(expected, tuple):
        expected = expected[0]
        assert_identical(found, expected)
    else:
        assert type(found) is type(expected)
        assert isinstance(found, nnx.Module | eqx.Module)
        assert_identical(trainable(found)[0], trainable(expected)[0])


def test_a_linen_module_is_initialized_with_the_example():
    plan = ww.plan(Linen, width=16, base_width=16, example=jnp.ones((1, 5)))
    assert_identical(plan.init(KEY), Linen(16).init(KEY, jnp.ones((1, 5)))["params"])


def test_multipliers_are_one():
    plan = ww.plan(build, width=8, base_width=8, example=X, multipliers=True)
    assert_identical(plan.effective(plan.init(KEY)), build(8, KEY)[0])


def is_matrix(params: Any) -> Any:
    return jax.tree.map(lambda x: x.ndim > 1, params)


@pytest.mark.parametrize(
    ("name", "planned", "plain"),
    [
        ("adamw", lambda plan: plan.adamw(3e-3), lambda: optax.adamw(3e-3, mask=is_matrix)),
        (
            "adamw",
            lambda plan: plan.adamw(3e-3, b1=0.8, b2=0.95, eps=1e-4, weight_decay=0.1, nesterov=True),
            lambda: optax.adamw(3e-3, b1=0.8, b2=0.95, eps=1e-4, weight_decay=0.1, nesterov=True, mask=is_matrix),
        ),
        ("adam", lambda plan: plan.adam(3e-3, eps_root=1e-9), lambda: optax.adam(3e-3, eps_root=1e-9)),
        ("sgd", lambda plan: plan.sgd(0.1), lambda: optax.sgd(0.1)),
        (
            "sgd",
            lambda plan: plan.sgd(0.1, momentum=0.9, nesterov=True),
            lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
        ),
        ("lion", lambda plan: plan.lion(1e-3), lambda: optax.lion(1e-3, mask=is_matrix)),
        (
            "lion",
            lambda plan: plan.lion(optax.linear_schedule(1e-3, 0, 5), mask=None, weight_decay=0.0),
            lambda: optax.lion(optax.linear_schedule(1e-3, 0, 5), weight_decay=0.0),
        ),
    ],
)
def test_an_optimizer_is_the_one_it_is_named_after(name: str, planned: Any, plain: Any):
    start = build(8, KEY)[0]
    found = train(start, planned(at_base_width(name)))
    assert_identical(found, train(start, plain()))
    assert min(np.abs(x - y).max() for x, y in zip(jax.tree.leaves(start), jax.tree.leaves(found), strict=True)) > 0


def test_optax_directions_are_not_changed():
    start = build(8, KEY)[0]
    planned = optax.chain(at_base_width().around(optax.scale_by_amsgrad()), optax.scale_by_learning_rate(1e-3))
    assert_identical(train(start, planned), train(start, optax.amsgrad(1e-3)))


def test_at_another_width_the_optimizer_is_not_the_plain_one():
    """Otherwise the tests above would hold for a plan that does nothing."""
    plan = ww.plan(build, width=16, base_width=8, example=X)
    start = build(16, KEY)[0]
    assert not np.array_equal(
        train(start, plan.adam(3e-3))["up"]["kernel"], train(start, optax.adam(3e-3))["up"]["kernel"]
    )
