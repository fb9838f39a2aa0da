"""The width at which aligned changes outgrow those by chance.

The change of a layer's inputs is in part aligned with the layer's weights. If the weights start as n^-1/2, the rest
changes the output by a constant amount, and the aligned part by an amount that grows as n^1/2. The squares add up to a
straight line in n. At small widths the first hides the second: the slope against log width is near 0, but the line
already tells where the second takes over. docs/width-4096.md shows where this was found.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """A change whose square is chance + aligned · width.

    Attributes:
        chance: The mean square of the part that does not grow.
        aligned: The mean square of the part that does, per unit of width.
    """

    chance: float
    aligned: float

    @property
    def width(self) -> float:
        """The width at which both parts are equal; infinite where nothing is aligned."""
        return self.chance / self.aligned if self.aligned > 0 else math.inf

    def at(self, width: float) -> float:
        """Return the size of the change at a width."""
        return math.sqrt(self.chance + self.aligned * width)

    def share(self, width: float) -> float:
        """Return how much of the square is aligned at a width."""
        return self.aligned * width / (self.chance + self.aligned * width)


def fit_takeover(widths: Sequence[float], sizes: Sequence[float]) -> Takeover:
    """Fit a line to the squares of sizes, each with an error in proportion to itself; no part is below 0.

    Args:
        widths: Two or more different widths.
        sizes: The root mean square of a change at each, such as `inherited` of a readout.

    What widths up to 1024 tell about 4096, where 1.39 was measured:

    >>> found = fit_takeover([256, 512, 1024], [0.617, 0.686, 0.845])
    >>> round(found.width, -1), round(found.at(4096), 1)
    (620.0, 1.4)
    """
    if len(set(widths)) < 2 or len(widths) != len(sizes):
        raise ValueError(f"{len(sizes)} sizes at widths {list(widths)}: expected one at each of two or more widths")
    if not all(0 < size < math.inf for size in sizes):
        raise ValueError(f"sizes are {list(sizes)}: expected numbers above 0")
    n, squares = np.asarray(widths, float), np.square(np.asarray(sizes, float))
    weights = 1 / squares
    aligned, chance = (float(x) for x in np.polyfit(n, squares, 1, w=weights))
    if aligned <= 0:
        return Takeover(chance=float(np.average(squares, weights=weights**2)), aligned=0.0)
    if chance <= 0:
        return Takeover(chance=0.0, aligned=float(np.average(squares / n, weights=(weights * n) ** 2)))
    return Takeover(chance=chance, aligned=aligned)
