"""GELU in the tanh approximation of the paper's models, with a gradient that stores only its input.

The compiler would store the tanh for the backward pass. On a GPU the activation is limited by memory bandwidth, and
recomputing is cheaper than writing and reading; on a CPU it is the other way round. On a GPU the forward pass is
written in the form that cuBLASLt recognizes, which fuses it into the preceding matrix product, in float32. Everything
else is converted to float32 here and uses a logistic function, which needs less arithmetic than a tanh: x/2·(1 + tanh
u) is x·logistic(2u).
"""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gelu(x: Float[Array, "*shape"], *, on_gpu: bool = False) -> Float[Array, "*shape"]:
    """Apply GELU elementwise; in half precision, meant for GPUs, the backward pass recomputes it in float32.

    >>> [f"{y:.3f}" for y in gelu(jnp.array([-1.0, 0.0, 1.0]))]
    ['-0.159', '0.000', '0.841']
    """
    return _again(on_gpu, x) if x.dtype.itemsize == 2 else jax.nn.gelu(x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _again(on_gpu: bool, x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x) if on_gpu else _logistic(x)


def _forward(on_gpu: bool, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _again(on_gpu, x), x


def _backward(on_gpu: bool, x: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, ...]:
    del on_gpu
    # Without the barrier, the compiler would notice the repeated computation and store the result after all.
    x, cotangent = jax.lax.optimization_barrier((x, cotangent))
    return jax.vjp(_logistic, x)[1](cotangent)


def _logistic(x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    twice = math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3)
    return (wide * jax.nn.sigmoid(twice)).astype(x.dtype)


_again.defvjp(_forward, _backward)
