"""What losses at some learning rates say: the optimum, and the stability threshold (appendix, experimental details)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

UNSTABLE = 1.2
"""Above the optimum, a loss of more than this times the minimum counts as unstable."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The losses at learning rates, read; rates are indices on a lattice.

    Attributes:
        losses: The loss at every rate tried; NaN or infinite where training diverged.
        tried: The rates tried, in order.
        optimum: The rate with the smallest loss; none if all diverged.
        lower: The nearest rate tried below the optimum.
        upper: The nearest rate tried above it.
        stable: The largest rate tried below the smallest unstable one.
        unstable: The smallest rate above the optimum that diverged or lost more than 20 %.
    """

    losses: Mapping[int, float]
    tried: tuple[int, ...]
    optimum: int | None = None
    lower: int | None = None
    upper: int | None = None
    stable: int | None = None
    unstable: int | None = None

    @classmethod
    def of(cls, losses: Mapping[int, float]) -> "Reading":
        """Read losses.

        >>> reading = Reading.of({-8: 3.2, -7: 3.0, -6: 3.1, -5: 3.7, -4: math.nan})
        >>> reading.optimum, reading.stable, reading.unstable
        (-7, -6, -5)
        """
        tried = tuple(sorted(losses))
        finite = [index for index in tried if math.isfinite(losses[index])]
        if not finite:
            return cls(losses=losses, tried=tried, unstable=min(tried, default=None))
        optimum = min(finite, key=lambda index: losses[index])
        # Written so that NaN is above the limit.
        beyond = [index for index in tried if index > optimum and not losses[index] <= UNSTABLE * losses[optimum]]
        unstable = min(beyond, default=None)
        return cls(
            losses=losses,
            tried=tried,
            optimum=optimum,
            lower=max((index for index in tried if index < optimum), default=None),
            upper=min((index for index in tried if index > optimum), default=None),
            stable=max(index for index in tried if unstable is None or index < unstable),
            unstable=unstable,
        )

    def risen(self, fraction: float) -> bool:
        """Say whether a rate below the optimum was tried that is worse by this fraction, or diverged."""
        if self.optimum is None:
            return False
        limit = self.losses[self.optimum] * (1 + fraction)
        return any(not self.losses[index] <= limit for index in self.tried if index < self.optimum)
