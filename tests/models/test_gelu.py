"""GELU is JAX's, whatever it keeps for the backward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from widthwise.models.gelu import gelu

X = jnp.linspace(-6, 6, 999)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 0.0), ("bfloat16", 2**-8)])
def test_values_and_gradients_are_those_of_jax_rounded(dtype: str, tolerance: float):
    x = X.astype(dtype)
    found, exact = (
        jax.jit(jax.vmap(jax.value_and_grad(function)))(y)
        for function, y in ((gelu, x), (jax.nn.gelu, x.astype(float)))
    )
    for half, full in zip(found, exact, strict=True):
        assert half.dtype == x.dtype
        # Far out on the left JAX's own, 1 + tanh in float32, loses all its digits; ours does not.
        np.testing.assert_allclose(half.astype(jnp.float32), full, rtol=tolerance, atol=1e-5 if tolerance else 0)


def test_the_left_tail_is_exact():
    x = jnp.array([-3.0, -4.0, -5.0], jnp.bfloat16)
    u = np.sqrt(2 / np.pi) * (np.array(x, float) + 0.044715 * np.array(x, float) ** 3)
    np.testing.assert_allclose(np.array(gelu(x), float), np.array(x, float) / (1 + np.exp(-2 * u)), rtol=2**-8)


def test_in_half_precision_nothing_but_the_input_is_kept():
    _, back = jax.vjp(gelu, X.astype(jnp.bfloat16))
    assert sum(x.nbytes for x in jax.tree.leaves(back)) == 2 * X.size
