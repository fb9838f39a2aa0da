"""The cross-entropy of a readout over a large vocabulary, with a custom gradient.

With automatic differentiation, a vocabulary of 32k tokens costs more than the rest of a small model: logits of the
whole batch in float32 are written and read several times in each direction, the last time by a scatter for the labels.
Here logits stay in the precision of the model, reductions are in float32, and the gradient of the logits (softmax minus
label) is written once, again in the precision of the model. The result is the same.

Where even those do not fit, only the logits of some tokens exist at a time, and the backward pass computes them again.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_TILE = 128
"""Tensor cores are fastest if matrix sides are multiples of this; the paper's vocabulary, 32101, is odd."""
SLICE = 4096
"""Tokens whose logits exist at a time in `cross_entropy_in_slices`."""


@jax.custom_vjp
def cross_entropy(
    hidden: Float[Array, "tokens width"], kernel: Float[Array, "width vocabulary"], labels: Int[Array, " tokens"]
) -> Float[Array, " tokens"]:
    """Return the cross-entropy of every label, in nats, under the logits `hidden @ kernel`.

    >>> losses = cross_entropy(jnp.zeros((1, 3)), jnp.ones((3, 8)), jnp.array([5]))
    >>> f"{losses[0]:.3f} is log 8"
    '2.079 is log 8'
    """
    return _forward(hidden, kernel, labels)[0]


def _forward(hidden: jax.Array, kernel: jax.Array, labels: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    logits = hidden @ _padded(kernel)
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if logits.shape[1] > kernel.shape[1]:
        wide = jnp.where(jnp.arange(logits.shape[1]) < kernel.shape[1], wide, -jnp.inf)
    total = jax.nn.logsumexp(wide, axis=1)
    label = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return total - label, (hidden, kernel, labels, logits, total)


def _backward(kept: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    hidden, kernel, labels, logits, total = kept
    softmax = jnp.exp(logits.astype(total.dtype) - total[:, None])  # padding columns are multiplied by zeros below
    is_label = jnp.arange(logits.shape[1]) == labels[:, None]
    change = ((softmax - is_label) * cotangent[:, None]).astype(logits.dtype)
    return change @ _padded(kernel).T, (hidden.T @ change)[:, : kernel.shape[1]], None


cross_entropy.defvjp(_forward, _backward)


@jax.custom_vjp
def cross_entropy_in_slices(
    hidden: Float[Array, "tokens width"], kernel: Float[Array, "width vocabulary"], labels: Int[Array, " tokens"]
) -> Float[Array, " tokens"]:
    """Return the same as `cross_entropy`, but compute the logits of few tokens at a time, and twice."""
    losses = jax.lax.map(lambda part: cross_entropy(part[0], kernel, part[1]), _sliced((hidden, labels)))
    return losses.reshape(-1)[: len(labels)]


def _forward_in_slices(
    hidden: jax.Array, kernel: jax.Array, labels: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return cross_entropy_in_slices(hidden, kernel, labels), (hidden, kernel, labels)


def _backward_in_slices(kept: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    hidden, kernel, labels = kept

    def one(total: jax.Array, part: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        hidden, labels, cotangent = part
        of_hidden, of_kernel, _ = _backward(_forward(hidden, kernel, labels)[1], cotangent)
        return total + of_kernel, of_hidden

    wide = jnp.zeros(kernel.shape, cotangent.dtype)  # or the sum would be as coarse as its terms
    of_kernel, of_hidden = jax.lax.scan(one, wide, _sliced((hidden, labels, cotangent)))
    return of_hidden.reshape(-1, hidden.shape[1])[: len(hidden)], of_kernel.astype(kernel.dtype), None


cross_entropy_in_slices.defvjp(_forward_in_slices, _backward_in_slices)


def _sliced(arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Cut arrays with a row for each token into slices of the same size, the last one filled up with zeros."""
    tokens = len(arrays[0])
    count = -(-tokens // SLICE)
    size = -(-tokens // count)

    def one(array: jax.Array) -> jax.Array:
        rows = jnp.pad(array, ((0, count * size - tokens), *[(0, 0)] * (array.ndim - 1)))
        return rows.reshape(count, size, *array.shape[1:])

    return tuple(map(one, arrays))


def _padded(kernel: jax.Array) -> jax.Array:
    """Pad the columns to a multiple of the tile in half precision, where matrix products are faster for it."""
    missing = -kernel.shape[1] % _TILE if kernel.dtype.itemsize == 2 else 0
    return jnp.pad(kernel, ((0, 0), (0, missing))) if missing else kernel
