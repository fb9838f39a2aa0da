"""Training functions that train nothing: the optimum, its exponent and the noise are known."""

import math
from collections.abc import Callable

from tests.sweeps.simulated import Landscape
from widthwise.fit.design import Sample

WIDTHS = (64, 128, 256, 512)
CALM = Landscape(position=-8, noise=0.001, spread=0.02)
"""With so little noise a search ends soon, after a few rounds of each kind."""


def training(landscape: Landscape) -> Callable[[int, float, int], float]:
    """Return a function that draws its losses from a landscape; wider is better."""

    def train(width: int, learning_rate: float, seed: int) -> float:
        return landscape.loss(Sample(width, math.log2(learning_rate), seed)) * width**-0.05

    return train


class Counted:
    """A training function that counts its runs, and fails once it has had so many."""

    def __init__(self, train: Callable[[int, float, int], float], *, most: float = math.inf) -> None:
        self.runs: list[tuple[int, float, int]] = []
        self.most = most
        self._train = train

    def __call__(self, width: int, learning_rate: float, seed: int) -> float:
        if len(self.runs) >= self.most:
            raise InterruptedError("the machine is gone")
        self.runs.append((width, learning_rate, seed))
        return self._train(width, learning_rate, seed)
