"""Optax transformations that apply a table of factors by the paths of parameters.

Factors are looked up by path, not by the structure of a tree. So a transformation works inside `optax.masked`,
`multi_transform` and `partition`, which remove leaves, and on the trees that frameworks make of a model's gradients.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from widthwise.trace.paths import PyTree, path_name

T = TypeVar("T")


def at_path(table: Mapping[str, T], path: tuple[Any, ...]) -> T:
    """Return the entry of a parameter; raise if the plan does not know it."""
    name = path_name(path)
    for known in (name, name.removeprefix("params/")):
        if known in table:
            return table[known]
    raise ValueError(
        f"{name!r} is not a parameter of the plan: expected the planned model's, {', '.join(list(table)[:5])}, …"
    )


def map_with(function: Callable[..., Any], table: Mapping[str, Any], tree: PyTree, *trees: PyTree) -> PyTree:
    """Map a function over leaves; its first argument is the table's entry for the path of a leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, *leaves: function(at_path(table, path), *leaves), tree, *trees)


def scale_by_factors(factors: Mapping[str, float]) -> optax.GradientTransformation:
    """Multiply the update of every parameter by its factor."""
    return optax.stateless(lambda updates, _: map_with(_scaled, factors, updates))


def _scaled(factor: float, x: jax.Array) -> jax.Array:
    return x if factor == 1 else (x * factor).astype(x.dtype)


def decay_by_factors(weight_decay: Any, factors: Mapping[str, float]) -> optax.GradientTransformation:
    """Decay weights as `optax.add_decayed_weights` does, each with a factor."""
    decay = optax.add_decayed_weights(weight_decay)

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        return decay.update(updates, state, None if params is None else map_with(_scaled, factors, params))

    return optax.GradientTransformation(decay.init, update)


def clip_by_weighted_norm(max_norm: float, weights: Mapping[str, float]) -> optax.GradientTransformation:
    """Scale all gradients down if their global norm, with a weight for each parameter, is above a threshold."""

    def clip(updates: PyTree, _: PyTree | None) -> PyTree:
        norm = optax.tree.norm(map_with(lambda weight, x: x * weight, weights, updates))
        return jax.tree.map(lambda x: jnp.where(norm < max_norm, x, (x / norm.astype(x.dtype)) * max_norm), updates)

    return optax.stateless(clip)


def made_for(make: Callable[[PyTree], optax.GradientTransformation]) -> optax.GradientTransformation:
    """Return a transformation that is made anew for the tree it is used on."""

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        return make(updates).update(updates, state, params)

    return optax.GradientTransformation(lambda params: make(params).init(params), update)
