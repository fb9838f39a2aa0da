"""Tuning of constants against random search, on a known noisy function of three constants.

    python benchmarks/tuning.py [SEEDS]

The function is a long, tilted valley in log constants around an optimum near the edge of stability; two fifths of the
range diverge, and losses are noisy by 0.05 %. Each seed places the optimum anew. What is compared is the noiseless loss
at the constants that the protocol returns (the average over all trials within 0.1 % of the best), as an excess over the
true minimum in percent, after 50, 200 and 800 trials; the median and the worst over seeds.
"""

import math
import statistics
import sys
import time

import numpy as np

from widthwise.parameterize import Constants
from widthwise.sweeps.tuning import ConstantsTrial, Tuning

CHECKPOINTS = (50, 200, 800)
NOISE = 5e-4
VALLEY = np.array([[0.5, 0.2, 0.0], [0.2, 2.0, 0.8], [0.0, 0.8, 1.0]]) * 0.02
SLOPE = np.array([0.2, 1.0, 0.6])


class Landscape:
    """Losses of constants; `edge` is where training diverges, in units of log10."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.optimum = self.rng.uniform(-1.0, 0.6, 3)
        # The larger the constants, the less stable: four of ten random points lie beyond.
        self.edge = float(np.quantile(self.rng.uniform(-2, 2, (20_000, 3)) @ SLOPE, 0.6))
        self.optimum -= SLOPE * max(0.0, self.optimum @ SLOPE - self.edge + 0.15) / (SLOPE @ SLOPE)

    def excess(self, constants: Constants) -> float:
        x = np.log10([constants.embedding, constants.hidden, constants.readout])
        return math.inf if x @ SLOPE > self.edge else float((x - self.optimum) @ VALLEY @ (x - self.optimum))

    def loss(self, constants: Constants) -> float:
        return 3.0 * (1 + self.excess(constants)) * (1 + NOISE * self.rng.normal())


def random_constants(rng: np.random.Generator) -> Constants:
    embedding, hidden, readout = (float(10**x) for x in rng.uniform(-2, 2, 3))
    return Constants(embedding=embedding, hidden=hidden, readout=readout)


def regrets(seed: int, batch: int | None) -> list[float]:
    """Return the excess, in percent, at every checkpoint; without a batch, of random search."""
    landscape = Landscape(seed)
    tuning = Tuning(trials=CHECKPOINTS[-1], batch=batch or 1, extensions=0, seed=seed)
    rng = np.random.default_rng([seed, 1])
    tried: list[ConstantsTrial] = []
    found: list[float] = []
    while points := tuning.propose(tried) if batch else [random_constants(rng)] * (len(tried) < tuning.trials):
        for constants in points:
            tried.append(ConstantsTrial(constants=constants, loss=landscape.loss(constants)))
            if len(tried) in CHECKPOINTS:
                result = tuning.result(tried)
                found.append(100 * landscape.excess(result.constants) if result else math.inf)
    return found


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"excess loss in %, median (worst) of {seeds} seeds")
    print("search".ljust(16) + "".join(f"{count} trials".rjust(18) for count in CHECKPOINTS) + "s per seed".rjust(14))
    for name, batch in (("random", None), ("batch 1", 1), ("batch 32", 32)):
        start = time.perf_counter()
        table = list(zip(*(regrets(seed, batch) for seed in range(seeds)), strict=True))
        seconds = (time.perf_counter() - start) / seeds
        cells = [f"{statistics.median(column):.3f} ({max(column):.3f})".rjust(18) for column in table]
        print(name.ljust(16) + "".join(cells) + f"{seconds:.1f}".rjust(14))


if __name__ == "__main__":
    main()
