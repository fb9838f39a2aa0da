"""Parameter scaling: updates proportional to the size of the parameter they change, and Adam with it.

The size of a parameter is its root mean square per layer, with a floor so that a layer that starts at zero can change.
The floor is a size of stored parameters and therefore part of the parameterization: each parameter has its own factor.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from widthwise.optim.adam import EPSILON, scale_by_adam
from widthwise.optim.rates import Number, scales_of, with_rates
from widthwise.parameterize import Axes, Layout, Prescription, PyTree, Scales
from widthwise.theory import ADAFACTOR

FLOOR = 1e-3


def adam_ps(
    learning_rate: Number,
    plan: Prescription | Scales,
    layout: Layout | None = None,
    *,
    b1: float = 0.9,
    b2: float = 0.98,
    epsilon: Number = EPSILON,
    floor: Number = FLOOR,
    weight_decay: Number | PyTree = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Adam with parameter scaling, a member of the Adafactor family.

    Args:
        learning_rate: The base learning rate: the relative change per step.
        plan: The prescription. Inside a compiled step, its scales, together with `layout`.
        layout: The layout, which identifies layers stacked in one parameter; included in a prescription.
        b1: Decay of the first moment.
        b2: Decay of the second moment.
        epsilon: The base epsilon, as in `adam`.
        floor: The base value of the smallest parameter size that scaling uses.
        weight_decay: As in `with_rates`.
        schedule: As in `with_rates`.
    """
    scales, layout = scales_of(plan, ADAFACTOR), layout_of(plan, layout)
    return optax.chain(
        scale_by_adam(scales, b1=b1, b2=b2, epsilon=epsilon),
        scale_by_parameter(scales, layout, floor=floor),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


def scale_by_parameter(scales: Scales, layout: Layout, *, floor: Number = FLOOR) -> optax.GradientTransformation:
    """Multiply every update by the size of its parameter."""

    def scale(updates: PyTree, params: PyTree) -> PyTree:
        def one(u: jax.Array, p: jax.Array, factor: Number, axes: Axes) -> jax.Array:
            return (u * jnp.maximum(layer_rms(p, axes), floor * factor)).astype(u.dtype)

        return map_leaves(one, layout, updates, params, scales.floor)

    return optax.stateless(scale)


def layout_of(plan: Prescription | Scales, layout: Layout | None) -> Layout:
    """Return the layout of a prescription, or the one passed with bare scales."""
    if isinstance(plan, Prescription):
        return plan.layout
    if layout is None:
        raise ValueError("scales without their layout: pass the prescription, or its layout with its scales")
    return layout


def layer_rms(x: jax.Array, axes: Axes) -> jax.Array:
    """Return the root mean square of an array, separately for each layer of a stack."""
    return jnp.sqrt(jnp.mean(jnp.square(x), axis=(*axes.inputs, *axes.outputs), keepdims=True))


def map_leaves(function: Callable[..., Any], layout: Layout, tree: PyTree, *trees: PyTree) -> PyTree:
    """Map a function over the leaves of trees with the layout's structure; its last argument is the axes of a leaf."""
    leaves, structure = jax.tree.flatten(tree)
    if [tuple(x.shape) for x in leaves] != [leaf.shape for leaf in layout.leaves]:
        raise ValueError("the parameters are not those of the layout: expected the prescribed model")
    columns = [structure.flatten_up_to(other) for other in trees]
    axes = [leaf.axes for leaf in layout.leaves]
    return structure.unflatten([function(*row) for row in zip(leaves, *columns, axes, strict=True)])
