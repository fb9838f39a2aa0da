"""When and on what to measure: logarithmically spaced steps, one batch that stays the same."""

import bisect
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a training loop needs to know to measure alignment on the way.

    Attributes:
        tokens: The batch to measure on.
        steps: After how many steps to measure, ascending.
        keep_initial: Whether to keep the initial parameters in memory. Otherwise they are drawn again from their seed
            at every measurement, which takes time in place of memory.
    """

    tokens: Int[Any, "batch time"]
    steps: tuple[int, ...]
    keep_initial: bool = False

    def next_after(self, step: int) -> int | None:
        """Give the first step after this one at which to measure."""
        index = bisect.bisect_right(self.steps, step)
        return self.steps[index] if index < len(self.steps) else None


@dataclass(frozen=True, kw_only=True)
class AlignmentPoint:
    """What was measured of the dense layers after a number of steps.

    Attributes:
        step: After how many.
        layers: By layer, in the order of the forward pass, the fields of `LayerMeasurement`.
    """

    step: int
    layers: dict[str, dict[str, float]]


def log_spaced(steps: int, *, per_doubling: int = 1) -> tuple[int, ...]:
    """Give the steps 0, 1, 2, 4, 8, … and the last one, or more of them for each doubling.

    Alignment changes fast at the beginning of training and slowly later; and so few measurements cost next to nothing.

    >>> log_spaced(100)
    (0, 1, 2, 4, 8, 16, 32, 64, 100)
    >>> log_spaced(10, per_doubling=2)
    (0, 1, 2, 3, 4, 6, 8, 10)
    """
    if steps < 1 or per_doubling < 1:
        raise ValueError(f"{steps} steps, {per_doubling} per doubling: expected 1 or more of both")
    spaced = {round(2 ** (k / per_doubling)) for k in range(per_doubling * steps.bit_length())}
    return (0, *sorted(step for step in spaced if step < steps), steps)
