"""The last part of every optimizer: per-parameter learning rates, independent weight decay, the schedule.

An update is −s(t) · (β · f · u + λ · W): u what the optimizer's own rule gives, f the parameter's factor from the
scales, β the base learning rate, s the schedule's shape from 0 to 1. The decay λ is *independent*: it takes part in
the schedule but neither in the base learning rate nor in the factors (the paper's weight-decay experiments). Since it
shrinks stored parameters by a fraction of themselves, multipliers do not change what it does.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from widthwise.parameterize import Prescription, Scales
from widthwise.theory import OptimizerFamily

Scalar: TypeAlias = jax.Array | float
PyTree: TypeAlias = Any


def scales_of(plan: Prescription | Scales, family: OptimizerFamily) -> Scales:
    """Give the scales of a plan, which must be for this family of optimizers; scales by themselves cannot tell."""
    if isinstance(plan, Scales):
        return plan
    if not isinstance(plan, Prescription):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"plan is a {type(plan).__name__}: expected what prescribe(...) gives, or its scales")
    if plan.exponents.family != family:
        raise ValueError(
            f"the plan is for optimizers of the {plan.exponents.family.name} family, this one is of {family.name}: "
            "solve for the right one, since rates scale differently with width"
        )
    return plan.scales


def with_rates(
    learning_rate: Scalar,
    scales: Scales,
    *,
    weight_decay: Scalar = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Turn the direction that an update rule gives into the step to take.

    Args:
        learning_rate: The base learning rate β, the schedule's peak.
        scales: The factors on it, parameter by parameter.
        weight_decay: λ, the fraction of itself that a parameter loses per step at the schedule's peak.
        schedule: The shape s of the schedule, e.g. `warmup_cosine`; None for a constant 1.
    """
    if callable(learning_rate):
        raise ValueError("learning_rate is a function: expected the peak, with the shape from 0 to 1 as schedule=")
    decay = optax.identity() if _is_zero(weight_decay) else optax.add_decayed_weights(weight_decay)  # pyright: ignore[reportArgumentType]
    return optax.chain(
        optax.stateless(
            lambda updates, _: jax.tree.map(
                lambda u, factor: (u * factor * learning_rate).astype(u.dtype), updates, scales.learning_rate
            )
        ),
        decay,
        optax.scale(-1.0) if schedule is None else optax.scale_by_schedule(lambda step: -jnp.asarray(schedule(step))),
    )


def _is_zero(value: Scalar) -> bool:
    return isinstance(value, float | int) and value == 0
