"""GELU is JAX's, whatever it keeps for the backward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from widthwise.models.gelu import gelu

X = jnp.linspace(-6, 6, 999)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 0.0), ("bfloat16", 2**-8)])
def test_values_and_gradients_are_those_of_float32_rounded(dtype: str, tolerance: float):
    x = X.astype(dtype)
    found, exact = (
        jax.jit(jax.vmap(jax.value_and_grad(function)))(y)
        for function, y in ((gelu, x), (jax.nn.gelu, x.astype(float)))
    )
    for half, full in zip(found, exact, strict=True):
        assert half.dtype == x.dtype
        np.testing.assert_allclose(half.astype(jnp.float32), full, rtol=tolerance, atol=0)


def test_in_half_precision_nothing_but_the_input_is_kept():
    _, back = jax.vjp(gelu, X.astype(jnp.bfloat16))
    assert sum(x.nbytes for x in jax.tree.leaves(back)) == 2 * X.size
