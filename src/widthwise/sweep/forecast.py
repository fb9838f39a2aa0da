"""What a sweep will take, before it starts: runs, tokens, FLOPs, and time from a short calibration.

An adaptive search does not know how many rates it will try. It is bounded from both sides: by what it tries on ideal
curves, and by its own limit. Time is measured where the runs will be computed, at the smallest and the largest width,
with as much going on at once as there will be; in between it is taken to follow the FLOPs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from widthwise.sweep.executors import Done, Executor
from widthwise.sweep.packs import Wanted, Wants
from widthwise.sweep.search import Grid, Lattice, Search
from widthwise.sweep.sweep import Group, Sweep
from widthwise.sweep.work import Options, Pace, Task, time_steps


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is to be computed, at least or at most."""

    runs: int
    tokens: int
    flops: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a sweep takes if nothing of it is known yet.

    Attributes:
        groups: Groups of runs.
        searches: Searches for a learning rate: groups × widths, those that coincide counted once.
        least: What it takes if every search is as short as can be.
        most: What it takes if every search tries as many rates as it may.
        compile_seconds: What of the time is compilation.
    """

    groups: int
    searches: int
    least: Bounds
    most: Bounds
    compile_seconds: float


def forecast(sweep: Sweep, groups: list[Group], wants: Wants, executor: Executor, options: Options) -> Forecast:
    """Count what a sweep takes, and measure how long that is."""
    searches = _searches(sweep, groups, wants)
    paces = calibrate(searches, executor, options)
    widths = [one.run.program.model.width for one in paces]
    flops = [one.flops / one.run.program.steps for one in paces]

    def step_seconds(one: Wanted) -> float:
        return float(
            np.interp(one.flops / one.run.program.steps, flops, [pace.step_seconds for pace in paces.values()])
        )

    programs = {one.run.program for one in searches}
    compiling = [pace.compile_seconds for pace in paces.values()]
    compilation = sum(float(np.interp(program.model.width, widths, compiling)) for program in programs)

    def bounds(points: int) -> Bounds:
        count = points * len(sweep.all_seeds)
        training = sum(step_seconds(one) * one.run.program.steps for one in searches) * count
        return Bounds(
            runs=count * len(searches),
            tokens=count * sum(one.tokens for one in searches),
            flops=count * sum(one.flops for one in searches),
            seconds=training / executor.capacity + compilation,
        )

    return Forecast(
        groups=len(groups),
        searches=len(searches),
        least=bounds(fewest_points(sweep.search)),
        most=bounds(most_points(sweep.search)),
        compile_seconds=compilation,
    )


def most_points(lattice: Lattice) -> int:
    """Give how many rates a search may try."""
    return min(len(lattice.indices), lattice.max_points) if isinstance(lattice, Search) else len(lattice.indices)


def fewest_points(lattice: Lattice) -> int:
    """Give how many rates a search tries where the optimum is where it starts, and the threshold nearby.

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


def _searches(sweep: Sweep, groups: list[Group], wants: Wants) -> list[Wanted]:
    """Give a run of each search, one for those that come down to the same runs."""
    rate, seed = sweep.base.learning_rate, sweep.all_seeds[0]
    found = [
        wants.want(group.at(width=width, learning_rate=rate, seed=seed, vocabulary=wants.vocabulary))
        for group in groups
        for width in sweep.all_widths
    ]
    return list({one.id: one for one in found}.values())


def calibrate(searches: list[Wanted], executor: Executor, options: Options) -> dict[Wanted, Pace]:
    """Time the smallest and the largest of these runs, with as many at a time as the executor takes."""
    by_size = sorted(searches, key=lambda one: one.flops / one.run.program.steps)
    paces: dict[Wanted, Pace] = {}
    for one in dict.fromkeys((by_size[0], by_size[-1])):
        for number in range(executor.capacity):
            task = Task(specs=(one.portable,), runs=(one.id,), options=options)
            executor.submit(f"calibration-{number}", time_steps, task)
        measured: list[Pace] = []
        for outcome in executor.results():
            if not isinstance(outcome, Done):
                raise ValueError(f"a few steps at width {one.run.spec.width} cannot be timed: {outcome.error}")
            measured.append(outcome.result)
        paces[one] = Pace(
            compile_seconds=sum(pace.compile_seconds for pace in measured) / len(measured),
            step_seconds=sum(pace.step_seconds for pace in measured) / len(measured),
        )
    return paces
