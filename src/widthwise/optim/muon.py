"""Muon for hidden matrices, Adam for everything else: the usual mixture.

The update of a hidden matrix is its momentum, orthogonalized by Newton–Schulz iterations, times a factor that depends
on its shape. Optax orthogonalizes; this module decides what is a matrix. The layout determines which axes are inputs
and outputs, so that kernels with several axes and stacks of layers are orthogonalized matrix by matrix. Matrices of
equal shape are orthogonalized in one batch: a transformer with many blocks then has as many products to compile and to
launch as one with a single block.

Momentum is Nesterov's as in `torch.optim.Muon`. Optax's Muon also corrects its bias, which changes the direction of the
first steps.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from widthwise.optim.adam import EPSILON, scale_by_adam
from widthwise.optim.parameter_scaling import layout_of, map_leaves
from widthwise.optim.rates import Number, scales_of, with_rates
from widthwise.parameterize import Axes, Layout, Prescription, PyTree, Scales
from widthwise.scaling.orthogonal import SHAPE_FACTORS
from widthwise.theory import MUON_FACTORS, Role, with_adam

ITERATIONS = 5
"""Newton–Schulz iterations, with Optax's coefficients."""

LARGEST_BATCH = 2**26
"""The number of entries up to which matrices are batched: more would need memory and no longer save time."""

Share: TypeAlias = Callable[[Callable[[jax.Array], jax.Array], Sequence[jax.Array]], list[jax.Array]]
"""Applies a function of a stack to arrays of equal shape that devices hold in parts, each device to some whole ones."""

_SMALLEST_NORM = 1e-12  # of a gradient, below which its update vanishes instead of being normalized


def muon(
    learning_rate: Number,
    plan: Prescription | Scales,
    layout: Layout | None = None,
    *,
    factor: str = "sqrt(max(1,out/in))",
    momentum: Number = 0.95,
    b1: float = 0.9,
    b2: float = 0.98,
    epsilon: Number = EPSILON,
    dtype: str | None = None,
    share: Share | None = None,
    weight_decay: Number | PyTree = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Muon for hidden matrices and Adam for all other parameters, with one learning rate per parameter.

    Both use the same base learning rate. The constant of hidden layers in the prescription sets their ratio: 0.2 with
    the factor √max(out, in) makes updates about as large as Adam's.

    Args:
        learning_rate: The base learning rate.
        plan: The prescription. Inside a compiled step, its scales, together with `layout`.
        layout: The layout, which identifies the matrices; included in a prescription.
        factor: The factor on orthogonalized updates, one of `SHAPE_FACTORS`.
        momentum: Decay of the momentum of hidden matrices.
        b1: Decay of Adam's first moment.
        b2: Decay of Adam's second moment.
        epsilon: The base epsilon of Adam.
        dtype: The precision in which to orthogonalize; by default that of the parameters.
        share: How devices share the matrices of which each has a part; None if they are whole.
        weight_decay: As in `with_rates`.
        schedule: As in `with_rates`.
    """
    if factor not in SHAPE_FACTORS:
        raise ValueError(f"factor is {factor!r}: expected one of {', '.join(SHAPE_FACTORS)}")
    scales, layout = scales_of(plan, with_adam(MUON_FACTORS[factor])), layout_of(plan, layout)
    is_hidden = [leaf.role is Role.HIDDEN for leaf in layout.leaves]
    kinds = layout.tree(["muon" if hidden else "adam" for hidden in is_hidden])
    adams = jax.tree.map(lambda kind, x: x if kind == "adam" else optax.MaskedNode(), kinds, scales.epsilon)
    axes = [leaf.axes for leaf, hidden in zip(layout.leaves, is_hidden, strict=True) if hidden]
    directions: dict[Hashable, optax.GradientTransformation] = {
        "muon": optax.chain(
            optax.trace(momentum, nesterov=True),  # pyright: ignore[reportArgumentType]
            orthogonalize(axes, factor=SHAPE_FACTORS[factor], dtype=dtype, share=share),
        ),
        "adam": scale_by_adam(replace(scales, epsilon=adams), b1=b1, b2=b2, epsilon=epsilon),
    }
    return optax.chain(
        optax.partition(directions, lambda params: map_leaves(lambda _, kind, __: kind, layout, params, kinds)),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


def orthogonalize(
    axes: Sequence[Axes], *, factor: Callable[[int, int], float], dtype: str | None = None, share: Share | None = None
) -> optax.GradientTransformation:
    """Orthogonalize every matrix and multiply it by the factor of its shape.

    Args:
        axes: The axes of each leaf, in the order in which JAX flattens the tree.
        factor: Returns the factor from the numbers of outputs and inputs.
        dtype: The precision in which to orthogonalize; by default that of the updates.
        share: How devices share the matrices of which each has a part; None if they are whole.
    """

    def update(updates: PyTree, _: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(updates)
        narrow = [x.astype(dtype or x.dtype) for x in leaves]
        found = _orthogonal(narrow, axes) if share is None else _shared(narrow, axes, share)

        def scaled(orthogonal: jax.Array, x: jax.Array, axes: Axes) -> jax.Array:
            inputs, outputs = _sides(x, axes)
            return orthogonal.astype(x.dtype) * factor(outputs, inputs)

        return structure.unflatten(map(scaled, found, leaves, axes))

    return optax.stateless(update)


def orthogonalization_flops(outputs: int, inputs: int) -> float:
    """Return the FLOPs of orthogonalizing one matrix: three products per iteration, on the smaller side.

    >>> orthogonalization_flops(8, 8) == 5 * 3 * 2 * 8**3
    True
    """
    small, large = sorted((outputs, inputs))
    return ITERATIONS * (4.0 * small**2 * large + 2.0 * small**3)


def _shared(leaves: Sequence[jax.Array], axes: Sequence[Axes], share: Share) -> list[jax.Array]:
    """Orthogonalize leaves of which each device has a part."""
    alike: defaultdict[tuple[tuple[int, ...], Axes], list[int]] = defaultdict(list)
    for index, x in enumerate(leaves):
        alike[x.shape, axes[index]].append(index)
    found: dict[int, jax.Array] = {}
    for (_, each), indices in alike.items():

        def together(stack: jax.Array, each: Axes = each) -> jax.Array:
            return jnp.stack(_orthogonal(list(stack), [each] * len(stack)))

        found |= zip(indices, share(together, [leaves[index] for index in indices]), strict=True)
    return [found[index] for index in range(len(leaves))]


def _orthogonal(leaves: Sequence[jax.Array], axes: Sequence[Axes]) -> list[jax.Array]:
    """Orthogonalize every matrix of whole leaves."""
    flat = [_flatten(x, each) for x, each in zip(leaves, axes, strict=True)]
    found: dict[int, jax.Array] = {}
    for batch in _batches(flat):
        ends = np.cumsum([len(flat[index]) for index in batch])[:-1]
        together = _newton_schulz(jnp.concatenate([flat[index] for index in batch]))
        found |= zip(batch, jnp.split(together, ends), strict=True)
    return [_unflatten(found[index], x, each) for index, (x, each) in enumerate(zip(leaves, axes, strict=True))]


def _newton_schulz(matrices: jax.Array) -> jax.Array:
    """Orthogonalize a stack of matrices: Optax's Muon without momentum."""
    each = MuonDimensionNumbers(reduction_axis=1, output_axis=2)
    rule = scale_by_muon(
        ns_steps=ITERATIONS, beta=0.0, nesterov=False, eps=_SMALLEST_NORM, weight_dimension_numbers=each
    )
    updates, _ = rule.update(matrices, rule.init(matrices))
    assert isinstance(updates, jax.Array)
    return updates


def _batches(flat: Sequence[jax.Array]) -> Iterator[list[int]]:
    """Group leaves whose matrices have equal shapes, into batches of limited size with at least one leaf."""
    alike: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, matrices in enumerate(flat):
        alike[matrices.shape[1:]].append(index)
    for indices in alike.values():
        batch: list[int] = []
        for index in indices:
            if batch and sum(flat[other].size for other in (*batch, index)) > LARGEST_BATCH:
                yield batch
                batch = []
            batch.append(index)
        yield batch


def _sides(x: jax.Array, axes: Axes) -> tuple[int, int]:
    inputs, outputs = (math.prod(x.shape[axis] for axis in side) for side in (axes.inputs, axes.outputs))
    return inputs, outputs


def _order(x: jax.Array, axes: Axes) -> tuple[int, ...]:
    """Return the axes with those of the smaller side of the matrix before those of the larger one."""
    inputs, outputs = _sides(x, axes)
    sides = (axes.inputs, axes.outputs) if inputs <= outputs else (axes.outputs, axes.inputs)
    return (*axes.stack, *sides[0], *sides[1])


def _flatten(x: jax.Array, axes: Axes) -> jax.Array:
    """Return a leaf as a stack of matrices, none of them taller than wide."""
    return x.transpose(_order(x, axes)).reshape(-1, *sorted(_sides(x, axes)))


def _unflatten(matrices: jax.Array, x: jax.Array, axes: Axes) -> jax.Array:
    """Return matrices in the shape of the leaf that they come from."""
    order = _order(x, axes)
    inverse = sorted(range(x.ndim), key=order.__getitem__)
    return matrices.reshape([x.shape[axis] for axis in order]).transpose(inverse)
