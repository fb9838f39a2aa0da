"""Numbers in a model that change with its width are reported with their place; those of norms are not."""

import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import widthwise as ww

TOKENS = jnp.zeros((2, 3), int)


def build_with(function):
    """Return how to build a model whose middle is this function of activations and the width."""

    def build(width, key):
        keys = jax.random.split(key)
        params = {"embed": jax.random.normal(keys[0], (7, width)), "out": jax.random.normal(keys[1], (width, 7))}
        return params, lambda params, tokens: function(params["embed"][tokens]) @ params["out"]

    return build


def numbers(function) -> list[Any]:
    return list(ww.plan(build_with(function), width=16, base_width=4, example=TOKENS).numbers)


def line_of(function, text: str) -> str:
    """Return the file and line of a text inside a function, as numbers report it."""
    source, first = inspect.getsourcelines(function)
    (offset,) = (i for i, line in enumerate(source) if text in line)
    return f"{__file__}:{first + offset}"


def scaled_embedding(x):
    return x * math.sqrt(x.shape[-1])


def scaled_by_jax(x):
    return x * jnp.sqrt(x.shape[-1])


def attention(x):
    """One head whose dimension grows."""
    scores = jnp.einsum("bqd,bkd->bqk", x, x)
    scores = scores / math.sqrt(x.shape[-1])
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), x)


def attention_by_jax(x):
    scale = jax.lax.rsqrt(jnp.float32(x.shape[-1]))
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", x, x) * scale), x)


def scaled_inside(x):
    """The number is made outside of the function that multiplies by it."""
    return jax.jit(lambda x, scale: jnp.tanh(x) * scale)(x, jnp.sqrt(jnp.power(float(x.shape[-1]), 2.0)))  # scale)


def scaled_by_numpy(x):
    return x * np.sqrt(x.shape[-1], dtype=np.float32)


def scaled_by_array(x):
    return x * jnp.array(x.shape[-1], x.dtype)


def scaled_by_power(x):
    return x * x.shape[-1] ** 0.5


@pytest.mark.parametrize(
    ("function", "operation", "text", "base", "here"),
    [
        (scaled_embedding, "mul", "math.sqrt", 2, 4),
        (attention, "div", "math.sqrt", 2, 4),
        (scaled_by_jax, "mul", "jnp.sqrt", 2, 4),
        (attention_by_jax, "mul", "* scale), x", 1 / 2, 1 / 4),
        (scaled_inside, "mul", "# scale)", 4, 16),
        (scaled_by_numpy, "mul", "np.sqrt", 2, 4),
        (scaled_by_array, "mul", "jnp.array", 4, 16),
        (scaled_by_power, "mul", "**", 2, 4),
    ],
)
def test_powers_of_the_width_are_reported_with_their_place(function, operation, text, base, here):
    (found,) = numbers(function)
    assert (found.operation, found.base, found.here) == (operation, base, here)
    assert found.where == line_of(function, text)


def test_they_are_notes_of_the_plan():
    plan = ww.plan(build_with(attention), width=16, base_width=4, example=TOKENS)
    (note,) = plan.explain().notes
    assert f"changes with width at {line_of(attention, 'math.sqrt')}: div by 2 at width 4, 4 here" in note
    assert note in str(plan)


def test_a_number_in_a_loop_is_found():
    def looped(x):
        x, _ = jax.lax.scan(lambda x, _: (scaled_embedding(x), None), x, length=2)
        return jax.checkpoint(scaled_embedding)(jax.lax.cond(x.sum() > 0, scaled_embedding, jnp.tanh, x))

    assert [number.where for number in numbers(looped)] == [line_of(scaled_embedding, "math.sqrt")]


def layer_norm(x):
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    return centered / jnp.sqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-6)


def rms_norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def mean_by_hand(x):
    return x - x.sum(axis=-1, keepdims=True) / x.shape[-1]


def mean_by_product(x):
    return x - x.sum(axis=-1, keepdims=True) * (1 / x.shape[-1])


@pytest.mark.parametrize("function", [layer_norm, rms_norm, mean_by_hand, mean_by_product, jnp.tanh, jax.nn.softmax])
def test_means_are_not_reported(function):
    assert numbers(function) == []


def test_numbers_of_the_initialization_are_not_reported():
    """The model is built inside the trace: its own scales of initialization are there too."""

    def build(width, key):
        params, apply = build_with(jnp.tanh)(width, key)
        return jax.tree.map(lambda x: x / math.sqrt(width), params), apply

    assert ww.plan(build, width=16, base_width=4, example=TOKENS).numbers == ()


def test_a_model_that_does_other_things_at_another_width_is_not_compared():
    def build(width, key):
        def apply(params, tokens):
            x = params["embed"][tokens]
            return (jnp.tanh(x) if width > 4 else x) @ params["out"]

        return build_with(jnp.tanh)(width, key)[0], apply

    assert ww.plan(build, width=16, base_width=4, example=TOKENS).numbers == ()
