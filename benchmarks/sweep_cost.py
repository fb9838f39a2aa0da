"""What it costs to know the exponent of the optimal learning rate to within 0.1, on simulated sweeps or real ones.

The landscapes are those of docs/results/transfer-gpu.csv: twelve groups of a transformer trained on an H200, at widths
128 to 1024. Each width keeps a shape of its own, in a family with one parameter more than the fit has, with the cliff
where training became unstable. Optima lie on the power law that was measured. Noise, the spread of optima over seeds
and the levels of seeds are as measured.

    python benchmarks/sweep_cost.py                                 # about an hour on one core
    python benchmarks/sweep_cost.py --sweeps 5 --strategies precision   # a look

With `--train`, losses are those of muP with Adam and full alignment, trained at the size of the demo. The true exponent
is not known then, so only cost and precision are compared. Each sweep has seeds of its own.

    python benchmarks/sweep_cost.py --train --sweeps 5 --strategies grid 'search with edge' precision   # over an hour
"""

import argparse
import csv
import functools
import itertools
import math
import statistics
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from scipy.optimize import least_squares

from widthwise.experiments.paper import transfer
from widthwise.fit import Curve, Estimate, Trial, curves, find_optima
from widthwise.fit.design import Sample
from widthwise.fit.powerlaw import fit_power_law
from widthwise.search.lattice import AdaptiveSearch, Grid
from widthwise.search.rounds import GroupSearch
from widthwise.sweeps.requests import SweepData, inputs_of
from widthwise.train import Lanes, Spec, train
from widthwise.train.cost import flops_per_step

RUNS = Path(__file__).parents[1] / "docs" / "results" / "transfer-gpu.csv"
PRECISION = 0.1
MOST_SEEDS = 8


@dataclass(frozen=True)
class Shape:
    """A curve of log loss around its optimum, with a cliff."""

    curvature: float
    left: float
    right: float
    cliff: float

    def __call__(self, away: float) -> float:
        return self.rise(away) + (0.4 if away > self.cliff else 0.0)

    def rise(self, away: float) -> float:
        """Return the curve without the cliff: an exponential on each side, as in the fit."""
        below, above = math.expm1(-self.left * away) / self.left, math.expm1(min(50, self.right * away)) / self.right
        return self.curvature / (self.left + self.right) * (below + above)


class OtherShape(Shape):
    """A curve of another kind: it becomes a straight line on the left, and a fourth power on the right."""

    def rise(self, away: float) -> float:
        square = self.curvature / 2 * away**2
        return square * (1 + (self.right * away / 2) ** 2) if away > 0 else square / (1 - away / 6 / self.left)


@dataclass(frozen=True)
class Truth:
    """A landscape that losses are drawn from."""

    name: str
    exponent: float
    position: float
    shapes: dict[int, Shape]
    noise: float
    spread: float
    level: float = 0.015

    def loss(self, sweep: int, point: Sample) -> float:
        """Return the loss of a run of one of many sweeps, the same whenever it is asked for."""
        key = [zlib.crc32(repr(self).encode()), sweep, point.width, point.seed]
        block = np.random.default_rng(key)
        level, off = block.normal(size=2) * (self.level, self.spread)
        run = np.random.default_rng([*key, round(8 * point.octave) + 10_000])
        rise = self.shapes[point.width](point.octave - self.optimum(point.width) - off)
        return math.exp(level + rise + self.noise * (1 + rise / 0.1) * run.normal()) if rise < 3 else math.nan

    def optimum(self, width: int) -> float:
        """Return log2 of the optimal rate."""
        return self.position + self.exponent * math.log2(width / 362)

    @property
    def middle(self) -> int:
        """log2 of the rate in the middle of a grid."""
        return round(self.optimum(362))

    @property
    def start(self) -> float:
        """log2 of the rate that a search starts at: half an octave off."""
        return self.optimum(128) + 0.5

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(self.shapes)

    @staticmethod
    @functools.cache
    def cost(width: int) -> float:
        """Return the FLOPs of a run at scale gpu."""
        return 600 * flops_per_step(Spec(width=width, blocks=4, head_dim=64, context=128).transformer(257), 64)


class Trained:
    """Losses of models of the demo's size. Every run is trained once, whichever strategies ask for it."""

    name = "mup, full"
    middle = start = -8  # where the demo starts

    def __init__(self) -> None:
        size = transfer.EXPERIMENT.sizes["cpu"]
        self.base = size.spec("adam", parameterization="mup", alignment="full")
        self.widths = size.widths
        self.data = SweepData(self.base)
        self.known: dict[tuple[int, Sample], float] = {}

    def loss(self, sweep: int, point: Sample) -> float:
        """Train, with seeds that no other sweep has."""
        if (sweep, point) not in self.known:
            seed = 1000 * sweep + point.seed
            spec = replace(self.base, width=point.width, learning_rate=2.0**point.octave, seed=seed)
            run, inputs = self.data.run(spec), inputs_of(spec)
            (result,) = train(Lanes(run.program, [run.lane], inputs.batches), inputs.evaluation)
            self.known[sweep, point] = result.eval_loss if result.status == "finished" else math.nan
        return self.known[sweep, point]

    def cost(self, width: int) -> float:
        """Return the FLOPs of a run."""
        model = replace(self.base, width=width).transformer(self.data.vocabulary)
        return self.base.steps * flops_per_step(model, self.base.batch)


Source: TypeAlias = Truth | Trained


def read_trials(path: Path = RUNS) -> dict[str, list[Trial]]:
    """Return the recorded runs, by group."""
    groups: dict[str, list[Trial]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            loss = float(row["eval_loss"]) if row["status"] == "finished" else math.nan
            groups[f"{row['parameterization']}, {row['setting']}"].append(
                Trial(
                    width=int(row["width"]),
                    learning_rate=float(row["learning_rate"]),
                    eval_loss=loss,
                    seed=int(row["seed"]),
                )
            )
    return groups


def landscape(name: str, trials: Sequence[Trial], kind: type[Shape]) -> Truth:
    """Return the landscape of a group."""
    by_width = curves(trials)
    law = fit_power_law(find_optima(by_width).runs)
    fit = law.landscape
    assert fit is not None
    return Truth(
        name=name,
        exponent=law.exponent.value,
        position=float(fit.best[0]),
        shapes={curve.width: own_shape(curve, kind) for curve in by_width},
        noise=fit.noise,
        spread=fit.spread,
    )


def own_shape(curve: Curve, kind: type[Shape]) -> Shape:
    """Fit the shape of one width alone."""
    level = curve.level - curve.level[curve.best]
    near = level < 0.3
    losses, octaves = np.where(np.isfinite(curve.losses), curve.losses, np.nan)[:, near], curve.octaves[near]

    def residuals(values: np.ndarray) -> np.ndarray:
        c, left, right = np.exp(values[1:]).tolist()
        shape = kind(c, left, right, math.inf)
        off = losses - [shape(octave - values[0]) for octave in octaves]
        off = off - np.nanmean(off, axis=1, keepdims=True)
        return np.concatenate([np.nan_to_num(off).ravel() / 0.01, values[2:] / 2])

    start = [float(curve.octaves[curve.best]), math.log(0.1), math.log(0.5), math.log(1.0)]
    place, *logs = least_squares(residuals, start, bounds=([-30, -4, -3, -3], [30, 0, 1, 1])).x.tolist()
    c, left, right = np.exp(logs).tolist()
    above = np.flatnonzero((curve.octaves > place) & ~near)
    cliff = float(curve.octaves[above[0] - 1 : above[0] + 1].mean()) - place if above.size else math.inf
    return kind(c, left, right, max(cliff, 0.4))


def carry_out(group: GroupSearch, truth: Source, sweep: int) -> tuple[Estimate, float]:
    """Search; return the exponent and the FLOPs."""
    rounds = group.rounds()
    batch = next(rounds, None)
    while batch is not None:
        try:
            batch = rounds.send({point: truth.loss(sweep, point) for point in batch})
        except StopIteration:
            batch = None
    return group.law.exponent, sum(group.cost(point.width) for point in group.known)


def with_seeds(group: GroupSearch, truth: Source, sweep: int) -> tuple[Estimate, float]:
    """Search with one seed, two, and so on, until the precision is reached."""
    for seeds in itertools.count(1):
        exponent, flops = carry_out(replace(group, seeds=range(seeds)), truth, sweep)
        if exponent.half_width <= PRECISION or seeds == MOST_SEEDS:
            return exponent, flops
    raise AssertionError


def grid(truth: Source, sweep: int) -> tuple[Estimate, float]:
    """Try every rate 2^0.5 apart over eight octaves: enough for the optimum and the edge at every width."""
    every = Grid(lowest=2 ** (truth.middle - 4.01), highest=2 ** (truth.middle + 4.01))
    return with_seeds(group_search(truth, every), truth, sweep)


def search_with_edge(truth: Source, sweep: int) -> tuple[Estimate, float]:
    """Search every width, with the stability edge."""
    return with_seeds(replace(group_search(truth, AdaptiveSearch()), edge=True), truth, sweep)


def search(truth: Source, sweep: int) -> tuple[Estimate, float]:
    """Search every width."""
    return with_seeds(group_search(truth, AdaptiveSearch()), truth, sweep)


def fixed(seeds: int) -> Callable[[Source, int], tuple[Estimate, float]]:
    """Return a search of every width with this many seeds, whatever precision that gives."""

    def carried_out(truth: Source, sweep: int) -> tuple[Estimate, float]:
        return carry_out(replace(group_search(truth, AdaptiveSearch()), seeds=range(seeds)), truth, sweep)

    return carried_out


def precision(truth: Source, sweep: int) -> tuple[Estimate, float]:
    """Ask for a precision."""
    return carry_out(replace(group_search(truth, AdaptiveSearch()), precision=PRECISION), truth, sweep)


def group_search(truth: Source, lattice: Grid | AdaptiveSearch) -> GroupSearch:
    """Return a search that expects what the theory says."""
    expected = {"global": -1.0 if "standard" in truth.name or "mup" in truth.name else -0.5}
    return GroupSearch(
        search=lattice,
        widths=truth.widths,
        seeds=(0,),
        start=round(truth.start / lattice.step),
        exponent=expected.get(truth.name.split(", ")[1], 0.0),
        cost=truth.cost,
    )


STRATEGIES: dict[str, Callable[[Source, int], tuple[Estimate, float]]] = {
    "grid": grid,
    "search with edge": search_with_edge,
    "search": search,
    "one seed": fixed(1),
    "two seeds": fixed(2),
    "precision": precision,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=40, help="sweeps of each group")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=STRATEGIES)
    parser.add_argument("--train", action="store_true", help="train at the size of the demo; do not simulate")
    options = parser.parse_args()
    if options.train:
        compare_trained(options.strategies, options.sweeps)
    else:
        compare_simulated(options.strategies, options.sweeps)


def compare_trained(strategies: Sequence[str], sweeps: int) -> None:
    """Print what each strategy costs where losses are trained."""
    trained = Trained()
    total: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sweep, name in itertools.product(range(sweeps), strategies):
        exponent, flops = STRATEGIES[name](trained, sweep)
        total[name].append((flops, exponent.half_width))
        print(f"sweep {sweep}, {name}: {flops / 1e12:.1f} TFLOP, exponent {exponent}", flush=True)
    for name, rows in total.items():
        print(
            f"{name:20} {statistics.mean(row[0] for row in rows) / 1e12:6.1f} TFLOP  "
            f"reached {statistics.mean(row[1] <= PRECISION for row in rows):.2f}  "
            f"median half-width {statistics.median(row[1] for row in rows):.3f}"
        )


def compare_simulated(strategies: Sequence[str], sweeps: int) -> None:
    """Print what each strategy costs, and how often its interval holds the exponent, where losses are simulated."""
    recorded = read_trials().items()
    truths = [landscape(name, trials, kind) for kind in (Shape, OtherShape) for name, trials in recorded]
    total: dict[str, list[tuple[float, bool, float, float]]] = defaultdict(list)
    for truth in truths:
        line = [f"{truth.name:20} {truth.exponent:+.2f}"]
        for name in strategies:
            found = [STRATEGIES[name](truth, sweep) for sweep in range(sweeps)]
            rows = [
                (flops, exponent.contains(truth.exponent), exponent.half_width, exponent.value - truth.exponent)
                for exponent, flops in found
            ]
            total[name] += rows
            line.append(
                f"{name}: {statistics.mean(row[0] for row in rows) / 1e15:.1f} PFLOP, "
                f"holds {statistics.mean(row[1] for row in rows):.2f}, "
                f"±{statistics.median(row[2] for row in rows):.2f}, off {statistics.mean(row[3] for row in rows):+.3f}"
            )
        print(" | ".join(line), flush=True)
    for name, rows in total.items():
        print(
            f"{name:20} {statistics.mean(row[0] for row in rows) / 1e15:6.2f} PFLOP  "
            f"coverage {statistics.mean(row[1] for row in rows):.3f}  "
            f"reached {statistics.mean(row[2] <= PRECISION for row in rows):.2f}  "
            f"median half-width {statistics.median(row[2] for row in rows):.3f}"
        )


if __name__ == "__main__":
    main()
