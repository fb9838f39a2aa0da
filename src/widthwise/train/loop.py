"""The training loop: chunks of steps, evaluation, checkpoints, and an end that can come at any moment."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from widthwise.data import Evaluation
from widthwise.measure import AlignmentPoint, Probe
from widthwise.train.lanes import ChunkResult, Lanes
from widthwise.train.program import PyTree, State

Status: TypeAlias = Literal["finished", "diverged", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """What was measured after a number of steps.

    Attributes:
        step: After how many.
        eval_loss: The held-out loss.
        params: The root mean square of stored parameters, by role.
        gradients: That of the last step's gradients.
    """

    step: int
    eval_loss: float
    params: dict[str, float]
    gradients: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended.

    Attributes:
        status: Finished, diverged, or interrupted: to be continued.
        steps: How many steps it took; where it diverged, up to the step with the first loss that was not finite.
        train_loss: The loss before every step.
        points: What was measured on the way.
        tokens_per_second: Of all lanes together.
        alignment: What a probe measured on the way; empty without one.
    """

    status: Status
    steps: int
    train_loss: list[float]
    points: list[Point]
    tokens_per_second: float
    alignment: list[AlignmentPoint] = field(default_factory=list)

    @property
    def eval_loss(self) -> float:
        """The last held-out loss; NaN where there is none."""
        return self.points[-1].eval_loss if self.points else float("nan")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands, told after every chunk.

    Attributes:
        step: Steps taken.
        steps: Steps to take.
        start: The step that this call of `train` began with, after a checkpoint if there was one.
        losses: The mean training loss of the last chunk, for each lane.
        eval_losses: The last held-out losses; NaN where there is none yet.
        tokens_per_second: Over all lanes, since the first chunk, which compiles.
    """

    step: int
    steps: int
    start: int
    losses: list[float]
    eval_losses: list[float]
    tokens_per_second: float


@dataclass
class _Record:
    """What has to survive a restart beside the state."""

    losses: list[list[float]]
    points: list[list[dict[str, Any]]]
    alignment: list[list[dict[str, Any]]]
    best: float = float("inf")
    tokens_per_second: float = 0.0

    @classmethod
    def of(cls, lanes: int) -> "_Record":
        losses, points, alignment = ([[] for _ in range(lanes)] for _ in range(3))
        return cls(losses=losses, points=points, alignment=alignment)


class Keeper(Protocol):
    """What the loop needs of checkpoints."""

    def save(self, step: int, states: PyTree, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        """Keep the states after a number of steps, and what happened until then; one that is not due can wait."""
        ...

    def latest(self) -> int:
        """Give the step of the newest that is kept; 0 where there is none."""
        ...

    def restore(self, like: PyTree) -> tuple[int, PyTree, dict[str, Any]] | None:
        """Give the newest that can be read; None where there is none."""
        ...


def train(
    lanes: Lanes,
    evaluation: Evaluation,
    *,
    chunk: int = 20,
    evaluate_every: int = 100,
    checkpoints: Keeper | None = None,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    probe: Probe | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Result]:
    """Train all lanes to their end, going on from a checkpoint if there is one.

    Args:
        lanes: The runs.
        evaluation: What to evaluate on, every `evaluate_every` steps and at the end.
        chunk: Steps per call of the compiled program.
        evaluate_every: Steps between evaluations.
        checkpoints: Where to save and to go on from; None to do neither.
        checkpoint_seconds: How often to save.
        checkpoint_steps: After how many steps to save in any case; None for time alone.
        probe: When and on what to measure alignment; None to leave it.
        progress: Told after every chunk.
        stop: Asked after every chunk; when it says yes, the state is saved and the runs are interrupted.

    Returns:
        A result for each lane.
    """
    steps, step = lanes.program.steps, 0
    counts = partial(_counts, steps=steps, chunk=chunk, evaluate_every=evaluate_every, probe=probe)
    coming = set(counts(0 if checkpoints is None else checkpoints.latest()))
    if coming:
        lanes.begin(chunk, whole=chunk in coming, cut=coming != {chunk}, evaluation=evaluation, probe=probe)
    states = lanes.start()
    record = _Record.of(len(lanes.lanes))
    if checkpoints is not None and (found := checkpoints.restore(states)):
        step, states, saved = found
        record = _Record(**saved)
    initial = lanes.initial() if probe is not None and probe.keep_initial else None
    if step == 0 and probe is not None and 0 in probe.steps:
        _measure(record, 0, lanes, states, probe, initial)
    tokens_per_step = lanes.tokens_per_step
    start, clock, saved_at, interrupted = step, _Clock(), time.monotonic(), False
    for count in counts(step):
        if interrupted or not any(lanes.alive(states)):
            break
        # A program for chunks that are full, and one for all that are not: every length would be one more to compile.
        states, result = lanes.chunk(states, step, count, size=None if count == chunk else chunk)
        step += count
        for losses, new in zip(record.losses, result.losses.tolist(), strict=True):
            losses += new
        record.tokens_per_second = clock.rate(count * tokens_per_step, full=count == chunk) or record.tokens_per_second
        improved = False
        if step % evaluate_every == 0 or step == steps:
            with clock.paused():
                improved = _evaluate(record, step, lanes.evaluate(states, evaluation), result)
        if probe is not None and step in probe.steps:
            with clock.paused():
                _measure(record, step, lanes, states, probe, initial)
        interrupted = stop()
        progress(_progress(record, step, steps, start, count))
        due = time.monotonic() - saved_at > checkpoint_seconds
        due |= checkpoint_steps is not None and step // checkpoint_steps > (step - count) // checkpoint_steps
        due |= interrupted or step == steps
        if checkpoints is not None and (due or improved):
            with clock.paused():
                checkpoints.save(step, states, asdict(record), best=improved, due=due)
        if due:
            saved_at = time.monotonic()
    unfinished = interrupted and step < steps
    return [_result(record, lane, diverged, unfinished) for lane, diverged in enumerate(lanes.diverged_at(states))]


def _counts(step: int, *, steps: int, chunk: int, evaluate_every: int, probe: Probe | None) -> Iterator[int]:
    """Give how many steps each chunk takes from a step on: up to where there is something to evaluate or to measure."""
    while step < steps:
        pauses = [steps, step - step % evaluate_every + evaluate_every]
        if probe is not None and (measured_next := probe.next_after(step)) is not None:
            pauses.append(measured_next)
        count = min(chunk, min(pauses) - step)
        yield count
        step += count


class _Clock:
    """Tokens per second of training proper: without pauses, and without the first call of each program, which compiles.

    It runs from one call to the next; what a call did not take part in is left out by `paused`.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._compiled: set[bool] = set()
        self._seconds = 0.0
        self._tokens = 0

    def rate(self, tokens: int, *, full: bool) -> float | None:
        """Take note of a call, of the program for full chunks or of that for others; give the rate so far."""
        now = time.monotonic()
        if full in self._compiled:
            self._seconds += now - self._last
            self._tokens += tokens
        self._compiled.add(full)
        self._last = now
        return self._tokens / max(self._seconds, 1e-9) if self._tokens else None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self._last += time.monotonic() - begin


def _evaluate(record: _Record, step: int, losses: np.ndarray, chunk: ChunkResult) -> bool:
    """Note the held-out losses of lanes that live; say whether one is better than all before."""
    for lane, (points, loss) in enumerate(zip(record.points, losses.tolist(), strict=True)):
        if math.isfinite(loss):
            params, gradients = (
                {role: float(values[lane]) for role, values in sizes.items()}
                for sizes in (chunk.sizes.params, chunk.sizes.gradients)
            )
            points.append(asdict(Point(step=step, eval_loss=loss, params=params, gradients=gradients)))
    best = min((loss for loss in losses.tolist() if math.isfinite(loss)), default=math.inf)
    improved, record.best = best < record.best, min(best, record.best)
    return improved


def _measure(
    record: _Record, step: int, lanes: Lanes, states: list[State], probe: Probe, initial: list[PyTree] | None
) -> None:
    """Note the alignment of lanes that live."""
    measured = lanes.measure(states, np.asarray(probe.tokens), initial=initial)
    for points, found, alive in zip(record.alignment, measured, lanes.alive(states), strict=True):
        if alive:
            points.append({"step": step, "layers": found.to_json()})


def _progress(record: _Record, step: int, steps: int, start: int, count: int) -> Progress:
    return Progress(
        step=step,
        steps=steps,
        start=start,
        losses=[float(np.mean(losses[-count:])) for losses in record.losses],
        eval_losses=[points[-1]["eval_loss"] if points else math.nan for points in record.points],
        tokens_per_second=record.tokens_per_second,
    )


def _result(record: _Record, lane: int, diverged_at: int, unfinished: bool) -> Result:
    losses = record.losses[lane]
    status: Status = "diverged" if diverged_at >= 0 else "interrupted" if unfinished else "finished"
    return Result(
        status=status,
        steps=diverged_at if diverged_at >= 0 else len(losses),
        train_loss=losses[: diverged_at + 1] if diverged_at >= 0 else losses,
        points=[Point(**point) for point in record.points[lane]],
        tokens_per_second=record.tokens_per_second,
        alignment=[AlignmentPoint(**point) for point in record.alignment[lane]],
    )
