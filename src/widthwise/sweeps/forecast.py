"""What training will take, before it starts: runs, tokens, FLOPs and time.

Nothing is opened, allocated or compiled, so that any scale is forecast at once. What a study holds is subtracted. An
adaptive search does not know how many rates it will try. It is bounded from both sides: by what it tries on ideal
curves, and by its own limit. Time follows from FLOPs and the speed that earlier sweeps reached here, or an assumed one.
"""

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widthwise.fit.design import Sample
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants
from widthwise.search.lattice import Grid, Lattice
from widthwise.study.axes import AXES, WIDTH
from widthwise.study.encoding import encode
from widthwise.study.setting import DEFAULT, Horizon, Setting
from widthwise.study.store import Row
from widthwise.sweeps.speeds import Speed
from widthwise.sweeps.sweep import Sweep
from widthwise.train import Spec
from widthwise.train.cost import GPU_FLOPS, flops_per_step

_CONSTANTS = ("embedding_constant", "hidden_constant", "readout_constant")
_RULE = ("parameterization", "small_readout", "optimizer", "alignment", "rates")
_COMPILED = (
    *("width", "blocks", "head_dim", "context", "vocabulary", "dtype", "optimizer"),
    *("steps", "warmup", "batch", "data", "paths", "tokenizer"),
)
"""What runs of one program share."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """How many runs are left to train that differ in learning rate and seed, or in constants, alone.

    Attributes:
        spec: One of them.
        vocabulary: The number of tokens of the data.
        fewest: How many are left at least.
        most: How many may be left.
        known: How many have ended.
        part: What they belong to.
        constants: The name of their constants.
        horizon: Fixed or compute-optimal.
        probe: Whether they measure alignment.
        narrowed: Whether more of them are chosen as needed, to narrow an exponent. Settings that compute the same at
            this width may then choose different ones.
        axis: What grows in the sweep that they belong to.
    """

    spec: Spec
    vocabulary: int
    fewest: int
    most: int
    known: int = 0
    part: str = ""
    constants: str = DEFAULT
    horizon: Horizon = "fixed"
    probe: bool = False
    narrowed: bool = False
    axis: str = WIDTH.name

    @property
    def size(self) -> int:
        """The size along the axis."""
        return AXES[self.axis].size(vars(self.spec))

    @functools.cached_property
    def flops_per_step(self) -> float:
        """The FLOPs of a step of one run."""
        return flops_per_step(self.spec.transformer(self.vocabulary), self.spec.batch, OPTIMIZERS[self.spec.optimizer])

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
        spec = replace(self.spec, alignment="full", rates=None)
        return self.part, spec, _exponents_of(vars(self.spec)), self.constants, self.horizon

    @property
    def program(self) -> object:
        """What is compiled."""
        return tuple(getattr(self.spec, name) for name in _COMPILED), self.probe


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is to be computed, at least or at most; the seconds are NaN where they were not forecast."""

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
    """What is left to train.

    Attributes:
        groups: Settings.
        searches: Searches for a learning rate that are not over: settings × widths, those that coincide counted once.
        known: Runs that have ended.
        least: What it takes if every search is as short as possible.
        most: What it takes if every search tries as many rates as it may.
        compile_seconds: How much of the time is compilation; None where that is not known, and not part of the time.
        measured: Whether the speed was measured here, by earlier sweeps; otherwise it is assumed.
    """

    groups: int
    searches: int
    known: int
    least: Bounds
    most: Bounds
    compile_seconds: float | None
    measured: bool

    @property
    def bounds(self) -> tuple[Bounds, Bounds]:
        """What it takes at least and at most."""
        return self.least, self.most


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast runs are trained.

    Attributes:
        at_a_time: The number of workers.
        assumed: The FLOP/s of all workers together, where no speed is known.
        speeds: What was measured, by size.
    """

    at_a_time: int
    assumed: float
    speeds: Sequence[Speed] = ()

    def seconds(self, count: Count) -> float:
        """Return what one run adds to the time of all; between sizes, speeds follow a power law."""
        if not self.speeds:
            return count.flops / self.assumed
        speeds = [math.log(speed.flops_per_second) for speed in self.speeds]
        return count.flops / (math.exp(self._at(count, speeds)) * self.at_a_time)

    def compile_seconds(self, count: Count) -> float:
        """Return what compiling a program takes; it must have been measured."""
        return self._at(count, [speed.compile_seconds for speed in self.speeds])

    def _at(self, count: Count, values: Sequence[float]) -> float:
        sizes = [math.log(speed.flops_per_step) for speed in self.speeds]
        return float(np.interp(math.log(count.flops_per_step), sizes, values))


class Held:
    """The runs that a study holds, found by what they compute.

    They are told apart by their specifications. A run whose data or precision has changed since is still found here,
    although it will be trained again: finding out would take opening the data.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._losses: dict[str, dict[tuple[float, ...], float]] = defaultdict(dict)
        for row in rows:
            if row.ended:
                varied = (row.spec["learning_rate"], *(row.spec[name] for name in _CONSTANTS))
                self._losses[_shared(row.spec)][varied] = row.results["eval_loss"]

    def losses(self, spec: Spec, **names: Any) -> dict[float, float]:
        """Return the losses of runs like `spec`, by learning rate.

        Args:
            spec: The specification.
            names: What a study keeps with it: the name of its constants, its horizon, and whether it is probed.
        """
        constants = [getattr(spec, name) for name in _CONSTANTS]
        return {rate: loss for (rate, *of), loss in self._like(spec, **names).items() if of == constants}

    def trials(self, spec: Spec, **names: Any) -> int:
        """Return how many constants were tried with `spec`."""
        return sum(rate == spec.learning_rate for rate, *_ in self._like(spec, **names))

    def _like(self, spec: Spec, *, probe: bool = False, **names: Any) -> Mapping[tuple[float, ...], float]:
        if not self._losses:
            return {}
        return self._losses.get(_shared({**spec.to_json(), **names, **({"probe": True} if probe else {})}), {})


def count_sweep(
    sweep: Sweep,
    *,
    vocabulary: int,
    part: str = "",
    probe: bool = False,
    constants: Mapping[Setting, Constants] | None = None,
    held: Held | None = None,
) -> list[Count]:
    """Count the runs of a sweep that are left.

    Args:
        sweep: The sweep.
        vocabulary: The number of tokens of the data.
        part: What it belongs to.
        probe: Whether its runs measure alignment.
        constants: What the names of settings' constants stand for. Of a setting without, no run is known.
        held: The runs that have ended.
    """
    counts: list[Count] = []
    for setting in sweep.all_settings:
        found = (constants or {}).get(setting)
        ended = Held() if held is None or found is None else held
        names = {"constants": setting.constants, "horizon": setting.horizon, "probe": probe}
        given = {"learning_rate": sweep.base.learning_rate, "vocabulary": vocabulary, "constants": found or Constants()}

        def spec(width: int, seed: int, setting: Setting = setting, given: dict[str, Any] = given) -> Spec:
            return sweep.spec(setting, size=width, seed=seed, **given)

        empty = {"vocabulary": vocabulary, "fewest": 0, "most": 0, "part": part, "narrowed": bool(sweep.precision)}
        empty["axis"] = sweep.axis
        each = {width: Count(spec=spec(width, sweep.all_seeds[0]), **empty, **names) for width in sweep.all_sizes}
        known: dict[Sample, float] = {}
        more = itertools.count(max(sweep.all_seeds) + 1) if sweep.precision else ()
        for seed in itertools.chain(sweep.all_seeds, more):
            losses = {width: ended.losses(spec(width, seed), **names) for width in sweep.all_sizes}
            if seed not in sweep.all_seeds and not any(losses.values()):
                break
            known |= _points(sweep.search, seed, losses)
        left = runs_left(sweep, setting, known, lambda width, each=each: each[width].flops)
        for width, (fewest, most) in left.items():
            ended_here = sum(point.width == width for point in known)
            counts.append(replace(each[width], fewest=fewest, most=most, known=ended_here))
    return distinct(counts)


def runs_left(
    sweep: Sweep, setting: Setting, known: Mapping[Sample, float], cost: Callable[[int], float]
) -> dict[int, tuple[int, int]]:
    """Return how many runs of a setting are left at every width, at least and at most.

    Args:
        sweep: The sweep.
        setting: The setting.
        known: The losses of runs that have ended.
        cost: Returns the FLOPs of a run of a width.
    """
    group = sweep.group_search(setting, cost)
    rounds = group.rounds()
    batch = next(rounds, ())
    while batch and all(point in known for point in batch):
        try:
            batch = rounds.send({point: known[point] for point in batch})
        except StopIteration:
            batch = ()
    left: dict[int, tuple[int, int]] = dict.fromkeys(sweep.all_sizes, (0, 0))
    for width in sweep.all_sizes if batch else ():
        if sweep.precision is None and width in group.proposals:
            continue  # its search is over
        here = [point for point in known if point.width == width]
        wanted = [point for point in batch if point.width == width]
        asked = sum(point in group.known or point in wanted for point in here)
        seeds = 1 if sweep.precision else len(sweep.all_seeds)
        fewest = max(
            sum(point not in known for point in wanted),
            seeds * fewest_points(group.search_at(width), edge=sweep.edge) - len(here),
        )
        most = group.most_runs - asked  # what is known beside the path need not be on the rest of it
        if sweep.precision is None:
            most = min(most, seeds * len(sweep.search.indices) - len(here))
        left[width] = fewest, max(fewest, most)
    return left


def _points(lattice: Lattice, seed: int, losses: Mapping[int, Mapping[float, float]]) -> dict[Sample, float]:
    """Return the losses of a seed, by width and rate, as points; rates that the search cannot try are left out."""
    return {
        Sample(width, index * lattice.step, seed): loss
        for width, by_rate in losses.items()
        for rate, loss in by_rate.items()
        if (index := lattice.index(rate)) in lattice.indices and lattice.rate(index) == rate
    }


def distinct(counts: Iterable[Count]) -> list[Count]:
    """Put searches that compute the same runs together: they take the same path, until they narrow an exponent."""
    found: dict[object, Count] = {}
    for count in counts:
        before = found.setdefault(count.computes, count)
        if before is not count and count.narrowed:
            bounds = {"fewest": max(before.fewest, count.fewest), "most": before.most + count.most}
            found[count.computes] = replace(before, **bounds)
    return list(found.values())


def totals(counts: Sequence[Count], pace: Pace | None = None) -> tuple[Bounds, Bounds]:
    """Add up what is left to compute at least and at most; with a pace, also the time, without compilation."""

    def total(numbers: Sequence[int]) -> Bounds:
        pairs = list(zip(numbers, counts, strict=True))
        return Bounds(
            runs=sum(numbers),
            tokens=sum(number * count.tokens for number, count in pairs),
            flops=sum(number * count.flops for number, count in pairs),
            seconds=math.nan if pace is None else sum(number * pace.seconds(count) for number, count in pairs),
        )

    return total([count.fewest for count in counts]), total([count.most for count in counts])


def forecast(counts: Sequence[Count], pace: Pace, *, groups: int = 0) -> Forecast:
    """Add up what is left to compute, and how long it takes.

    Every program is compiled once. On an accelerator that is a lower bound: there every number of runs side by side is
    a program of its own.
    """
    programs = {count.program: count for count in counts if count.most}
    compiling = sum(pace.compile_seconds(count) for count in programs.values()) if pace.speeds else None
    least, most = (
        replace(bounds, seconds=bounds.seconds + (compiling or 0.0) if bounds.runs else 0.0)
        for bounds in totals(counts, pace)
    )
    return Forecast(
        groups=groups,
        searches=sum(count.most > 0 for count in counts),
        known=sum(count.known for count in counts),
        least=least,
        most=most,
        compile_seconds=compiling,
        measured=bool(pace.speeds),
    )


@functools.cache
def fewest_points(lattice: Lattice, *, edge: bool = False) -> int:
    """Return how many rates a search tries if the optimum is where it starts and the stability edge is nearby.

    >>> from widthwise.search.lattice import AdaptiveSearch
    >>> fewest_points(Grid(lowest=2**-4, highest=1))
    9
    >>> fewest_points(AdaptiveSearch()), fewest_points(AdaptiveSearch(), edge=True)
    (7, 7)
    """
    if isinstance(lattice, Grid):
        return len(lattice.indices)
    start = lattice.indices[len(lattice.indices) // 2]
    octave = round(1 / lattice.step)
    return min(
        _points_on(lattice, start, lambda index, last=last: math.nan if index > last else _ideal(index - start), edge)
        for last in range(start + 1, start + 4 * octave)
    )


def _ideal(away: int) -> float:
    return 1 + away**2 / 50


def _points_on(lattice: Lattice, start: int, loss: Callable[[int], float], edge: bool) -> int:
    losses: dict[int, float] = {}
    while points := lattice.propose(losses, start, edge=edge).points:
        losses |= {point: loss(point) for point in points}
    return len(losses)


def _shared(request: Mapping[str, Any]) -> str:
    """Return what runs have in common that differ in learning rate and constants alone, or in rules that agree."""
    varied = ("learning_rate", *_CONSTANTS, "alignment", "rates", "axis")
    values = {name: value for name, value in request.items() if name not in varied}
    return encode({**values, "exponents": _exponents_of(request)})


def _exponents_of(request: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the exponents of learning rates; None at the base width, where they make no difference."""
    if request["width"] == request["base_width"]:
        return None
    return _exponents(**{name: request.get(name) for name in _RULE if request.get(name) is not None})


@functools.cache
def _exponents(**rule: Any) -> tuple[str, ...]:
    try:
        return tuple(map(str, Spec(**rule).exponents().rates or ()))
    except ValueError:  # a study may hold rules of another version
        return tuple(map(str, rule.values()))
