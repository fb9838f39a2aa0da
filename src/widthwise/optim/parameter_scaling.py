"""Parameter scaling: updates in proportion to the parameter they change, and Adam with it.

The size of a parameter is the root mean square of one layer's, floored so that a layer that starts at zero can move.
The floor is a size of stored parameters, so it is part of the parameterization: each has its own factor.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from widthwise.optim.adam import EPSILON, scale_by_adam
from widthwise.optim.rates import PyTree, Scalar, scales_of, with_rates
from widthwise.parameterize import Axes, Layout, Prescription, Scales
from widthwise.theory import ADAFACTOR

FLOOR = 1e-3


def adam_ps(
    learning_rate: Scalar,
    plan: Prescription | Scales,
    layout: Layout | None = None,
    *,
    b1: float = 0.9,
    b2: float = 0.98,
    epsilon: Scalar = EPSILON,
    floor: Scalar = FLOOR,
    weight_decay: Scalar = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Adam with parameter scaling, a member of the Adafactor family.

    Args:
        learning_rate: The base learning rate: the relative change per step.
        plan: What is prescribed; or its scales, as arguments of a compiled step, with its layout.
        layout: The roles, which tell layers that are stacked in one parameter apart; comes with a prescription.
        b1: Decay of the first moment.
        b2: Decay of the second moment.
        epsilon: The base epsilon, as in `adam`.
        floor: The base of the least size a parameter is taken to have.
        weight_decay: As in `with_rates`.
        schedule: As in `with_rates`.
    """
    scales, layout = scales_of(plan, ADAFACTOR), layout_of(plan, layout)
    return optax.chain(
        scale_by_adam(scales, b1=b1, b2=b2, epsilon=epsilon),
        scale_by_parameter(scales, layout, floor=floor),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


def scale_by_parameter(scales: Scales, layout: Layout, *, floor: Scalar = FLOOR) -> optax.GradientTransformation:
    """Multiply every update by the size of its parameter."""

    def scale(updates: PyTree, params: PyTree) -> PyTree:
        def one(u: jax.Array, p: jax.Array, factor: Scalar, axes: Axes) -> jax.Array:
            return (u * jnp.maximum(layer_rms(p, axes), floor * factor)).astype(u.dtype)

        return map_leaves(one, layout, updates, params, scales.floor)

    return optax.stateless(scale)


def layout_of(plan: Prescription | Scales, layout: Layout | None) -> Layout:
    """Give the roles that come with a prescription, or those given with bare scales."""
    if isinstance(plan, Prescription):
        return plan.layout
    if layout is None:
        raise ValueError("scales without their layout: pass the prescription, or its layout beside its scales")
    return layout


def layer_rms(x: jax.Array, axes: Axes) -> jax.Array:
    """Give the root mean square of an array, of each layer separately where layers are stacked."""
    return jnp.sqrt(jnp.mean(jnp.square(x), axis=(*axes.inputs, *axes.outputs), keepdims=True))


def map_leaves(function: Callable[..., Any], layout: Layout, tree: PyTree, *trees: PyTree) -> PyTree:
    """Map a function over the leaves of trees of the layout's structure; its last argument is the leaf's axes."""
    leaves, structure = jax.tree.flatten(tree)
    if [tuple(x.shape) for x in leaves] != [leaf.shape for leaf in layout.leaves]:
        raise ValueError("the parameters are not those of the layout: expected the model that was prescribed for")
    columns = [structure.flatten_up_to(other) for other in trees]
    axes = [leaf.axes for leaf in layout.leaves]
    return structure.unflatten([function(*row) for row in zip(leaves, *columns, axes, strict=True)])
