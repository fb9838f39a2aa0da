"""Adam with one epsilon per parameter, and Adam-atan2 without epsilon (§4.3, appendix "Adam-atan2 Code Change")."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from widthwise.optim.rates import Number, scales_of, with_rates
from widthwise.parameterize import Prescription, PyTree, Scales
from widthwise.theory import ADAM

B2 = 0.98
EPSILON = 1e-9


def adam(
    learning_rate: Number,
    plan: Prescription | Scales,
    *,
    b1: float = 0.9,
    b2: float = B2,
    epsilon: Number = EPSILON,
    weight_decay: Number | PyTree = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Adam with one learning rate and one epsilon per parameter.

    The epsilon is `epsilon` times the factor in the scales: the per-layer epsilon of the theory, or a constant with
    `scales.with_constant_epsilon()`. A parameter that never had a gradient has update 0, even if epsilon is 0. See
    `with_rates` for the other options.
    """
    scales = scales_of(plan, ADAM)
    return optax.chain(
        scale_by_adam(scales, b1=b1, b2=b2, epsilon=epsilon),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


def adam_atan2(
    learning_rate: Number,
    plan: Prescription | Scales,
    *,
    a: float = 1.0,
    b: float = 1.0,
    b1: float = 0.9,
    b2: float = B2,
    weight_decay: Number | PyTree = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Adam with a·arctan2(m, b·√v) instead of m / (√v + ε): scale-invariant, bounded, and without epsilon.

    See `with_rates` for the other options.
    """
    scales = scales_of(plan, ADAM)
    return optax.chain(
        _scale_by_moments(lambda m, v: a * jnp.arctan2(m, b * jnp.sqrt(v)), b1=b1, b2=b2),
        with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule),
    )


def scale_by_adam(scales: Scales, *, b1: float, b2: float, epsilon: Number) -> optax.GradientTransformation:
    """Compute Adam's direction with one epsilon per parameter."""

    def direction(m: jax.Array, v: jax.Array, factor: Number) -> jax.Array:
        denominator = jnp.sqrt(v) + epsilon * factor
        unseen = denominator == 0  # no gradient so far (such as for an unseen token) and no epsilon
        return jnp.where(unseen, 0, m / jnp.where(unseen, 1, denominator)).astype(m.dtype)

    return _scale_by_moments(direction, scales.epsilon, b1=b1, b2=b2)


def _scale_by_moments(
    direction: Callable[..., jax.Array], *factors: PyTree, b1: float, b2: float
) -> optax.GradientTransformation:
    """Keep Adam's two moments as Optax does, and apply `direction` to them after bias correction."""

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        del params
        mu = optax.tree.update_moment(updates, state.mu, b1, 1)
        nu = optax.tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
        count = optax.safe_increment(state.count)
        corrected = optax.tree.bias_correction(mu, b1, count), optax.tree.bias_correction(nu, b2, count)
        nu = optax.tree.cast_like(nu, state.nu)
        return jax.tree.map(direction, *corrected, *factors), optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(optax.scale_by_adam(b1, b2).init, update)
