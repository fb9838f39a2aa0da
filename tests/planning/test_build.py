"""A model can be given as parameters, with or without a function, or as a module of a framework."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import widthwise as ww

KEY = jax.random.key(0)
X = jnp.ones((4, 5))


class Linen(nn.Module):
    width: int
    depth: int = 1

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width, name="in")(x)
        for layer in range(self.depth):
            x = nn.Dense(self.width, name=f"mid_{layer}")(nn.relu(x))
        return nn.Dense(3, name="out")(nn.relu(x))


class Nnx(nnx.Module):
    def __init__(self, width, rngs):
        self.enter = nnx.Linear(5, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, deterministic=True, rngs=rngs)
        self.leave = nnx.Linear(width, 3, rngs=rngs)

    def __call__(self, x):
        return self.leave(self.dropout(nnx.relu(self.enter(x))))


class Equinox(eqx.Module):
    enter: eqx.nn.Linear
    leave: eqx.nn.Linear
    steps: jax.Array
    activation: Any

    def __init__(self, width, key):
        keys = jax.random.split(key)
        self.enter = eqx.nn.Linear(5, width, key=keys[0])
        self.leave = eqx.nn.Linear(width, 3, key=keys[1])
        self.steps = jnp.arange(2)
        self.activation = jax.nn.relu

    def __call__(self, x):
        return self.leave(self.activation(self.enter(x)))


def pair(width, key):
    keys = jax.random.split(key)
    params = {"enter": jax.random.normal(keys[0], (5, width)), "leave": jax.random.normal(keys[1], (width, 3))}
    return params, lambda params, x: jax.nn.relu(x @ params["enter"]) @ params["leave"]


def parts(plan: ww.Plan) -> list[str]:
    return [p.part.value for p in plan.parameters if not p.is_vector]


def test_a_pair_of_parameters_and_a_function():
    plan = ww.plan(pair, width=16, base_width=8, example=X)
    assert parts(plan) == ["embedding", "readout"]
    assert plan.init(KEY)["leave"].shape == (16, 3)


def test_an_nnx_module_comes_back_with_what_is_not_trained():
    plan = ww.plan(lambda width, key: Nnx(width, nnx.Rngs(key)), width=16, base_width=8, example=X)
    model = plan.init(KEY)
    assert parts(plan) == ["embedding", "readout"]
    assert model(X).shape == (4, 3)
    assert model.dropout.rngs is not None


def test_an_equinox_module_comes_back_with_what_is_not_trained():
    plan = ww.plan(Equinox, width=16, base_width=8, example=X[0])
    model = plan.init(KEY)
    assert [p.path for p in plan.parameters] == ["enter/weight", "enter/bias", "leave/weight", "leave/bias"]
    assert model.steps.tolist() == [0, 1]
    assert model(X[0]).shape == (3,)


def test_a_linen_module_needs_an_example():
    plan = ww.plan(Linen, width=16, base_width=8, example=X)
    assert parts(plan) == ["embedding", "hidden", "readout"]
    with pytest.raises(ValueError, match="needs an example"):
        ww.plan(Linen, width=16, base_width=8)


def test_parameters_alone_are_planned_by_shape_and_rules():
    def build(width, key):
        return pair(width, key)[0] | {"mid": jnp.ones((width, width))}

    axes = ww.Axes(inputs=(0,), outputs=(1,))
    plan = ww.plan(build, width=16, base_width=8, rules={"enter": ww.Rule(axes=axes), "leave": ww.Rule(axes=axes)})
    assert parts(plan) == ["embedding", "readout", "hidden"]
    assert "was not traced" in str(plan)
    with pytest.raises(ValueError, match=r"'enter' of shape .* takes an example, and a model that can be called"):
        ww.plan(build, width=16, base_width=8, example=X)


def test_parameters_alone_can_be_traced_with_a_call():
    plan = ww.plan(lambda width, key: pair(width, key)[0], width=16, base_width=8, example=X, call=pair(8, KEY)[1])
    assert parts(plan) == ["embedding", "readout"]


def test_the_example_may_be_a_shape():
    plan = ww.plan(pair, width=16, base_width=8, example=jax.ShapeDtypeStruct((4, 5), jnp.float32))
    assert parts(plan) == ["embedding", "readout"]


def test_the_key_may_be_a_keyword_as_in_equinox():
    plan = ww.plan(lambda width, *, key: pair(width, key), width=16, base_width=8, example=X)
    one, other = (plan.init(jax.random.key(seed))["enter"] for seed in (1, 2))
    assert not np.array_equal(one, other)


class WithOption(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x, *, train):
        x = nn.Dropout(0.1, deterministic=not train)(nn.Dense(self.width)(x))
        return nn.Dense(3)(nn.BatchNorm(use_running_average=not train)(x))


def test_call_gives_options_to_a_linen_module():
    plan = ww.plan(WithOption, width=16, base_width=8, example=X, call=lambda model, x: model(x, train=False))
    assert parts(plan) == ["embedding", "readout"]
    assert plan.init(KEY)["Dense_0"]["kernel"].shape == (5, 16)


def test_call_gives_options_to_a_function():
    def build(width, key):
        params, apply = pair(width, key)
        return params, lambda params, x, *, scale: apply(params, x) * scale

    plan = ww.plan(build, width=16, base_width=8, example=X, call=lambda model, x: model(x, scale=2.0))
    assert parts(plan) == ["embedding", "readout"]


def test_a_call_may_take_several_arguments():
    def build(width, key):
        params, apply = pair(width, key)
        return params, lambda params, x, scale: apply(params, x) * scale

    assert parts(ww.plan(build, width=16, base_width=8, example=(X, jnp.ones(())))) == ["embedding", "readout"]


def test_an_option_with_a_default_is_not_the_key():
    seen = []

    def build(width, depth=3):
        seen.append(depth)
        return pair(width, KEY)

    plan = ww.plan(build, width=16, base_width=8, example=X)
    assert set(seen) == {3}
    assert plan.rescale(build(16))["enter"].shape == (5, 16)


@pytest.mark.parametrize("build", [lambda width, key=KEY: pair(width, key), lambda *given: pair(*given)])
def test_a_key_may_have_a_default(build: Any):
    plan = ww.plan(build, width=16, base_width=8, example=X)
    one, other = (plan.init(jax.random.key(seed))["enter"] for seed in (1, 2))
    assert not np.array_equal(one, other)


def test_the_model_is_not_built_at_the_planned_width():
    """Only its shapes are needed, so a plan costs nothing."""
    concrete = []

    def build(width, key):
        params, apply = pair(width, key)
        concrete.append(not isinstance(params["enter"], jax.core.Tracer))
        return params, apply

    plan = ww.plan(build, width=2**40, base_width=8, example=X)
    assert plan.factors["leave"].learning_rate == 2.0**-37
    assert not any(concrete)


def test_what_cannot_be_trained_is_named():
    with pytest.raises(ValueError, match="'steps' has type int32"):
        ww.plan(lambda width, key: {**pair(width, key)[0], "steps": jnp.arange(3)}, width=16, base_width=8)
