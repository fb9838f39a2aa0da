"""The paper's learning-rate schedule: linear warm-up from 0, then cosine decay to 0."""

import optax


def warmup_cosine(*, steps: int, warmup: int = 1000) -> optax.Schedule:
    """Return the shape of the schedule: 0 at step 0, 1 at the end of the warm-up, 0 after the last step.

    If the warm-up is not shorter than the training (the paper's smallest compute-optimal model has 877 steps), the rate
    rises with the same slope until training ends and never decays. Its last value is steps / warmup of the peak.

    Args:
        steps: The number of training steps.
        warmup: The number of steps until the peak; 0 starts at the peak.

    >>> [round(float(warmup_cosine(steps=8, warmup=4)(t)), 2) for t in range(9)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 0.85, 0.5, 0.15, 0.0]
    >>> [round(float(warmup_cosine(steps=2, warmup=4)(t)), 2) for t in range(3)]
    [0.0, 0.25, 0.5]
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}: expected 1 or more")
    if warmup < 0:
        raise ValueError(f"warmup is {warmup}: expected 0 or more")
    if warmup >= steps:
        return optax.linear_schedule(0.0, steps / warmup, steps)
    return optax.warmup_cosine_decay_schedule(0.0 if warmup else 1.0, 1.0, warmup, steps, end_value=0.0)
