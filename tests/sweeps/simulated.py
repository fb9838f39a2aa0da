"""Sweeps in which losses are drawn instead of trained: the optimum, its exponent and the noise are known."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from widthwise.fit.design import Sample
from widthwise.study import Row


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """A loss that rises exponentially on both sides of its optimum, with a cliff above it.

    Attributes:
        exponent: How the optimal rate changes with width.
        position: log2 of the optimal rate at width 64.
        noise: The standard deviation of a log loss at the optimum; it grows away from it.
        spread: How far seeds move the optimum, in octaves: a standard deviation.
        cliff: How far above the optimum training diverges, in octaves.
        draw: Which of many draws to return.
    """

    exponent: float = -0.5
    position: float = -6.0
    noise: float = 0.005
    spread: float = 0.05
    cliff: float = 2.7
    draw: int = 0

    def optimum(self, width: int) -> float:
        """Return log2 of the optimal rate of a width."""
        return self.position + self.exponent * math.log2(width / 64)

    def loss(self, point: Sample) -> float:
        """Return the loss of a run: the same one whenever it is asked for."""
        block = np.random.default_rng([self.draw, point.width, point.seed])
        level, moved = block.normal(size=2) * (0.015, self.spread)
        away = point.octave - self.optimum(point.width) - moved
        if away > self.cliff:
            return math.nan
        run = np.random.default_rng([self.draw, point.width, point.seed, round(16 * point.octave) + 10_000])
        rise = 0.05 * (math.expm1(-0.6 * away) / 0.6 + math.expm1(1.2 * away) / 1.2)
        return 3 * math.exp(level + rise + self.noise * (1 + rise / 0.1) * run.normal())


class Pretended:
    """A driver that computes losses from width, rate and seed, and a study that only keeps rows.

    Args:
        loss: Returns the loss of a run.
        most: How many runs it computes before all others fail.
    """

    def __init__(self, loss: Callable[[Sample], float], *, most: float = math.inf) -> None:
        self.study, self.rows, self.trained, self._loss, self._most = self, dict[str, Row](), 0, loss, most

    def put(self, *_):
        """Keep no notes."""

    def ask(self, *_, label):
        """Keep no requests."""

    def point(self, spec):
        """Return what the loss of a run depends on."""
        return Sample(spec.width, math.log2(spec.learning_rate), spec.seed)

    def results(self, run):
        """Return what is known of a run beside its loss."""
        del run
        return {}

    def compute(self, runs, *, until):
        """Return the losses, as far as there are any."""
        found = {}
        for run in runs:
            if run.id not in self.rows and len(self.rows) < self._most:
                results = {"eval_loss": self._loss(self.point(run.spec)), **self.results(run)}
                self.rows[run.id] = Row(run.request, run.id, "finished", results)
                self.trained += 1
            if run.id in self.rows:
                found[run.id] = self.rows[run.id].results["eval_loss"]
        return found
