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
from widthwise.optim.rates import PyTree, Scalar, with_rates
from widthwise.parameterize import Axes, Layout, Scales

FLOOR = 1e-3


def adam_ps(
    learning_rate: Scalar,
    scales: Scales,
    *,
    layout: Layout | None = None,
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
        scales: The scalars for every parameter.
        layout: The roles; needed only where layers are stacked in one parameter, to scale each by its own size.
        b1: Decay of the first moment.
        b2: Decay of the second moment.
        epsilon: The base epsilon, as in `adam`.
        floor: The base of the least size a parameter is taken to have.
        weight_decay: As in `with_rates`.
        schedule: As in `with_rates`.
    """
    return optax.chain(
        scale_by_adam(scales, b1=b1, b2=b2, epsilon=epsilon),
        scale_by_parameter(scales, layout=layout, floor=floor),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


def scale_by_parameter(
    scales: Scales, *, layout: Layout | None = None, floor: Scalar = FLOOR
) -> optax.GradientTransformation:
    """Multiply every update by the size of its parameter."""

    def scale(updates: PyTree, params: PyTree) -> PyTree:
        def one(u: jax.Array, p: jax.Array, factor: Scalar, axes: Axes | None) -> jax.Array:
            return (u * jnp.maximum(layer_rms(p, axes), floor * factor)).astype(u.dtype)

        return map_leaves(one, layout, updates, params, scales.floor)

    return optax.stateless(scale)


def layer_rms(x: jax.Array, axes: Axes | None) -> jax.Array:
    """Give the root mean square of an array, of each layer separately where layers are stacked."""
    over = None if axes is None else (*axes.inputs, *axes.outputs)
    return jnp.sqrt(jnp.mean(jnp.square(x), axis=over, keepdims=True))


def map_leaves(function: Callable[..., Any], layout: Layout | None, tree: PyTree, *trees: PyTree) -> PyTree:
    """Map a function over the leaves of trees; its last argument is the leaf's axes, None without a layout."""
    leaves, structure = jax.tree.flatten(tree)
    axes = [None] * len(leaves) if layout is None else [leaf.axes for leaf in layout.leaves]
    columns = [structure.flatten_up_to(other) for other in trees]
    return structure.unflatten([function(*row) for row in zip(leaves, *columns, axes, strict=True)])
