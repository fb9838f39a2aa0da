"""Where runs are computed, and what they take: what sweep, tune and experiment share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import jax

from widthwise.cli.arguments import count, unset
from widthwise.cli.output import between, duration, table
from widthwise.cli.running import SavedAndStopped, StatusLine, StoppedAtOnce, stoppable
from widthwise.study import Study
from widthwise.study.axes import AXES
from widthwise.sweeps.driver import Driver, Stopped
from widthwise.sweeps.executors import Executor, Inline, Processes, RayCluster
from widthwise.sweeps.executors.processes import cores
from widthwise.sweeps.forecast import Bounds, Count, Forecast, Pace, totals
from widthwise.sweeps.memory import MOST_LANES
from widthwise.sweeps.packs import Options
from widthwise.sweeps.progress import SweepProgress
from widthwise.sweeps.speeds import Speedometer, kept_speeds
from widthwise.train import Spec
from widthwise.train.compiling import wake
from widthwise.train.cost import CORE_FLOPS, GPU_FLOPS


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
        with Study.open(folder, say=say) as study, stoppable(at_once=True) as stop, self.executor(say) as executor:
            driver = Driver(
                study,
                executor,
                options=training,
                most_lanes=self.most_lanes,
                show=lambda progress: status.show(describe_progress(progress)),
                stop=stop,
                hold=stop.held,
                say=say,
                speeds=None if self.ray else Speedometer(at_a_time=executor.capacity),
            )
            try:
                yield driver
            except (Stopped, StoppedAtOnce):
                raise SavedAndStopped from None
            if failed := len(driver.progress.failed):
                status.say(f"failed packs of runs: {failed}; run the same command to try them again")

    def pace(self, spec: Spec) -> Pace:
        """Return how fast runs with the precision of `spec` are trained: as fast as before, or else as assumed.

        A Ray cluster is not asked, which would take longer than all the rest: the pace is that of one task.
        """
        if self.ray is not None:
            assumed = GPU_FLOPS * self.gpus_per_task if self.gpus_per_task else CORE_FLOPS * self.cpus_per_task
            return Pace(at_a_time=1, assumed=assumed)
        device, workers = jax.devices()[0], self.processes or 1
        return Pace(
            at_a_time=workers,
            assumed=CORE_FLOPS * cores() if device.platform == "cpu" else GPU_FLOPS,
            speeds=kept_speeds(device.device_kind, spec.dtype_here, at_a_time=workers),
        )

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
    if progress.best:
        parts.append(f"best {progress.best[0]:.4f} at {progress.best[1]}")
    if progress.running and progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return "  ".join(parts)


def count_runs(progress: SweepProgress, folder: Path) -> str:
    """Describe in one line how the runs ended, and where they are kept."""
    ended = f"{progress.trained} of them trained now, {progress.diverged} diverged"
    return f"{progress.wanted} runs, {ended}; kept in {folder}"


def tabulate_forecast(title: str, counts: Sequence[Count], found: Forecast | None, pace: Pace) -> str:
    """Return what is left to train, part by part: with the time here, or on one GPU if there is no forecast."""
    known, left = sum(count.known for count in counts), [count for count in counts if count.most]
    said = f"{title}, {f'without the {known:,} runs that are known' if known else 'nothing of which is known yet'}"
    if not left:
        return f"{said}: nothing is left to train"
    parts = {part: [count for count in left if count.part == part] for part in dict.fromkeys(c.part for c in left)}
    rows = [_row(part, some) for part, some in (parts if len(parts) == 1 else {**parts, "all": left}).items()]
    axes = [AXES[name] for name in dict.fromkeys(count.axis for count in left)]
    drawn = table(("part", axes[0].plural if len(axes) == 1 else "sizes", "searches", "runs", "tokens", "FLOPs"), rows)
    if found is None:
        seconds = (bounds.flops / GPU_FLOPS for bounds in totals(left))
        time = f"time: {between(*seconds)} on one GPU at {GPU_FLOPS / 1e12:.0f} TFLOP/s"
    else:
        here = between(*(bounds.seconds for bounds in found.bounds))
        time = f"time here: {here}, {pace.at_a_time} at a time, {_describe_speed(found, pace)}"
    return f"{said}; nothing was trained\n{drawn}\n{time}"


def _describe_speed(found: Forecast, pace: Pace) -> str:
    if found.compile_seconds is not None:
        compiling = f"including {duration(found.compile_seconds)} of compilation"
        return f"at the speed measured on this machine, {compiling}"
    giga = pace.assumed / 1e9
    assumed = f"{giga:.0f} GFLOP/s" if giga < 1e4 else f"{giga / 1e3:.0f} TFLOP/s"
    return f"at an assumed {assumed} without compilation; a sweep measures both"


def _row(part: str, counts: Sequence[Count]) -> tuple[str, ...]:
    widths = sorted({count.size for count in counts})
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
