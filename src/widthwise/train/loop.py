"""The training loop: chunks of steps, evaluation and checkpoints. It can be interrupted at any time."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

from widthwise.data import Evaluation
from widthwise.measure import AlignmentPoint, Probe
from widthwise.parameterize import PyTree
from widthwise.train.lanes import ChunkResult, Lanes
from widthwise.train.processes import agreed
from widthwise.train.program import State

Value = TypeVar("Value")
EndStatus: TypeAlias = Literal["finished", "diverged", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """The measurements at one step.

    Attributes:
        step: The number of steps taken.
        eval_loss: The held-out loss.
        params: The root mean square of the stored parameters, by role.
        gradients: The root mean square of the last gradients, by role.
    """

    step: int
    eval_loss: float
    params: dict[str, float]
    gradients: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run.

    Attributes:
        status: Finished, diverged, or interrupted (to be resumed).
        steps: The number of steps taken; for a diverged run, those before the loss at which it diverged.
        train_loss: The loss before every step.
        points: The measurements during training.
        tokens_per_second: The speed of all lanes together.
        alignment: The measurements of a probe; empty without one.
    """

    status: EndStatus
    steps: int
    train_loss: list[float]
    points: list[Point]
    tokens_per_second: float
    alignment: list[AlignmentPoint] = field(default_factory=list)

    @property
    def eval_loss(self) -> float:
        """The last held-out loss; NaN if there is none."""
        return self.points[-1].eval_loss if self.points else float("nan")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of training after a chunk.

    Attributes:
        step: The number of steps taken.
        steps: The total number of steps.
        losses: The mean training loss of the last chunk, for each lane.
        eval_losses: The last held-out losses; NaN if there is none yet.
        tokens_per_second: The speed of all lanes together, without the first chunk, which compiles.
    """

    step: int
    steps: int
    losses: list[float]
    eval_losses: list[float]
    tokens_per_second: float


@dataclass
class _Record:
    """What has to survive a restart in addition to the state."""

    losses: list[list[float]]
    points: list[list[dict[str, Any]]]
    alignment: list[list[dict[str, Any]]]
    best: float = float("inf")
    tokens_per_second: float = 0.0

    @classmethod
    def of(cls, lanes: int) -> "_Record":
        losses, points, alignment = ([[] for _ in range(lanes)] for _ in range(3))
        return cls(losses=losses, points=points, alignment=alignment)

    @classmethod
    def read(cls, lanes: int, step: int, saved: Any) -> "_Record":
        """Read the record of a checkpoint; raise ValueError if it is something else."""
        if not isinstance(saved, dict):
            raise ValueError("its record is none of a training")
        try:
            record = cls(**saved)
            taken = [len(losses) for losses in record.losses]
            _ = [Point(**point) for points in record.points for point in points]
            _ = [AlignmentPoint(**point) for points in record.alignment for point in points]
        except (TypeError, AttributeError) as error:
            raise ValueError(f"its record is none of a training: {error}") from None
        if taken != [step] * lanes or not len(record.points) == len(record.alignment) == lanes:
            raise ValueError(f"its record has losses of {taken} steps, expected {lanes} times {step}")
        return record


class Keeper(Protocol):
    """The interface of checkpoints."""

    def save(self, step: int, states: PyTree, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        """Save the states and the record after `step` steps; if not due, this may be delayed."""
        ...

    def latest(self) -> int:
        """Return the step of the newest checkpoint; 0 if there is none."""
        ...

    def restore(self, like: PyTree, read: Callable[[int, Any], Value]) -> tuple[int, PyTree, Value] | None:
        """Return the newest readable checkpoint; None if there is none."""
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
    """Train all lanes to the end, resuming from a checkpoint if there is one.

    Args:
        lanes: The runs.
        evaluation: The evaluation data, used every `evaluate_every` steps and at the end.
        chunk: Steps per call of the compiled program.
        evaluate_every: Steps between evaluations.
        checkpoints: Where to save and to resume from; None to do neither.
        checkpoint_seconds: Seconds between checkpoints.
        checkpoint_steps: Steps between checkpoints, in addition; None to go by time alone.
        probe: When to measure alignment, and on what; None not to measure it.
        progress: Called after every chunk.
        stop: Called after every chunk; if it returns True, the state is saved and the runs are interrupted.

    Returns:
        One result per lane.
    """
    steps, step = lanes.program.steps, 0
    counts = partial(_counts, steps=steps, chunk=chunk, evaluate_every=evaluate_every, probe=probe)
    coming = set(counts(0 if checkpoints is None else checkpoints.latest()))
    if coming:
        lanes.begin(chunk, whole=chunk in coming, cut=coming != {chunk}, evaluation=evaluation, probe=probe)
    states = lanes.start()
    record = _Record.of(len(lanes.lanes))
    if checkpoints is not None and (found := checkpoints.restore(states, partial(_Record.read, len(lanes.lanes)))):
        step, states, record = found
    initial = lanes.initial() if probe is not None and probe.keep_initial else None
    if step == 0 and probe is not None and 0 in probe.steps:
        _measure(record, 0, lanes, states, probe, initial)
    tokens_per_step = lanes.tokens_per_step
    clock, saved_at, interrupted = _Clock(), time.monotonic(), False
    for count in counts(step):
        if interrupted or not any(lanes.alive(states)):
            break
        # One program for full chunks, and one for all others: otherwise every length would need its own compilation.
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
        late = time.monotonic() - saved_at > checkpoint_seconds
        interrupted, due, improved = agreed(stop(), late, improved)
        progress(_progress(record, step, steps, count))
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
    """Yield the number of steps of each chunk; chunks end where there is something to evaluate or to measure."""
    while step < steps:
        pauses = [steps, step - step % evaluate_every + evaluate_every]
        if probe is not None and (measured_next := probe.next_after(step)) is not None:
            pauses.append(measured_next)
        count = min(chunk, min(pauses) - step)
        yield count
        step += count


class _Clock:
    """Measures tokens per second of training, without the first call of each program, which compiles.

    The clock runs from one call to the next, except inside `paused`.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._compiled: set[bool] = set()
        self._seconds = 0.0
        self._tokens = 0

    def rate(self, tokens: int, *, full: bool) -> float | None:
        """Record a call of the program for full chunks, or of the one for shorter chunks; return the rate so far."""
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
    """Record the held-out losses of lanes that have not diverged; return whether one is the best so far."""
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
    """Record the alignment of lanes that have not diverged."""
    measured = lanes.measure(states, np.asarray(probe.tokens), initial=initial)
    for points, found, alive in zip(record.alignment, measured, lanes.alive(states), strict=True):
        if alive:
            points.append({"step": step, "layers": found.to_json()})


def _progress(record: _Record, step: int, steps: int, count: int) -> Progress:
    return Progress(
        step=step,
        steps=steps,
        losses=[float(np.mean(losses[-count:])) for losses in record.losses],
        eval_losses=[points[-1]["eval_loss"] if points else math.nan for points in record.points],
        tokens_per_second=record.tokens_per_second,
    )


def _result(record: _Record, lane: int, diverged_at: int, unfinished: bool) -> Result:
    losses = record.losses[lane]
    status: EndStatus = "diverged" if diverged_at >= 0 else "interrupted" if unfinished else "finished"
    return Result(
        status=status,
        steps=diverged_at if diverged_at >= 0 else len(losses),
        train_loss=losses[: diverged_at + 1] if diverged_at >= 0 else losses,
        points=[Point(**point) for point in record.points[lane]],
        tokens_per_second=record.tokens_per_second,
        alignment=[AlignmentPoint(**point) for point in record.alignment[lane]],
    )
