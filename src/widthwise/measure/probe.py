"""When to measure, and on what: logarithmically spaced steps, and one fixed batch."""

import bisect
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int


@dataclass(frozen=True, kw_only=True)
class Probe:
    """How to measure alignment during training.

    Attributes:
        tokens: The batch to measure on.
        steps: The steps after which to measure, in ascending order.
        keep_initial: Whether to keep the initial parameters in memory. Otherwise they are drawn again from the seed at
            every measurement, which saves memory and takes time.
    """

    tokens: Int[Any, "batch time"]
    steps: tuple[int, ...]
    keep_initial: bool = False

    def next_after(self, step: int) -> int | None:
        """Return the first measured step after `step`, or None."""
        index = bisect.bisect_right(self.steps, step)
        return self.steps[index] if index < len(self.steps) else None


def log_spaced(steps: int, *, per_doubling: int = 1) -> tuple[int, ...]:
    """Return the steps 0, 1, 2, 4, 8, … and the last one, or more of them per doubling.

    Alignment changes fast early in training and slowly later, and so few measurements cost almost nothing.

    >>> log_spaced(100)
    (0, 1, 2, 4, 8, 16, 32, 64, 100)
    >>> log_spaced(10, per_doubling=2)
    (0, 1, 2, 3, 4, 6, 8, 10)
    """
    if steps < 1 or per_doubling < 1:
        raise ValueError(f"{steps} steps, {per_doubling} per doubling: expected 1 or more of both")
    spaced = {round(2 ** (k / per_doubling)) for k in range(per_doubling * steps.bit_length())}
    return (0, *sorted(step for step in spaced if step < steps), steps)
