# JAX leaves some of its own types open; everything else here is checked strictly.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""Which axes of a weight are inputs (summed over) and which are outputs: the conventions of the frameworks.

Shapes alone cannot distinguish an embedding (10 × n) from a transposed readout (n × 10). Flax stores kernels as
(in, out), Equinox stores weights as (out, in), and both store embeddings as (in, out). A *convention* covers the leaves
that it can be sure of and leaves the rest to rules. It never looks at sizes.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax

from widthwise.scaling import Axes
from widthwise.trace.paths import PyTree, named_leaves, path_name

Convention: TypeAlias = Callable[[PyTree], Mapping[str, Axes]]
"""A function from a parameter tree to the axes of the leaves that it knows, by path."""


def no_convention(params: PyTree) -> Mapping[str, Axes]:
    """Return the axes of vectors and scalars, which are outputs, and of nothing else."""
    return {
        path: Axes(outputs=tuple(range(len(leaf.shape))))
        for path, leaf in named_leaves(params).items()
        if len(leaf.shape) <= 1
    }


def flax(params: PyTree) -> Mapping[str, Axes]:
    """Return the axes of Flax layers (Linen and NNX), recognized by their parameter names.

    Covers dense kernels, embeddings, LayerNorm scales and biases, and the head-split kernels of attention if query,
    key, value and output fit together. Other leaves with several axes (convolutions, layers stacked by `nn.scan`,
    custom contractions) need a rule.

    >>> import jax.numpy as jnp
    >>> flax({"dense": {"kernel": jnp.ones((3, 4))}})
    {'dense/kernel': Axes(inputs=(0,), outputs=(1,), stack=())}
    """
    shapes = {path: tuple(leaf.shape) for path, leaf in named_leaves(params).items()}
    known = dict(no_convention(params))
    for path, shape in shapes.items():
        layer, name = ["", *path.split("/")][-2:]
        prefix = path.removesuffix(f"{layer}/{name}")
        if name in ("kernel", "embedding") and len(shape) == 2:
            known[path] = Axes(inputs=(0,), outputs=(1,))
        elif layer in (*_PROJECTIONS, "out") and _is_attention(shapes, prefix):
            if name == "kernel":
                known[path] = Axes(inputs=(0, 1), outputs=(2,)) if layer == "out" else Axes(inputs=(0,), outputs=(1, 2))
            elif name == "bias":
                known[path] = Axes(outputs=tuple(range(len(shape))))
    return known


_PROJECTIONS = ("query", "key", "value")


def _is_attention(shapes: Mapping[str, tuple[int, ...]], prefix: str) -> bool:
    """Return whether query, key and value kernels map to (heads, dim), and the output kernel maps from there."""
    into = [shapes.get(f"{prefix}{name}/kernel", ()) for name in _PROJECTIONS]
    out = shapes.get(f"{prefix}out/kernel", ())
    return len(out) == 3 and all(len(shape) == 3 and shape[1:] == out[:2] for shape in into)


def equinox(params: PyTree) -> Mapping[str, Axes]:
    """Return the axes of Equinox layers, recognized by their types.

    Linear and convolution weights are (out, in, …), embeddings are (in, out). Layers stacked by `filter_vmap` have one
    axis more than their type suggests and need a rule.
    """
    import equinox as eqx

    def axes_of(module: Any, name: str) -> Axes | None:
        if isinstance(module, eqx.nn.Embedding) and name == "weight":
            return Axes(inputs=(0,), outputs=(1,))
        if isinstance(module, eqx.nn.Linear):
            return Axes(inputs=(1,), outputs=(0,)) if name == "weight" else Axes(outputs=(0,))
        if isinstance(module, eqx.nn.Conv):
            rest = tuple(range(1, module.num_spatial_dims + 2))
            return Axes(inputs=rest, outputs=(0,)) if name == "weight" else Axes(outputs=(0, *rest[:-1]))
        if isinstance(module, eqx.nn.LayerNorm | eqx.nn.RMSNorm):
            return Axes(outputs=tuple(range(len(module.shape))))
        return Axes(outputs=(0,)) if isinstance(module, eqx.nn.GroupNorm) else None

    basic = (eqx.nn.Embedding, eqx.nn.Linear, eqx.nn.Conv, eqx.nn.LayerNorm, eqx.nn.RMSNorm, eqx.nn.GroupNorm)

    def is_basic(node: Any) -> bool:
        return isinstance(node, basic)

    known = dict(no_convention(params))
    for prefix, module in jax.tree_util.tree_flatten_with_path(params, is_leaf=is_basic)[0]:
        if is_basic(module):
            for path, leaf in jax.tree_util.tree_flatten_with_path(module)[0]:
                axes = axes_of(module, path_name(path))
                if axes is not None and len((*axes.inputs, *axes.outputs)) == len(leaf.shape):
                    known[path_name((*prefix, *path))] = axes
    return known
