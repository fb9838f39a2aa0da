"""Where runs are computed: the options that sweep and tune share, and the driver they come down to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import jax

from widthwise.cli.arguments import count, unset
from widthwise.cli.status_line import StatusLine
from widthwise.cli.stopping import stoppable
from widthwise.cli.watching import line_for
from widthwise.sweep import Study
from widthwise.sweep.driver import Driver
from widthwise.sweep.executors import Executor, Inline, Processes, RayCluster
from widthwise.sweep.work import MOST_LANES, Options
from widthwise.train import Spec


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where to compute."""

    processes: Annotated[int | None, count("N", least=1, most=1024), unset("in this process")] = None
    """Spread runs over this many processes on this machine's CPU."""
    ray: Annotated[str | None, unset("do not use Ray")] = None
    """Compute on a Ray cluster: auto, local, or host:port."""
    cpus_per_task: float = 1.0
    """On Ray: CPUs for each pack of runs."""
    gpus_per_task: float = 0.0
    """On Ray: GPUs for each pack of runs; a fraction lets packs share one."""

    def __post_init__(self) -> None:
        if self.processes is not None and self.ray is not None:
            raise ValueError("both --processes and --ray: expected one of them")
        if self.ray is None and self.gpus_per_task:
            raise ValueError(f"gpus_per_task is {self.gpus_per_task} without --ray: expected both")

    def executor(self, say: Callable[[str], None]) -> Executor:
        """Make the executor."""
        if self.ray is not None:
            return RayCluster(address=self.ray, cpus=self.cpus_per_task, gpus=self.gpus_per_task, say=say)
        return Inline() if self.processes is None else Processes(self.processes, say=say)

    @contextmanager
    def driver(self, folder: Path, training: Options, status: StatusLine) -> Iterator[Driver]:
        """Open a study and what computes for it, until the end or an interrupt."""
        with (
            Study.open(folder, say=status.say) as study,
            stoppable() as stop,
            self.executor(status.say) as executor,
        ):
            yield Driver(
                study,
                executor,
                options=training,
                most_lanes=self.most_lanes,
                show=lambda standing: status.show(line_for(standing)),
                stop=stop,
                say=status.say,
            )

    def prepared(self, spec: Spec) -> Spec:
        """Keep this process off the devices that its workers need, and settle what "auto" means for them."""
        if self.ray is None and self.processes is None:
            return spec
        jax.config.update("jax_platforms", "cpu")
        return replace(spec, dtype="bfloat16") if self.gpus_per_task and spec.dtype == "auto" else spec

    @property
    def most_lanes(self) -> int:
        """The most runs in a pack."""
        on_cpu = not self.gpus_per_task if self.ray else self.processes or jax.default_backend() == "cpu"
        return 1 if on_cpu else MOST_LANES
