"""The same network, however it is stored: with multipliers or without, with layers in a list or stacked.

The members of a class train identically in exact arithmetic. In float64, twenty steps leave differences of rounding
only. Epsilon and floor are large here, so that they matter.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import widthwise as ww
from tests.planning.network import X, build, loss_and_gradients
from tests.zoo import llama_nnx
from tests.zoo.cases import CASES, trainable
from widthwise.trace.paths import named_leaves

STEPS = 20
KEY = jax.random.key(1)

OPTIMIZERS = {
    "sgd": lambda plan: plan.sgd(0.1, momentum=0.9),
    "adam": lambda plan: plan.adam(0.01, eps=1e-3),
    "adamw": lambda plan: plan.adamw(0.01, eps=1e-3, weight_decay=1.0),
    "adam_atan2": lambda plan: plan.adam_atan2(0.01),
    "lion": lambda plan: plan.lion(1e-3, weight_decay=1.0),
    "adam_ps": lambda plan: plan.adam_ps(0.03, eps=1e-3, floor=0.1),
    "adafactor": lambda plan: plan.adafactor(0.03, epsilon=1e-5, floor=0.1, weight_decay=0.1),
    "muon": lambda plan: plan.muon(0.02, adam_learning_rate=0.01, eps=1e-3, weight_decay=1.0, adam_weight_decay=1.0),
}


@cache
def trained(parameterization: str, optimizer: str, multipliers: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the parameters as they act after training, and the losses."""
    with jax.enable_x64(True):
        plan = ww.plan(
            build,
            width=24,
            base_width=8,
            example=X,
            parameterization=parameterization,
            optimizer=optimizer,
            multipliers=multipliers,
        )
        rule = OPTIMIZERS[optimizer](plan)

        @jax.jit
        def step(stored, state, gradients):
            _, back = jax.vjp(plan.acting, stored)
            updates, state = rule.update(*back(gradients), state, stored)
            stored = optax.apply_updates(stored, updates)
            return stored, state, plan.acting(stored)

        losses = []
        stored = plan.initial(KEY)
        state, params = rule.init(stored), plan.acting(stored)
        for _ in range(STEPS):
            value, gradients = loss_and_gradients(params)
            stored, state, params = step(stored, state, gradients)
            losses.append(float(value))
    return named_leaves(params), np.array(losses)


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]):
    for path, value in one.items():
        assert value.dtype == np.float64
        np.testing.assert_allclose(value, other[path], rtol=1e-9, atol=1e-9 * np.abs(value).max(), err_msg=path)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("parameterization", ["standard", "ntk", "mup", "mean_field"])
def test_a_plan_with_multipliers_trains_as_one_without(parameterization: str, optimizer: str):
    same = {"ntk": "standard", "mean_field": "mup"}.get(parameterization, parameterization)
    params, losses = trained(parameterization, optimizer, True)
    expected, expected_losses = trained(same, optimizer, False)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-9)
    assert_equal(params, expected)
    assert expected_losses[-1] < expected_losses[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_two_classes_train_differently(optimizer: str):
    """Otherwise the test above would show nothing."""
    standard, mup = (trained(name, optimizer, False)[1] for name in ("standard", "mup"))
    assert np.abs(standard - mup).max() > 1e-3


LLAMAS = {case.name.removeprefix("llama-nnx-"): case for case in CASES if case.name.startswith("llama-nnx-")}


@cache
def llama(form: str, optimizer: str) -> ww.Plan:
    case = LLAMAS[form]
    return ww.plan(case.build, width=96, base_width=32, example=case.example, optimizer=optimizer)


def stacked(params: Any) -> Any:
    blocks = [params["blocks"][layer] for layer in range(llama_nnx.LAYERS)]
    return nnx.State({**params, "blocks": jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks)})


def attention(q, k, v, *, is_causal):
    """JAX's own casts to float32 inside, where the last bit of a float64 can make a difference of 1e-7."""
    assert is_causal
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


@cache
def gradient(form: str) -> Any:
    case = LLAMAS[form]
    rebuild = []
    jax.eval_shape(lambda key: rebuild.append(trainable(case.build(96, key))[1]), KEY)

    def loss(params):
        model = rebuild[0](params)
        model.embed.dtype = jnp.float64  # it would cast to the type that it was built with
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.nn, "dot_product_attention", attention)
            return case.loss(model, case.batch)

    return jax.jit(jax.grad(loss))


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_looped_and_scanned_layers_train_alike(optimizer: str):
    plans = {form: llama(form, optimizer) for form in LLAMAS}
    looped = trainable(plans["looped"].init(KEY))[0]
    params = {"looped": looped, "scanned": stacked(looped)}
    with jax.enable_x64(True):
        for form, plan in plans.items():
            rule = OPTIMIZERS[optimizer](plan)
            params[form] = start = jax.tree.map(lambda x: x.astype(jnp.float64), params[form])
            state = rule.init(start)

            @jax.jit
            def update(params, state, gradients, rule=rule):
                updates, state = rule.update(gradients, state, params)
                return optax.apply_updates(params, updates), state

            for _ in range(STEPS):
                params[form], state = update(params[form], state, gradient(form)(params[form]))
            moved = jax.tree.map(lambda x, y: jnp.abs(x - y).max(), start, params[form])
            assert min(jax.tree.leaves(moved)) > 1e-3
        assert_equal(named_leaves(stacked(params["looped"])), named_leaves(params["scanned"]))
