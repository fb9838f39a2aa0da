# JAX leaves some of its own types open; everything else here is checked strictly.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""Names for the leaves of a parameter tree, such as `blocks/0/mlp/kernel`, the same for every framework."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.tree_util import GetAttrKey, KeyEntry, keystr

PyTree: TypeAlias = Any


_ONLY_PARAMETERS = (
    "pass the trainable arrays only, e.g. nnx.split(model, nnx.Param), variables['params'] or "
    "eqx.filter(model, eqx.is_inexact_array)"
)


def path_name(path: tuple[KeyEntry, ...]) -> str:
    """Return a key path with slashes, without the `value` that Flax NNX appends to each variable."""
    if len(path) > 1 and isinstance(path[-1], GetAttrKey) and path[-1].name == "value":
        path = path[:-1]
    return keystr(path, simple=True, separator="/")


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a tree by name, in the order in which JAX flattens the tree.

    >>> import jax.numpy as jnp
    >>> list(named_leaves({"out": [jnp.ones(2)], "in": jnp.ones(3)}))
    ['in', 'out/0']
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {path_name(path): leaf for path, leaf in flat}
    if len(named) != len(flat):
        names = [path_name(path) for path, _ in flat]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two leaves of the parameter tree are both called {twice!r}: rename one of them")
    for name, leaf in named.items():
        if not hasattr(leaf, "shape"):
            raise ValueError(f"{name!r} is {leaf!r}, not an array: {_ONLY_PARAMETERS}")
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(f"{name!r} has type {leaf.dtype}, not one that can be trained: {_ONLY_PARAMETERS}")
    return named
