"""What a transformer stores for its backward pass, and what it recomputes instead.

Activations grow with the width and the batch, and weights, where they are split over devices, are whole only while they
act. So there is a choice for large models: store what the forward pass computed, or compute it again. The numbers are
the same.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, get_args

import jax
import jax.numpy as jnp

Rematerialization: TypeAlias = Literal["none", "activation", "block", "full"]
"""What the backward pass recomputes: nothing, the MLP's activation, all within a block, or the logits as well.

Where matrices are split over devices, what lies between products is recomputed in any case, so that the first two are
one.
"""

REMATERIALIZATIONS: tuple[Rematerialization, ...] = get_args(Rematerialization)

RECOMPUTING_WIDTH = 4096
"""From this width on, in half precision, the backward pass recomputes the MLP's activation instead of storing it.

Matrix products grow with the square of the width, activations with the width, so at large widths recomputing costs
almost nothing. On an H200 at width 4096: 59.0 GB instead of 66.5 GB, at 565.3 and 565.4 ms per step.
"""


class Whole(Protocol):
    """Returns a whole matrix from the part of it that a device has; hashable."""

    def __call__(self, part: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Return the matrix of this shape in the precision in which it acts."""
        ...


def cast(part: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Return a matrix that is not split."""
    del shape
    return part.astype(dtype)


def checkpointed(
    block: Callable[..., jax.Array], recomputes: Rematerialization, whole: Whole
) -> Callable[..., jax.Array]:
    """Return a block whose backward pass recomputes what was asked for.

    If matrices are gathered, it gathers them again, and stores only the results of products, since a loop over blocks
    would store in float32 what the compiler otherwise computes on the fly.
    """
    if recomputes in ("block", "full"):
        return jax.checkpoint(block, prevent_cse=whole is cast)
    return block if whole is cast else jax.checkpoint(block, policy=_products, prevent_cse=False)


def _products(primitive: Any, *_: Any, **parameters: Any) -> bool:
    """Return whether an operation is the product of activations and a matrix, or attention in one kernel."""
    if primitive.name == "dot_general":
        _, batched = parameters["dimension_numbers"]
        return not any(batched)
    return "dot_product_attention" in primitive.name


def usual(width: int, dtype: jnp.dtype) -> Rematerialization:
    """Return what is recomputed by default."""
    return "activation" if dtype.itemsize == 2 and width >= RECOMPUTING_WIDTH else "none"
