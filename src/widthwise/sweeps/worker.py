"""What executors compute for a sweep: a pack of runs, trained to its end.

It runs wherever an executor puts it, so it takes and returns plain picklable values and checks them: a machine with
other text, or one that would compute in another precision, must not pass its results off as those requested.
"""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax

from widthwise import __version__
from widthwise.measure import Probe, log_spaced
from widthwise.models import count_parameters
from widthwise.study.store import Outcome
from widthwise.sweeps.executors import Tell
from widthwise.sweeps.packs import Options, Pack
from widthwise.sweeps.requests import data_of, inputs_of
from widthwise.train import Checkpoints, Inputs, Lanes, Progress, Result, Run, resolve, train

Value = TypeVar("Value")

POINTS = 200
"""The most points kept of a training loss."""
SPARE_FLOPS = 1e15
"""What lanes that are thrown away may take: some seconds of an accelerator, less than a compilation."""
EXAMPLES = 8
"""Held-out sequences that alignment is measured on."""


def train_pack(pack: Pack, tell: Tell) -> list[Outcome] | None:
    """Train runs to their end, from a checkpoint if there is one; tell `Progress` after every chunk.

    Returns:
        How each run ended; None if the driver wanted to stop before.
    """
    began = time.monotonic()
    inputs, runs = resolved(pack)
    opened, stopping = time.monotonic(), False
    times: dict[int, float] = {}

    def progress(now: Progress) -> None:
        nonlocal stopping
        times[now.step] = time.monotonic()
        stopping = tell(now)

    # A machine without the study's folder has no use for checkpoints in a place of that name.
    folder = pack.folder if pack.folder is not None and pack.folder.parent.parent.is_dir() else None
    checkpoints = None if folder is None else _WhenLong(folder, pack.options, lambda: stopping)
    steps = runs[0].program.steps
    probe = Probe(tokens=inputs.evaluation.tokens[0][:EXAMPLES, :-1], steps=log_spaced(steps))
    lanes = [run.lane for run in runs]
    if jax.default_backend() != "cpu":
        lanes += [lanes[-1]] * (lane_count(len(runs), flops_each=pack.flops_each) - len(runs))
    results = train(
        Lanes(runs[0].program, lanes, inputs.batches),
        inputs.evaluation,
        chunk=pack.options.chunk,
        evaluate_every=pack.options.evaluate_every(steps),
        checkpoints=checkpoints,
        checkpoint_seconds=pack.options.checkpoint_seconds,
        probe=probe if pack.probe else None,
        progress=progress,
        stop=lambda: stopping,
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
        **_speed(opened, times),
    }
    return [_outcome(run, result, provenance) for run, result in zip(runs, results, strict=True)]


def _speed(began: float, times: Mapping[int, float]) -> dict[str, float]:
    """Return what a step took, evaluations included, and compilation; nothing if there was but one chunk.

    >>> _speed(10.0, {20: 13.0, 40: 14.0, 60: 15.0})
    {'step_seconds': 0.05, 'compile_seconds': 2.0}
    """
    if len(times) < 2:
        return {}
    steps = list(times)
    each = (times[steps[-1]] - times[steps[0]]) / (steps[-1] - steps[0])
    first = steps[1] - steps[0]  # chunks are alike; the first one of a run that was resumed does not begin at 0
    compiling = max(times[steps[0]] - began - first * each, 0.0)
    return {"step_seconds": float(f"{each:.4g}"), "compile_seconds": round(compiling, 3)}


def resolved(pack: Pack) -> tuple[Inputs, list[Run]]:
    """Return the data and the runs of a pack; raise if they are not those that the driver asked for."""
    if len({data_of(spec) for spec in pack.specs}) > 1:
        raise ValueError("runs of a pack read different batches: expected packs of `widthwise.sweeps.packs.plan`")
    inputs = inputs_of(pack.specs[0])
    vocabulary, fingerprint = inputs.batches.vocabulary, inputs.fingerprint
    runs = [resolve(spec, vocabulary=vocabulary, data=fingerprint, probe=pack.probe) for spec in pack.specs]
    for run, expected in zip(runs, pack.ids, strict=True):
        if run.id != expected:
            raise ValueError(
                f"run {expected} is {run.id} on this machine, with data {fingerprint}: "
                "expected the same data and versions as where the sweep was started"
            )
    return inputs, runs


def lane_count(runs: int, *, flops_each: float = math.inf) -> int:
    """Return how many lanes to compile for so many runs; the extra ones repeat the last run and are thrown away.

    Every number of lanes is a program of its own, and compiling one takes longer than training a few more lanes. Small
    runs share a few powers of two. For large ones at most a quarter of the lanes is wasted, less where there are many.

    >>> [lane_count(runs) for runs in (1, 5, 9, 33, 64, 65)]
    [1, 6, 12, 36, 64, 72]
    >>> [lane_count(runs, flops_each=1e13) for runs in (1, 5, 9, 33, 64, 65)]
    [8, 8, 16, 64, 64, 72]
    """
    for count in (8, 16, 32, 64):
        if count >= runs and (count - runs) * flops_each <= SPARE_FLOPS:
            return count
    step = 4 if runs <= 64 else 8
    return next(count for count in (1, 2, 3, 4, 6, 8, -(-runs // step) * step) if count >= runs)


class _WhenLong:
    """Checkpoints for packs of any length: nothing touches the disk before there is something to lose."""

    def __init__(self, folder: Path, options: Options, stopping: Callable[[], bool]) -> None:
        self._folder, self._seconds, self._stopping = folder, options.checkpoint_seconds, stopping
        self._saved_at = time.monotonic()
        self._kept = Checkpoints(folder) if folder.is_dir() else None

    def save(self, step: int, states: Any, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        """Save if the last time was long ago or if this is the last chance; the best state is of no use here."""
        del best, due
        if not self._folder.parent.parent.is_dir():  # the study is gone, as the driver will notice
            return
        if self._stopping() or time.monotonic() - self._saved_at >= self._seconds:
            self._kept = self._kept or Checkpoints(self._folder)
            self._kept.save(step, states, record)
            self._saved_at = time.monotonic()

    def latest(self) -> int:
        """Return the step of the newest checkpoint; 0 if there is none."""
        return 0 if self._kept is None else self._kept.latest()

    def restore(self, like: Any, read: Callable[[int, Any], Value]) -> tuple[int, Any, Value] | None:
        """Return the newest checkpoint, if there is one."""
        return None if self._kept is None else self._kept.restore(like, read)

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
