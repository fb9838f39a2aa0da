# JAX leaves some of its own types open; everything else here is checked strictly.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""Which axes of a weight are summed over and which are produced: the conventions of the frameworks.

Shapes alone cannot tell an embedding (10 × n) from a readout (n × 10) stored the other way round. Flax writes kernels
(in, out), Equinox weights (out, in), and both store embeddings (in, out). A *convention* answers for the leaves it is
sure of and leaves the rest to rules. Nothing here looks at sizes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax

from widthwise.parameterize.paths import PyTree, named_leaves, path_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The axes of a leaf that its use sums over, those it produces, and those that number separate layers.

    Every axis belongs to exactly one of the three. A LayerNorm scale or bias has outputs only; the leading axis of
    blocks stacked for `lax.scan` is a stack axis, over which no norm or fan-in is ever taken.
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    stack: tuple[int, ...] = ()

    def check(self, path: str, shape: tuple[int, ...]) -> None:
        """Refuse axes that are not a partition of the axes of this shape."""
        if sorted((*self.inputs, *self.outputs, *self.stack)) != list(range(len(shape))):
            raise ValueError(
                f"axes of {path!r} are inputs {self.inputs}, outputs {self.outputs}, stack {self.stack}: "
                f"expected each axis of shape {shape} exactly once"
            )


Convention: TypeAlias = Callable[[PyTree], Mapping[str, Axes]]
"""Given a parameter tree, the axes of those leaves that it knows, by path."""


def no_convention(params: PyTree) -> Mapping[str, Axes]:
    """Know that a vector is produced and not summed over, and nothing else."""
    return {
        path: Axes(outputs=tuple(range(len(leaf.shape))))
        for path, leaf in named_leaves(params).items()
        if len(leaf.shape) <= 1
    }


def flax(params: PyTree) -> Mapping[str, Axes]:
    """Know the layers of Flax, Linen and NNX alike, by the names it gives to their parameters.

    Dense kernels, embeddings, LayerNorm scales and biases, and the head-split kernels of its attention. Other kernels
    of three or more axes may be convolutions or general contractions: those need a rule.

    >>> import jax.numpy as jnp
    >>> flax({"dense": {"kernel": jnp.ones((3, 4))}})
    {'dense/kernel': Axes(inputs=(0,), outputs=(1,), stack=())}
    """
    known: dict[str, Axes] = {}
    for path, leaf in named_leaves(params).items():
        parent, name = ["", *path.split("/")][-2:]
        ndim = len(leaf.shape)
        if name in ("bias", "scale") or ndim <= 1:
            known[path] = Axes(outputs=tuple(range(ndim)))
        elif name in ("kernel", "embedding") and ndim == 2:
            known[path] = Axes(inputs=(0,), outputs=(1,))
        elif name == "kernel" and ndim == 3 and parent in ("query", "key", "value"):
            known[path] = Axes(inputs=(0,), outputs=(1, 2))
        elif name == "kernel" and ndim == 3 and parent == "out":
            known[path] = Axes(inputs=(0, 1), outputs=(2,))
    return known


def equinox(params: PyTree) -> Mapping[str, Axes]:
    """Know the layers of Equinox by their types: linear and convolution weights (out, in, …), embeddings (in, out)."""
    import equinox as eqx

    lookup = (eqx.nn.Embedding,)
    product = (eqx.nn.Linear, eqx.nn.Conv)
    normalize = (eqx.nn.LayerNorm, eqx.nn.RMSNorm, eqx.nn.GroupNorm)
    basic = (*lookup, *product, *normalize)

    def is_basic(node: Any) -> bool:
        return isinstance(node, basic)

    known = dict(no_convention(params))
    for prefix, module in jax.tree_util.tree_flatten_with_path(params, is_leaf=is_basic)[0]:
        if not is_basic(module):
            continue
        for path, leaf in jax.tree_util.tree_flatten_with_path(module)[0]:
            name = path_name((*prefix, *path))
            axes = tuple(range(len(leaf.shape)))
            is_weight = path_name(path) == "weight"
            if is_weight and isinstance(module, lookup):
                known[name] = Axes(inputs=(0,), outputs=(1,))
            elif is_weight and isinstance(module, product):
                known[name] = Axes(inputs=axes[1:], outputs=axes[:1])
            else:
                known[name] = Axes(outputs=axes)
    return known
