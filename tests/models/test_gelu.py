"""GELU is JAX's, whatever it keeps for the backward pass."""

import jax
import jax.numpy as jnp
import numpy as np

from widthwise.models.gelu import gelu

X = jnp.linspace(-6, 6, 999)


def exact(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return GELU and its derivative in float64, in a form that loses no digits where they are small."""
    root = np.sqrt(8 / np.pi)
    logistic = 1 / (1 + np.exp(-root * (x + 0.044715 * x**3)))
    return x * logistic, logistic + x * logistic * (1 - logistic) * root * (1 + 3 * 0.044715 * x**2)


def test_in_half_precision_values_and_gradients_are_exact_but_for_rounding():
    x = X.astype(jnp.bfloat16)
    found = jax.jit(jax.vmap(jax.value_and_grad(gelu)))(x)
    for half, full in zip(found, exact(np.asarray(x, np.float64)), strict=True):
        assert half.dtype == x.dtype
        np.testing.assert_allclose(np.asarray(half, np.float64), full, rtol=2**-8, atol=0)


def test_in_float32_it_is_jaxs_own():
    found, expected = (jax.jit(jax.vmap(jax.value_and_grad(function)))(X) for function in (gelu, jax.nn.gelu))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_in_half_precision_nothing_but_the_input_is_kept():
    _, back = jax.vjp(gelu, X.astype(jnp.bfloat16))
    assert sum(x.nbytes for x in jax.tree.leaves(back)) == 2 * X.size
