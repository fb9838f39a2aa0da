"""Adafactor, factored the same way at every width (Shazeer & Stern 2018, with Optax's defaults).

Optax factors a parameter's two largest axes if both reach 128, so a head-split kernel is factored at one width and
not at another, and a sweep over width would compare different optimizers. Here what decides is what the axes *are*:
second moments are averaged over all output axes for one factor and over all input axes for the other. Without a
layout, those are the last axis and the one before. Axes of lanes or stacked layers take no part.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from widthwise.optim.parameter_scaling import FLOOR, layer_rms, map_leaves, scale_by_parameter
from widthwise.optim.rates import PyTree, Scalar, with_rates
from widthwise.parameterize import Axes, Layout, Scales

EPSILON = 1e-30


def adafactor(
    learning_rate: Scalar,
    scales: Scales,
    *,
    layout: Layout | None = None,
    decay: float = 0.8,
    epsilon: Scalar = EPSILON,
    clip: float = 1.0,
    floor: Scalar = FLOOR,
    weight_decay: Scalar = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Adafactor without momentum, with parameter scaling and with update clipping.

    Args:
        learning_rate: The base learning rate: the relative change per step.
        scales: The scalars for every parameter.
        layout: The roles, which tell what to factor; see this module's docstring.
        decay: The decay exponent: the second moment's decay at step t is 1 − t^-decay.
        epsilon: The base of what is added to the squared gradient.
        clip: The largest root mean square an update may have, layer by layer, before learning rate and scaling.
        floor: The base of the least size a parameter is taken to have.
        weight_decay: As in `with_rates`.
        schedule: As in `with_rates`.
    """
    return optax.chain(
        scale_by_factored_rms(scales, layout=layout, decay=decay, epsilon=epsilon),
        _clip(clip, layout),
        scale_by_parameter(scales, layout=layout, floor=floor),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


class FactoredState(NamedTuple):
    """The second moments: `row` and `column` means of a factored parameter, `full` ones of any other.

    Means keep the axes they average over at length 1; what a parameter does not need is an empty array.
    """

    step: jax.Array
    row: PyTree
    column: PyTree
    full: PyTree


def scale_by_factored_rms(
    scales: Scales, *, layout: Layout | None, decay: float, epsilon: Scalar
) -> optax.GradientTransformation:
    """Divide every update by the root of its factored second moment."""

    def init(params: PyTree) -> FactoredState:
        def moments(x: jax.Array, axes: Axes | None) -> tuple[jax.Array, jax.Array, jax.Array]:
            empty = jnp.zeros((0,), x.dtype)
            factored = _factors(x.ndim, axes)
            if factored is None:
                return empty, empty, jnp.zeros_like(x)
            inputs, outputs = factored
            row, column = (jnp.zeros(_averaged(x.shape, over), x.dtype) for over in (outputs, inputs))
            return row, column, empty

        return FactoredState(jnp.zeros([], jnp.int32), *_unzip(map_leaves(moments, layout, params), params, 3))

    def update(updates: PyTree, state: FactoredState, params: PyTree | None = None) -> tuple[PyTree, FactoredState]:
        del params
        step = jnp.asarray(optax.safe_increment(state.step))
        keep = 1.0 - step.astype(jnp.float32) ** -decay

        def one(g: jax.Array, factor: Scalar, row: Any, column: Any, full: Any, axes: Axes | None):
            square = jnp.square(g) + epsilon * factor**2

            def average(old: jax.Array, over: tuple[int, ...]) -> jax.Array:
                new = jnp.mean(square, axis=over, keepdims=True)
                return jnp.astype(keep * old + (1.0 - keep) * new, old.dtype)

            factored = _factors(g.ndim, axes)
            if factored is None:
                full = average(full, ())
                return (g * full**-0.5).astype(g.dtype), row, column, full
            inputs, outputs = factored
            row, column = average(row, outputs), average(column, inputs)
            relative = row / jnp.mean(row, axis=inputs, keepdims=True)
            return (g * relative**-0.5 * column**-0.5).astype(g.dtype), row, column, full

        results = map_leaves(one, layout, updates, scales.epsilon, state.row, state.column, state.full)
        updates, *moments = _unzip(results, updates, 4)
        return updates, FactoredState(step, *moments)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def _clip(threshold: float, layout: Layout | None) -> optax.GradientTransformation:
    def clip(updates: PyTree, _: PyTree) -> PyTree:
        def one(u: jax.Array, axes: Axes | None) -> jax.Array:
            return u / jnp.maximum(1.0, layer_rms(u, axes) / threshold)

        return map_leaves(one, layout, updates)

    return optax.stateless(clip)


def _factors(ndim: int, axes: Axes | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Give the input and the output axes of a parameter that is factored, None for one that is not."""
    if axes is None:
        return ((ndim - 2,), (ndim - 1,)) if ndim >= 2 else None
    return (axes.inputs, axes.outputs) if axes.inputs and axes.outputs else None


def _averaged(shape: tuple[int, ...], over: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in over else size for axis, size in enumerate(shape))


def _unzip(tree: PyTree, like: PyTree, count: int) -> list[PyTree]:
    """Turn a tree of tuples into trees of their members."""
    structure = jax.tree.structure(like)
    rows = structure.flatten_up_to(tree)
    return [structure.unflatten([row[i] for row in rows]) for i in range(count)]
