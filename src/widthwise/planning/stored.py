"""How a plan changes arrays: their initial size, and their multipliers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from widthwise.trace.paths import PyTree


@jax.tree_util.register_pytree_with_keys_class
class Stored:
    """Parameters of a plan with multipliers. They are not what the model acts with: call `plan.effective` on them."""

    def __init__(self, params: PyTree, rebuild: Callable[[PyTree], Any]) -> None:
        self.params = params
        self.rebuild = rebuild

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, PyTree]], Any]:
        """Return the parameters, under the name `params`."""
        return ((jax.tree_util.GetAttrKey("params"), self.params),), self.rebuild

    @classmethod
    def tree_unflatten(cls, rebuild: Callable[[PyTree], Any], children: tuple[PyTree]) -> "Stored":
        """Return the parameters again."""
        return cls(children[0], rebuild)


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """The planned root mean square of a parameter, and the axes to take it over."""

    rms: np.ndarray
    over: tuple[int, ...]


def root_mean_square(x: jax.Array, over: tuple[int, ...]) -> jax.Array:
    """Return the root mean square over some axes, in float32 or better, keeping the axes."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    return jnp.sqrt(jnp.mean(jnp.square(x.astype(wide)), axis=over, keepdims=True))


def multiplied(multiplier: float, x: jax.Array) -> jax.Array:
    """Return an array times its multiplier."""
    wide = jnp.promote_types(x.dtype, jnp.float32)  # factors must not be rounded to bfloat16
    return (x.astype(wide) * multiplier).astype(x.dtype)


def with_size(size: PlannedSize | None, x: jax.Array) -> jax.Array:
    """Return an array with the planned size; unchanged if none is planned."""
    if size is None:
        return x
    wide = jnp.promote_types(x.dtype, jnp.float32)
    rms = root_mean_square(x, size.over)
    factor = jnp.where(rms > 0, size.rms.astype(rms.dtype) / jnp.where(rms > 0, rms, 1), 1)
    # A parameter whose size is right up to rounding does not change, so that rescaling twice is rescaling once.
    settled = jnp.abs(factor - 1) < max(jnp.finfo(x.dtype).eps, 16 * jnp.finfo(wide).eps)
    return jnp.where(settled, x, (x.astype(wide) * factor).astype(x.dtype))
