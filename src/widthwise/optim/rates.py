"""The last part of every optimizer: per-parameter learning rates, independent weight decay, the schedule.

An update is −s(t) · (β · f · u + λ · W), where u is the direction of the optimizer's own rule, f the factor of the
parameter, β the base learning rate, and s the shape of the schedule, from 0 to 1. The decay λ is *independent*: it
follows the schedule, but neither the base learning rate nor the factors (as in the paper's weight-decay experiments).
Other rules of decay come as a λ for each parameter. Since decay shrinks stored parameters by a fraction of themselves,
multipliers do not affect it.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from widthwise.parameterize import Prescription, PyTree, Scales
from widthwise.scaling.decay import MOST_DECAY
from widthwise.theory import Family

Number: TypeAlias = jax.Array | float


def scales_of(plan: Prescription | Scales, family: Family) -> Scales:
    """Return the scales of a plan, which must be for this optimizer family; bare scales are not checked."""
    if isinstance(plan, Scales):
        return plan
    if not isinstance(plan, Prescription):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"plan is a {type(plan).__name__}: expected the result of prescribe(...), or its scales")
    if plan.exponents.family != family:
        raise ValueError(
            f"the plan is for optimizers of the {plan.exponents.family.name} family, this one is of {family.name}: "
            "solve for the right one, since rates scale differently with width"
        )
    return plan.scales


def with_rates(
    learning_rate: Number,
    scales: Scales,
    *,
    weight_decay: Number | PyTree = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """Turn the direction of an update rule into a step.

    Args:
        learning_rate: The base learning rate β, the peak of the schedule.
        scales: The factors on the learning rate of each parameter.
        weight_decay: λ, the fraction of itself that a parameter loses per step at the peak of the schedule; a tree for
            a λ of each parameter.
        schedule: The shape s of the schedule, such as `warmup_cosine`; None for a constant 1.
    """
    for name, value in (("learning_rate", learning_rate), ("weight_decay", weight_decay)):
        if isinstance(value, int | float) and not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value}: expected a number from 0 up")
    if isinstance(weight_decay, int | float) and weight_decay > MOST_DECAY:
        raise ValueError(
            f"weight_decay is {weight_decay}, the fraction of every weight that a step removes: expected at most "
            f"{MOST_DECAY}. It does not depend on the learning rate here; optax.adamw(lr, weight_decay=w) is lr · w"
        )
    if callable(learning_rate):
        raise ValueError("learning_rate is a function: expected the peak, with the shape from 0 to 1 as schedule=")
    return optax.chain(
        optax.stateless(
            lambda updates, _: jax.tree.map(
                lambda u, factor: (u * factor * learning_rate).astype(u.dtype), updates, scales.learning_rate
            )
        ),
        optax.identity() if _is_zero(weight_decay) else _decay(weight_decay),
        optax.scale(-1.0) if schedule is None else optax.scale_by_schedule(lambda step: -jnp.asarray(schedule(step))),
    )


def _decay(weight_decay: Number | PyTree) -> optax.GradientTransformation:
    def add(updates: PyTree, params: PyTree | None) -> PyTree:
        if params is None:
            raise ValueError("weight decay needs the parameters: expected optimizer.update(gradients, state, params)")
        one = jax.tree_util.treedef_is_leaf(jax.tree.structure(weight_decay))
        each = jax.tree.map(lambda _: weight_decay, params) if one else weight_decay
        return jax.tree.map(lambda u, x, part: u + part * x, updates, params, each)

    return optax.stateless(add)


def _is_zero(value: Any) -> bool:
    return isinstance(value, float | int) and value == 0
