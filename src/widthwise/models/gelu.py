"""GELU, in the tanh approximation that the paper's models use, with a gradient that keeps nothing but its input.

The compiler would keep the tanh for the backward pass. On a GPU memory is what the activation waits for, and computing
the tanh again is cheaper than writing and reading it; on a CPU it is the other way round.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Give GELU of every number; in half precision, which is for GPUs, computed in float32 and again when going back.

    >>> [f"{y:.3f}" for y in gelu(jnp.array([-1.0, 0.0, 1.0]))]
    ['-0.159', '0.000', '0.841']
    """
    return _again(x) if x.dtype.itemsize == 2 else jax.nn.gelu(x)


def _rounded(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x.astype(jnp.float32)).astype(x.dtype)


@jax.custom_vjp
def _again(x: jax.Array) -> jax.Array:
    return _rounded(x)


def _backward(x: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, ...]:
    # Without the barrier the compiler would see that the same was computed before, and keep it after all.
    x, cotangent = jax.lax.optimization_barrier((x, cotangent))
    return jax.vjp(_rounded, x)[1](cotangent)


_again.defvjp(lambda x: (_rounded(x), x), _backward)
