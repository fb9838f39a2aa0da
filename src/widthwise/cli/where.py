"""Where runs are computed, and what they take: what sweep, tune and experiment share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import jax

from widthwise.cli.arguments import count, unset
from widthwise.cli.output import duration, table
from widthwise.cli.running import SavedAndStopped, StatusLine, stoppable
from widthwise.sweep import Study
from widthwise.sweep.driver import Driver, Stopped
from widthwise.sweep.executors import Executor, Inline, Processes, RayCluster
from widthwise.sweep.forecast import Bounds, Count, Forecast, forecast, totals
from widthwise.sweep.memory import MOST_LANES
from widthwise.sweep.packs import Options
from widthwise.sweep.progress import SweepProgress
from widthwise.sweep.requests import SweepData
from widthwise.train import Spec
from widthwise.train.compiling import wake
from widthwise.train.cost import GPU_FLOPS


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where to compute."""

    processes: Annotated[int | None, count("N", least=1, most=1024), unset("in this process")] = None
    """Number of processes on this machine's CPU to spread the runs over."""
    ray: Annotated[str | None, unset("no Ray")] = None
    """Address of a Ray cluster to compute on: auto, local, or host:port."""
    cpus_per_task: float = 1.0
    """On Ray: CPUs for each pack of runs."""
    gpus_per_task: float = 0.0
    """On Ray: GPUs for each pack of runs; with a fraction, packs share a GPU."""

    def __post_init__(self) -> None:
        if self.processes is not None and self.ray is not None:
            raise ValueError("both --processes and --ray: expected one of them")
        if self.ray is None and self.gpus_per_task:
            raise ValueError(f"gpus_per_task is {self.gpus_per_task} without --ray: expected both")

    def executor(self, say: Callable[[str], None]) -> Executor:
        """Return what computes: this process, other processes, or a Ray cluster."""
        if self.ray is not None:
            return RayCluster(address=self.ray, cpus=self.cpus_per_task, gpus=self.gpus_per_task, say=say)
        return Inline() if self.processes is None else Processes(self.processes, say=say)

    @contextmanager
    def driver(self, folder: Path, training: Options, status: StatusLine) -> Iterator[Driver]:
        """Open a study and start what computes for it, until the end or an interrupt."""
        say = status.say
        if self.processes is None and self.ray is None:
            wake()
        with Study.open(folder, say=say) as study, stoppable() as stop, self.executor(say) as executor:
            driver = Driver(
                study,
                executor,
                options=training,
                most_lanes=self.most_lanes,
                show=lambda progress: status.show(describe_progress(progress)),
                stop=stop,
                say=say,
            )
            try:
                yield driver
            except Stopped:
                raise SavedAndStopped from None
            if failed := len(driver.progress.failed):
                status.say(f"failed packs of runs: {failed}; run the same command to try them again")

    def forecast(
        self, counts: Sequence[Count], data: SweepData, training: Options, status: StatusLine, *, groups: int = 0
    ) -> tuple[Forecast, int]:
        """Time a few steps of runs; return what all of them take, and how many are computed at a time."""
        with self.executor(status.say) as executor:
            status.show("timing a few steps")
            return forecast(counts, data, executor, training, groups=groups), executor.capacity

    def leave_accelerators_to_workers(self) -> None:
        """Keep JAX in this process on the CPU, for good, if workers compute: they need the accelerators' memory."""
        if self.ray is not None or self.processes is not None:
            jax.config.update("jax_platforms", "cpu")

    def with_dtype(self, spec: Spec) -> Spec:
        """Decide what dtype "auto" means for workers on GPUs: this process does not see them."""
        return replace(spec, dtype="bfloat16") if self.gpus_per_task and spec.dtype == "auto" else spec

    @property
    def most_lanes(self) -> int:
        """The largest number of runs in a pack."""
        on_cpu = not self.gpus_per_task if self.ray else self.processes or jax.default_backend() == "cpu"
        return 1 if on_cpu else MOST_LANES


def describe_progress(progress: SweepProgress) -> str:
    """Describe in one line how far a sweep has come."""
    parts = [f"{progress.done} of {progress.wanted} runs so far", f"{progress.running} running"]
    if progress.elsewhere:
        parts.append(f"waiting for {progress.elsewhere} that another command computes")
    if progress.diverged:
        parts.append(f"{progress.diverged} diverged")
    if progress.best[1]:
        parts.append(f"best {progress.best[0]:.4f} at width {progress.best[1]}")
    if progress.running and progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return "  ".join(parts)


def count_runs(progress: SweepProgress, folder: Path) -> str:
    """Describe in one line how the runs ended, and where they are kept."""
    ended = f"{progress.trained} of them trained now, {progress.diverged} diverged"
    return f"{progress.wanted} runs, {ended}; kept in {folder}"


def tabulate_forecast(title: str, counts: Sequence[Count], timed: tuple[Forecast, int] | None) -> str:
    """Return what runs take, part by part: in time here if they were timed, else in days on one GPU."""
    parts = {part: [count for count in counts if count.part == part] for part in dict.fromkeys(c.part for c in counts)}
    rows = [_row(part, some) for part, some in (parts if len(parts) == 1 else {**parts, "all": counts}).items()]
    if timed is None:
        days = _range(counts, lambda bounds: f"{bounds.gpu_days:,.0f}")
        time = f"time: {days} days on one GPU at {GPU_FLOPS / 1e12:.0f} TFLOP/s"
    else:
        found, capacity = timed
        least, most = (duration(bounds.seconds) for bounds in found.bounds)
        compiling = f"including {duration(found.compile_seconds)} of compilation"
        time = f"time here: {least if least == most else f'{least} to {most}'}, {capacity} at a time, {compiling}"
    drawn = table(("part", "widths", "searches", "runs", "tokens", "FLOPs"), rows)
    return f"{title}, if none of the runs is known yet; nothing was trained\n{drawn}\n{time}"


def _row(part: str, counts: Sequence[Count]) -> tuple[str, ...]:
    widths = sorted({count.spec.width for count in counts})
    return (
        part,
        f"{widths[0]} to {widths[-1]}" if len(widths) > 1 else str(widths[0]),
        f"{len(counts):,}",
        _range(counts, lambda bounds: f"{bounds.runs:,}"),
        _range(counts, lambda bounds: f"{bounds.tokens:.3g}"),
        _range(counts, lambda bounds: f"{bounds.flops:.3g}"),
    )


def _range(counts: Sequence[Count], write: Callable[[Bounds], str]) -> str:
    return " to ".join(dict.fromkeys(map(write, totals(counts))))
