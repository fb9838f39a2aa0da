"""Multipliers cannot be forgotten: stored parameters are not what a model can be called with."""

import jax
import jax.numpy as jnp
import pytest

import widthwise as ww
from widthwise.planning import Stored


def build(width, key):
    keys = jax.random.split(key)
    return {"in": jax.random.normal(keys[0], (3, width)), "out": jax.random.normal(keys[1], (width, 2))}, apply


def apply(params, x):
    return jnp.tanh(x @ params["in"]) @ params["out"]


X = jnp.ones((4, 3))
PLAN = ww.plan(build, width=32, base_width=8, example=X, parameterization="ntk", multipliers=True)


def test_a_model_cannot_be_called_with_stored_parameters():
    stored = PLAN.init(jax.random.key(0))
    assert isinstance(stored, Stored)
    with pytest.raises(TypeError):
        apply(stored, X)
    assert apply(PLAN.effective(stored), X).shape == (4, 2)


@pytest.mark.parametrize("make", [lambda plan: plan.adamw(1e-3), lambda plan: plan.adam_atan2(1e-3)])
def test_an_optimizer_refuses_parameters_that_act_as_they_are_stored(make):
    with pytest.raises(ValueError, match=r"the plan has multipliers: expected the parameters that plan.init"):
        make(PLAN).init(build(32, jax.random.key(0))[0])
    make(PLAN).init(PLAN.init(jax.random.key(0)))


def test_effective_refuses_what_is_not_stored():
    with pytest.raises(ValueError, match="expected the stored parameters"):
        PLAN.effective(build(32, jax.random.key(0))[0])
