"""SGD with momentum."""

import optax

from widthwise.optim.rates import Number, scales_of, with_rates
from widthwise.parameterize import Prescription, PyTree, Scales
from widthwise.theory import SGD


def sgd(
    learning_rate: Number,
    plan: Prescription | Scales,
    *,
    momentum: float = 0.9,
    weight_decay: Number | PyTree = 0.0,
    schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
    """SGD with momentum and one learning rate per parameter; see `with_rates` for the shared options."""
    scales = scales_of(plan, SGD)
    return optax.chain(
        optax.trace(momentum), with_rates(learning_rate, scales, weight_decay=weight_decay, schedule=schedule)
    )
