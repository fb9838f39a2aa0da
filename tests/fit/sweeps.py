"""Simulated sweeps whose optima are known: flat on the left, a parabola around the optimum, a cliff on the right."""

import math
from dataclasses import dataclass

import numpy as np

from widthwise.fit import Trial


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A curve of log loss against octaves above the optimum; `cliff` and `end` are where it rises and diverges."""

    bend: float = 0.02
    noise: float = 0.003
    cliff: float = 1.5
    end: float = 3.0

    def __call__(self, octaves: np.ndarray) -> np.ndarray:
        rise = self.bend * octaves**2 + 0.6 * np.maximum(octaves - self.cliff, 0) ** 2
        return np.where(octaves > self.end, np.inf, rise)


def simulate(
    rng: np.random.Generator,
    *,
    widths: int = 4,
    seeds: int = 1,
    exponent: float = -0.5,
    shape: Shape | None = None,
    spread: float = 0.0,
    start: float = -8.3,
    step: float = 0.5,
    parameters: bool = False,
) -> list[Trial]:
    """Simulate a sweep from width 64 on, whose optimum is at 2^start there; `spread` moves every seed's optimum."""
    shape = Shape() if shape is None else shape
    trials: list[Trial] = []
    for doubling in range(widths):
        width, optimum = 64 * 2**doubling, start + exponent * doubling
        grid = math.floor((optimum - 4) / step) * step + step * np.arange(round(8 / step) + 1)
        for seed in range(seeds):
            level = math.log(2 + 2 * 2**-doubling) + 0.003 * rng.normal()
            losses = np.exp(
                level + shape(grid - optimum - spread * rng.normal()) + shape.noise * rng.normal(size=len(grid))
            )
            size = 12 * width**2 if parameters else None
            trials += [
                Trial(width=width, learning_rate=2.0**x, eval_loss=y, seed=seed, parameters=size)
                for x, y in zip(grid.tolist(), losses.tolist(), strict=True)
            ]
    return trials
