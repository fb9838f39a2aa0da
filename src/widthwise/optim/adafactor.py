"""Adafactor, factored the same way at every width (Shazeer & Stern 2018, with Optax's defaults).

Optax factors the two largest axes of a parameter if both have at least 128 entries. A head-split kernel is then
factored at one width and not at another, and a sweep over width would compare different optimizers. Here the *meaning*
of the axes decides: one factor averages second moments over all output axes, the other over all input axes. Axes of
lanes or stacked layers are never averaged over.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from widthwise.optim.parameter_scaling import FLOOR, layer_rms, layout_of, map_leaves, scale_by_parameter
from widthwise.optim.rates import Number, scales_of, with_rates
from widthwise.parameterize import Axes, Layout, Prescription, PyTree, Scales
from widthwise.theory import ADAFACTOR

EPSILON = 1e-30


def adafactor(
    learning_rate: Number,
    plan: Prescription | Scales,
    layout: Layout | None = None,
    *,
    decay: float = 0.8,
    epsilon: Number = EPSILON,
    clip: float = 1.0,
    floor: Number = FLOOR,
    weight_decay: Number | PyTree = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Adafactor without momentum, with parameter scaling and with update clipping.

    Args:
        learning_rate: The base learning rate: the relative change per step.
        plan: The prescription. Inside a compiled step, its scales, together with `layout`.
        layout: The layout, which determines what to factor; included in a prescription.
        decay: The decay exponent; the second moment decays by 1 − t^-decay at step t.
        epsilon: The base epsilon, added to the squared gradient and therefore multiplied by the square of the factor.
        clip: The largest root mean square of an update, per layer, before learning rate and scaling.
        floor: The base value of the smallest parameter size that scaling uses.
        weight_decay: As in `with_rates`.
        schedule: As in `with_rates`.
    """
    scales, layout = scales_of(plan, ADAFACTOR), layout_of(plan, layout)
    return optax.chain(
        scale_by_factored_rms(scales, layout, decay=decay, epsilon=epsilon),
        _clip(clip, layout),
        scale_by_parameter(scales, layout, floor=floor),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


class FactoredState(NamedTuple):
    """The second moments: `row` and `column` means for factored parameters, `full` moments for all others.

    Averaged axes are kept with length 1. Moments that a parameter does not need are a single zero.
    """

    step: jax.Array
    row: PyTree
    column: PyTree
    full: PyTree


def scale_by_factored_rms(
    scales: Scales, layout: Layout, *, decay: float, epsilon: Number
) -> optax.GradientTransformation:
    """Divide every update by the root of its factored second moment."""

    def init(params: PyTree) -> FactoredState:
        def moments(x: jax.Array, axes: Axes) -> tuple[jax.Array, jax.Array, jax.Array]:
            unused = jnp.zeros((1,), x.dtype)
            if not _is_factored(axes):
                return unused, unused, jnp.zeros_like(x)
            row, column = (jnp.zeros(_averaged(x.shape, over), x.dtype) for over in (axes.outputs, axes.inputs))
            return row, column, unused

        return FactoredState(jnp.zeros([], jnp.int32), *_unzip(map_leaves(moments, layout, params), params, 3))

    def update(updates: PyTree, state: FactoredState, params: PyTree | None = None) -> tuple[PyTree, FactoredState]:
        del params
        step = jnp.asarray(optax.safe_increment(state.step))
        keep = 1.0 - step.astype(jnp.float32) ** -decay

        def one(g: jax.Array, factor: Number, row: Any, column: Any, full: Any, axes: Axes):
            square = jnp.square(g) + epsilon * factor**2

            def average(old: jax.Array, over: tuple[int, ...]) -> jax.Array:
                new = jnp.mean(square, axis=over, keepdims=True)
                return jnp.astype(keep * old + (1.0 - keep) * new, old.dtype)

            if not _is_factored(axes):
                full = average(full, ())
                return (g * _inverse_root(full)).astype(g.dtype), row, column, full
            row, column = average(row, axes.outputs), average(column, axes.inputs)
            mean = jnp.mean(row, axis=axes.inputs, keepdims=True)
            relative = row / jnp.where(mean > 0, mean, 1)
            return (g * _inverse_root(relative) * _inverse_root(column)).astype(g.dtype), row, column, full

        results = map_leaves(one, layout, updates, scales.epsilon, state.row, state.column, state.full)
        updates, *moments = _unzip(results, updates, 4)
        return updates, FactoredState(step, *moments)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def _clip(threshold: float, layout: Layout) -> optax.GradientTransformation:
    def clip(updates: PyTree, _: PyTree) -> PyTree:
        def one(u: jax.Array, axes: Axes) -> jax.Array:
            return u / jnp.maximum(1.0, layer_rms(u, axes) / threshold)

        return map_leaves(one, layout, updates)

    return optax.stateless(clip)


def _is_factored(axes: Axes) -> bool:
    return bool(axes.inputs and axes.outputs)


def _inverse_root(moment: jax.Array) -> jax.Array:
    """Return 1/√x, or 1 for x = 0 (no gradient so far, and an epsilon that underflows): it then multiplies 0."""
    return jnp.where(moment > 0, moment, 1) ** -0.5


def _averaged(shape: tuple[int, ...], over: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in over else size for axis, size in enumerate(shape))


def _unzip(tree: PyTree, like: PyTree, count: int) -> list[PyTree]:
    """Turn a tree of tuples into a list of trees."""
    structure = jax.tree.structure(like)
    rows = structure.flatten_up_to(tree)
    return [structure.unflatten([row[i] for row in rows]) for i in range(count)]
