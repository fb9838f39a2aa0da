"""What training will take, before it starts: runs, tokens and FLOPs, and time from a short calibration.

Counting opens and allocates nothing, so that the paper's own scale can be counted anywhere. An adaptive search does not
know how many rates it will try. It is bounded from both sides: by what it tries on ideal curves, and by its own limit.
Time is measured where the runs will be computed, at the smallest and the largest model, with as many at once as there
will be; in between it is assumed to follow the FLOPs.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from widthwise.data import Evaluation
from widthwise.parameterize import Constants
from widthwise.sweep.executors import Done, Executor, Tell
from widthwise.sweep.packs import Options, Pack
from widthwise.sweep.requests import SweepData
from widthwise.sweep.search import Grid, Lattice, Search
from widthwise.sweep.setting import DEFAULT, Horizon
from widthwise.sweep.sweep import Sweep
from widthwise.sweep.worker import resolved
from widthwise.train import Lanes, Spec
from widthwise.train.cost import GPU_FLOPS, flops_per_step


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many runs there are that differ in learning rate and seed, or in constants, alone.

    Attributes:
        spec: One of them.
        vocabulary: The number of tokens of the data.
        fewest: How many there are at least.
        most: How many there may be.
        part: What they belong to.
        constants: The name of their constants.
        horizon: Fixed or compute-optimal.
    """

    spec: Spec
    vocabulary: int
    fewest: int
    most: int
    part: str = ""
    constants: str = DEFAULT
    horizon: Horizon = "fixed"

    @property
    def flops_per_step(self) -> float:
        """The FLOPs of a step of one run."""
        return flops_per_step(self.spec.transformer(self.vocabulary), self.spec.batch)

    @property
    def flops(self) -> float:
        """The FLOPs of one run."""
        return self.spec.steps * self.flops_per_step

    @property
    def tokens(self) -> int:
        """The tokens that one run sees."""
        return self.spec.steps * self.spec.batch * self.spec.context

    @property
    def computes(self) -> object:
        """What tells searches apart: at the base width all rules for learning rates agree."""
        exponents = None if self.spec.width == self.spec.base_width else self.spec.exponents().rates
        spec = replace(self.spec, alignment="full", rates=None)
        return self.part, spec, exponents, self.constants, self.horizon


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is to be computed, at least or at most; the seconds are NaN unless they were measured."""

    runs: int
    tokens: int
    flops: float
    seconds: float = math.nan

    @property
    def gpu_days(self) -> float:
        """The days that one accelerator takes at the speed assumed in `train.cost`."""
        return self.flops / GPU_FLOPS / 86400


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a sweep takes if nothing of it is known yet.

    Attributes:
        groups: Settings.
        searches: Searches for a learning rate: settings × widths, those that coincide counted once.
        least: What it takes if every search is as short as possible.
        most: What it takes if every search tries as many rates as it may.
        compile_seconds: How much of the time is compilation.
    """

    groups: int
    searches: int
    least: Bounds
    most: Bounds
    compile_seconds: float

    @property
    def bounds(self) -> tuple[Bounds, Bounds]:
        """What it takes at least and at most."""
        return self.least, self.most


def count_sweep(sweep: Sweep, *, vocabulary: int, part: str = "") -> list[Count]:
    """Count the runs of a sweep, for data with this vocabulary."""
    seeds, rate = sweep.all_seeds, sweep.base.learning_rate
    bounds = {"fewest": len(seeds) * fewest_points(sweep.search), "most": len(seeds) * most_points(sweep.search)}
    return distinct(
        Count(
            spec=sweep.spec(
                setting,
                width=width,
                learning_rate=rate,
                seed=seeds[0],
                vocabulary=vocabulary,
                constants=Constants(),
            ),
            vocabulary=vocabulary,
            part=part,
            constants=setting.constants,
            horizon=setting.horizon,
            **bounds,
        )
        for setting in sweep.all_settings
        for width in sweep.all_widths
    )


def distinct(counts: Iterable[Count]) -> list[Count]:
    """Leave out searches that compute the same runs as one before."""
    found: dict[object, Count] = {}
    for count in counts:
        found.setdefault(count.computes, count)
    return list(found.values())


def totals(counts: Sequence[Count]) -> tuple[Bounds, Bounds]:
    """Add up what is to be computed at least and at most."""

    def total(numbers: Sequence[int]) -> Bounds:
        pairs = list(zip(numbers, counts, strict=True))
        return Bounds(
            runs=sum(numbers),
            tokens=sum(number * count.tokens for number, count in pairs),
            flops=sum(number * count.flops for number, count in pairs),
        )

    return total([count.fewest for count in counts]), total([count.most for count in counts])


def forecast(
    counts: Sequence[Count], data: SweepData, executor: Executor, options: Options, *, groups: int
) -> Forecast:
    """Add up what is to be computed, and measure how long it takes."""
    runs = {count: data.run(count.spec) for count in counts}
    by_size = sorted(counts, key=lambda count: count.flops_per_step)
    paces = {
        count: _calibrate(replace(Pack.of([runs[count]]), options=options), executor)
        for count in dict.fromkeys((by_size[0], by_size[-1]))
    }
    sizes = [count.flops_per_step for count in paces]
    programs = {run.program: count for count, run in runs.items()}

    def interpolated(count: Count, name: str) -> float:
        return float(np.interp(count.flops_per_step, sizes, [getattr(pace, name) for pace in paces.values()]))

    compilation = sum(interpolated(count, "compile_seconds") for count in programs.values())
    each = [interpolated(count, "step_seconds") * count.spec.steps / executor.capacity for count in counts]

    def timed(bounds: Bounds, numbers: Sequence[int]) -> Bounds:
        training = sum(number * seconds for number, seconds in zip(numbers, each, strict=True))
        return replace(bounds, seconds=training + compilation)

    least, most = totals(counts)
    return Forecast(
        groups=groups,
        searches=len(counts),
        least=timed(least, [count.fewest for count in counts]),
        most=timed(most, [count.most for count in counts]),
        compile_seconds=compilation,
    )


def most_points(lattice: Lattice) -> int:
    """Return how many rates a search may try."""
    return min(len(lattice.indices), lattice.max_points) if isinstance(lattice, Search) else len(lattice.indices)


def fewest_points(lattice: Lattice) -> int:
    """Return how many rates a search tries if the optimum is where it starts and the stability edge is nearby.

    >>> fewest_points(Grid(lowest=2**-4, highest=1)), fewest_points(Search())
    (9, 7)
    """
    if isinstance(lattice, Grid):
        return len(lattice.indices)
    start = lattice.indices[len(lattice.indices) // 2]
    octave = round(1 / lattice.step)
    return min(
        _points_on(lattice, start, lambda index, edge=edge: math.nan if index > edge else 1 + (index - start) ** 2 / 50)
        for edge in range(start + 1, start + 4 * octave)
    )


def _points_on(lattice: Lattice, start: int, loss: Callable[[int], float]) -> int:
    losses: dict[int, float] = {}
    while points := lattice.propose(losses, start).points:
        losses |= {point: loss(point) for point in points}
    return len(losses)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast runs are trained.

    Attributes:
        compile_seconds: What the first steps take beyond others.
        step_seconds: What a step of one run takes.
    """

    compile_seconds: float
    step_seconds: float


def _calibrate(pack: Pack, executor: Executor) -> Pace:
    """Time a few steps, as many packs at once as the executor takes; return the means."""
    for number in range(executor.capacity):
        executor.submit(f"calibration-{number}", time_steps, pack)
    paces: list[Pace] = []
    for completion in executor.results():
        if not isinstance(completion, Done):
            raise ValueError(f"cannot time a few steps at width {pack.specs[0].width}: {completion.error}")
        paces.append(completion.result)
    return Pace(
        compile_seconds=sum(pace.compile_seconds for pace in paces) / len(paces),
        step_seconds=sum(pace.step_seconds for pace in paces) / len(paces),
    )


def time_steps(pack: Pack, tell: Tell) -> Pace:
    """Compile a pack, take a few of its steps, and forget them: only one or two where a step takes long."""
    del tell
    inputs, runs = resolved(pack)
    lanes = Lanes(runs[0].program, [run.lane for run in runs], inputs.batches)
    size = min(pack.options.chunk, runs[0].program.steps)
    one_batch = Evaluation(inputs.evaluation.tokens[:1], inputs.evaluation.weights[:1])
    began = time.monotonic()
    states = lanes.start()

    def seconds(count: int) -> float:
        nonlocal states
        start = time.monotonic()
        states, _ = lanes.chunk(states, 0, count, size=size)
        return time.monotonic() - start

    seconds(1)
    lanes.evaluate(states, one_batch)
    first, step = time.monotonic() - began, seconds(1)
    if (count := min(size, int(0.5 / step))) > 1:
        step = min(seconds(count) for _ in range(2)) / count
    return Pace(compile_seconds=max(first - step, 0.0), step_seconds=step / len(runs))
