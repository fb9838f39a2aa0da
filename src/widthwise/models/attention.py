"""Causal attention: one kernel on a GPU where there is one for the shape, otherwise plain matrix products."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def causal_attention(
    query: Float[Array, "batch time heads dim"],
    key: Float[Array, "batch time heads dim"],
    value: Float[Array, "batch time heads dim"],
    *,
    on_gpu: bool = False,
) -> Float[Array, "batch time heads dim"]:
    """Causal attention with an already scaled query.

    Uses the cuDNN kernel on a GPU in half precision if it supports the shape, otherwise plain matrix products.
    """
    if on_gpu and cudnn_takes(query.shape, query.dtype):
        return jax.nn.dot_product_attention(query, key, value, scale=1.0, is_causal=True, implementation="cudnn")
    return plain_attention(query, key, value)


def cudnn_takes(shape: tuple[int, ...], dtype: jnp.dtype) -> bool:
    """Return whether the cuDNN kernel has a backward pass for this shape: half precision, an even sequence length."""
    _, time, _, dim = shape
    return dtype in (jnp.bfloat16, jnp.float16) and time % 2 == 0 and dim % 8 == 0 and dim <= 128


def plain_attention(
    query: Float[Array, "batch time heads dim"],
    key: Float[Array, "batch time heads dim"],
    value: Float[Array, "batch time heads dim"],
) -> Float[Array, "batch time heads dim"]:
    """Causal attention with two batched matrix products and a softmax in float32."""
    query, key, value = (x.transpose(0, 2, 1, 3) for x in (query, key, value))
    wide = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.matmul(query, key.transpose(0, 1, 3, 2), preferred_element_type=wide)
    time = query.shape[2]
    seen = jnp.tril(jnp.ones((time, time), bool))
    weights = jax.nn.softmax(jnp.where(seen, logits, jnp.finfo(wide).min), axis=-1).astype(value.dtype)
    return jnp.matmul(weights, value).transpose(0, 2, 1, 3)
