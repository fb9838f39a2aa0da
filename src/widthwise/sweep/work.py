"""What executors compute for a sweep: packs of runs, and how many runs a device has room for.

These functions run wherever an executor puts them, so they take and give plain picklable values, and trust nothing:
a machine with other text, or one that would compute in another precision, is not to pass its results for those asked.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from widthwise import __version__
from widthwise.data import Evaluation
from widthwise.measure import Probe, log_spaced
from widthwise.models import count_parameters
from widthwise.sweep.executors import Tell
from widthwise.sweep.records import Outcome
from widthwise.train import Checkpoints, Inputs, Lanes, Progress, Result, Run, Spec, load_inputs, resolve, train
from widthwise.train.cost import STATE_BYTES, activation_bytes

POINTS = 200
"""The most points kept of a training loss."""
EXAMPLES = 8
"""Held-out sequences that alignment is measured on."""
MOST_LANES = 64
"""Runs side by side on an accelerator, where it has memory for them."""
MEMORY_SHARE = 0.8
"""How much of a device's memory packs may take: evaluation and what the allocator wastes need some too."""

_DATA = ("data", "paths", "tokenizer", "vocabulary", "context", "batch", "data_seed", "eval_batches")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How packs are trained; none of it changes what a run computes."""

    chunk: int = 20
    """Steps per call of the compiled program."""
    evaluations: int = 5
    """How often to evaluate on the way; the last time is at the end."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints; packs that take less have none."""

    def __post_init__(self) -> None:
        for name in ("chunk", "evaluations"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds is {self.checkpoint_seconds}: expected 0 or more")

    def evaluate_every(self, steps: int) -> int:
        """Give the steps between evaluations: whole chunks, since those that are cut are another program."""
        return math.ceil(steps / self.evaluations / self.chunk) * self.chunk


@dataclass(frozen=True, kw_only=True)
class Task:
    """A pack on its way to an executor.

    Attributes:
        specs: What to train, all of one program and on the same data.
        runs: The ids that this has to come down to.
        options: How.
        folder: Where checkpoints may go; None for none.
        probe: Whether to measure alignment on the way.
    """

    specs: tuple[Spec, ...]
    runs: tuple[str, ...]
    options: Options = Options()
    folder: Path | None = None
    probe: bool = False


def inputs_of(spec: Spec) -> Inputs:
    """Open the data of a run, once for all runs of this process that share it."""
    return _inputs(Spec(**{name: getattr(spec, name) for name in _DATA}))


@functools.lru_cache(maxsize=2)
def _inputs(spec: Spec) -> Inputs:
    return load_inputs(spec)


def train_pack(task: Task, tell: Tell) -> list[Outcome] | None:
    """Train runs to their end, going on from a checkpoint if there is one.

    What is told is `Progress`, after every chunk.

    Returns:
        How each run ended; None if the driver wanted to stop before.
    """
    began = time.monotonic()
    inputs, runs = _resolved(task)
    asked = False

    def progress(now: Progress) -> None:
        nonlocal asked
        asked = tell(now)

    # A machine that does not have the study's folder has no use for checkpoints in a place of that name.
    folder = task.folder if task.folder is not None and task.folder.parent.parent.is_dir() else None
    checkpoints = None if folder is None else _WhenLong(folder, task.options, lambda: asked)
    steps = runs[0].program.steps
    probe = Probe(tokens=inputs.evaluation.tokens[0][:EXAMPLES, :-1], steps=log_spaced(steps))
    lanes = [run.lane for run in runs]
    if jax.default_backend() != "cpu":
        lanes += [lanes[-1]] * (lane_count(len(runs)) - len(runs))
    results = train(
        Lanes(runs[0].program, lanes, inputs.batches),
        inputs.evaluation,
        chunk=task.options.chunk,
        evaluate_every=task.options.evaluate_every(steps),
        checkpoints=checkpoints,
        checkpoint_seconds=task.options.checkpoint_seconds,
        probe=probe if task.probe else None,
        progress=progress,
        stop=lambda: asked,
    )[: len(runs)]
    if checkpoints is not None:
        checkpoints.close()
    if any(result.status == "interrupted" for result in results):
        return None
    provenance = {
        "widthwise": __version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "data": inputs.fingerprint,
        "lanes": len(runs),
        "wall_seconds": round(time.monotonic() - began, 3),
    }
    return [_outcome(run, result, provenance) for run, result in zip(runs, results, strict=True)]


def lane_count(runs: int) -> int:
    """Give how many lanes to compile for so many runs; those left over repeat the last one, and are thrown away.

    Every number of lanes is a program of its own, and to compile one takes longer than to train a few lanes more. Few
    numbers serve all packs; at most a quarter of the lanes is wasted, less where there are many.

    >>> [lane_count(runs) for runs in (1, 5, 9, 33, 64, 65)]
    [1, 6, 12, 36, 64, 72]
    """
    step = 4 if runs <= 64 else 8
    return next(count for count in (1, 2, 3, 4, 6, 8, -(-runs // step) * step) if count >= runs)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast runs are trained.

    Attributes:
        compile_seconds: What the first steps take beyond others.
        step_seconds: What a step of one run takes.
    """

    compile_seconds: float
    step_seconds: float


def time_steps(task: Task, tell: Tell) -> Pace:
    """Compile a pack, take a few of its steps, and forget them: only one or two where a step takes long."""
    inputs, runs = _resolved(task)
    lanes = Lanes(runs[0].program, [run.lane for run in runs], inputs.batches)
    size = min(task.options.chunk, runs[0].program.steps)
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


def lanes_that_fit(task: Task, tell: Tell) -> int:
    """Say how many runs like this one, side by side, the device has memory for.

    The compiler knows, but takes long to answer. Where a rule of thumb, and twice that for safety, leaves room for as
    many as a pack ever has, that will do. On an H200 the compiler's word was 1.3 to 1.4 times the rule.
    """
    inputs, (run, *_) = _resolved(task)
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return 1  # a CPU, where runs go one after another anyway
    model, batch = run.program.model, run.spec.batch
    one = activation_bytes(model, batch) + STATE_BYTES * count_parameters(model).total
    if (roomy := int(MEMORY_SHARE * limit // (2 * one))) >= MOST_LANES:
        return roomy
    few = [Lanes(run.program, [run.lane] * count, inputs.batches) for count in (2, 4)]
    for lanes in few:
        lanes.begin(task.options.chunk)  # both at once
    two, four = (lanes.chunk_bytes(task.options.chunk) for lanes in few)
    return fitting(two, four, MEMORY_SHARE * limit)


def fitting(two: int, four: int, limit: float) -> int:
    """Extrapolate what two and four lanes take to as many as a limit allows; at least one is tried.

    One lane would tell little: the compiler does away with an axis of length 1.

    >>> fitting(two=20, four=30, limit=42)
    6
    """
    each = max((four - two) / 2, 1)
    return max(1, int((limit - (two - 2 * each)) // each))


def _resolved(task: Task) -> tuple[Inputs, list[Run]]:
    inputs = inputs_of(task.specs[0])
    vocabulary, fingerprint = inputs.batches.vocabulary, inputs.fingerprint
    runs = [resolve(spec, vocabulary=vocabulary, data=fingerprint, probe=task.probe) for spec in task.specs]
    for run, expected in zip(runs, task.runs, strict=True):
        if run.id != expected:
            raise ValueError(
                f"run {expected} is {run.id} on this machine, with data {fingerprint}: "
                "expected the same data and versions as where the sweep was started"
            )
    return inputs, runs


class _WhenLong:
    """Checkpoints for packs of any length: nothing touches the disk before there is something to lose."""

    def __init__(self, folder: Path, options: Options, stopping: Callable[[], bool]) -> None:
        self._folder, self._seconds, self._stopping = folder, options.checkpoint_seconds, stopping
        self._saved_at = time.monotonic()
        self._kept = Checkpoints(folder) if folder.is_dir() else None

    def save(self, step: int, states: Any, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        """Save if it was long ago or if this is the last occasion; which state was the best is of no use here."""
        if self._stopping() or time.monotonic() - self._saved_at >= self._seconds:
            self._kept = self._kept or Checkpoints(self._folder)
            self._kept.save(step, states, record)
            self._saved_at = time.monotonic()

    def latest(self) -> int:
        """Give the step of the newest checkpoint; 0 where there is none."""
        return 0 if self._kept is None else self._kept.latest()

    def restore(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Give the newest checkpoint, if there are any."""
        return None if self._kept is None else self._kept.restore(like)

    def close(self) -> None:
        """Wait until everything is on disk."""
        if self._kept is not None:
            self._kept.close()


def _outcome(run: Run, result: Result, provenance: dict[str, Any]) -> Outcome:
    last = [loss for loss in result.train_loss[-20:] if math.isfinite(loss)]
    finished = result.status == "finished" and math.isfinite(result.eval_loss)
    return Outcome(
        run=run.id,
        status="finished" if finished else "diverged",
        results={
            "eval_loss": result.eval_loss if finished else math.nan,
            "train_loss": sum(last) / len(last) if finished and last else math.nan,
            "steps": result.steps,
            "parameters": count_parameters(run.program.model).total,
            "tokens_per_second": round(result.tokens_per_second, 1),
        },
        curves=_curves(result),
        provenance=provenance,
    )


def _curves(result: Result) -> dict[str, tuple[list[int], list[float]]]:
    taken = len(result.train_loss)
    kept = [*range(0, taken - 1, max(1, math.ceil(taken / (POINTS - 1)))), *([taken - 1] if taken else [])]
    curves = {"train_loss": (kept, [result.train_loss[step] for step in kept])}
    steps = [point.step for point in result.points]
    curves["eval_loss"] = (steps, [point.eval_loss for point in result.points])
    for name in ("params", "gradients"):
        for role in getattr(result.points[0], name) if result.points else ():
            curves[f"{name}/{role}"] = (steps, [getattr(point, name)[role] for point in result.points])
    measured = [point.step for point in result.alignment]
    for layer, fields in result.alignment[0].layers.items() if result.alignment else ():
        for field in fields:
            values = [point.layers[layer][field] for point in result.alignment]
            curves[f"alignment/{layer}/{field}"] = (measured, values)
    return curves
