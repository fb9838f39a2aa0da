"""`widthwise train`: one run, or several learning rates of it, restartable at any moment."""

import hashlib
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from jax.sharding import Mesh
from rich import box
from rich.table import Table

from widthwise.cli.output import Output
from widthwise.cli.status_line import StatusLine
from widthwise.cli.stopping import stoppable
from widthwise.train import Checkpoints, Lanes, Progress, Result, Run, Spec, load_inputs, make_mesh, resolve, train
from widthwise.train.logs import Logs

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a transformer, or one with each of several learning rates.

    Interrupted, killed or crashed, the same command goes on where it was; finished, it shows the result again.
    """

    spec: Annotated[Spec, tyro.conf.arg(name="")]
    learning_rates: tuple[float, ...] = ()
    """Several base learning rates, in place of --learning-rate: a run for each."""
    out: Path = Path("runs")
    """The folder for checkpoints, TensorBoard files and results."""
    chunk: int = 20
    """Steps per call of the compiled program."""
    evaluate_every: int = 100
    """Steps between evaluations."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    checkpoint_steps: int | None = None
    """Save after this many steps too, however little time it took."""
    fsdp: int = 1
    """Devices over which parameters, optimizer state and batch of each run are split."""
    coordinator: str | None = None
    """On several hosts: host:port of the first, where each runs this command with its --process."""
    processes: int = 1
    """On several hosts: how many processes there are."""
    process: int = 0
    """On several hosts: which of them this is, from 0."""
    side_by_side: bool | None = None
    """Whether several runs train at the same time; on a GPU they do, on a CPU not, unless told."""
    json: bool = False
    """Print an object for each run, one a line."""

    def run(self) -> int:
        """Train, or go on, and print how it ended."""
        for name in ("chunk", "evaluate_every", "checkpoint_steps", "fsdp", "processes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds is {self.checkpoint_seconds}: expected 0 or more")
        if self.coordinator is not None:
            if not 0 <= self.process < self.processes:
                raise ValueError(f"process is {self.process}: expected 0 to {self.processes - 1}")
            jax.distributed.initialize(self.coordinator, self.processes, self.process)
        elif (self.processes, self.process) != (1, 0):
            raise ValueError("--process and --processes are for several hosts: expected --coordinator with them")
        mesh = self._mesh()
        status = StatusLine(quiet=self.json)
        inputs = load_inputs(self.spec, progress=lambda done: status.show(f"tokenizing: {done / 1e6:.1f} MB"))
        rates = self.learning_rates or (self.spec.learning_rate,)
        specs = [replace(self.spec, learning_rate=rate) for rate in rates]
        runs = [resolve(spec, vocabulary=inputs.batches.vocabulary, data=inputs.fingerprint) for spec in specs]
        folder = self.out / _name(runs)
        finished = _read_results(folder, runs)
        if finished is None:
            lanes = Lanes(
                runs[0].program,
                [run.lane for run in runs],
                inputs.batches,
                side_by_side=self.side_by_side,
                mesh=mesh,
            )
            finished = self._train(lanes, runs, inputs.evaluation, folder, status)
        interrupted = any(result["status"] == "interrupted" for result in finished)
        if self.process == 0:  # which speaks for all
            if self.json:
                for result in finished:
                    print(json.dumps(result))
            else:
                _show(runs, finished, folder)
        if interrupted:
            print("interrupted and saved: the same command goes on from here", file=sys.stderr)
        return INTERRUPTED if interrupted else 0

    def _mesh(self) -> Mesh | None:
        """Give the devices to split over, if it is to be more than one."""
        if self.fsdp == 1 and self.processes == 1:
            return None
        if self.spec.batch % self.fsdp:
            raise ValueError(f"batch is {self.spec.batch}: expected a multiple of fsdp, {self.fsdp}")
        return make_mesh(lanes=jax.device_count() // self.fsdp if self.side_by_side else 1, fsdp=self.fsdp)

    def _train(
        self, lanes: Lanes, runs: Sequence[Run], evaluation: Any, folder: Path, status: StatusLine
    ) -> list[dict[str, Any]]:
        folder.mkdir(parents=True, exist_ok=True)
        for run in runs if self.process == 0 else ():
            (folder / f"{run.id}.json").write_text(json.dumps(run.spec.to_json(), indent=2))
        logs = Logs(folder / "tensorboard", [run.id for run in runs] if self.process == 0 else [])
        began = time.monotonic()

        def progress(now: Progress) -> None:
            logs.write(now)
            status.show(line(now, time.monotonic() - began))

        with stoppable() as stop:
            with Checkpoints(folder / "checkpoints", say=status.say) as checkpoints:
                results = train(
                    lanes,
                    evaluation,
                    chunk=self.chunk,
                    evaluate_every=self.evaluate_every,
                    checkpoints=checkpoints,
                    checkpoint_seconds=self.checkpoint_seconds,
                    checkpoint_steps=self.checkpoint_steps,
                    progress=progress,
                    stop=stop,
                )
                status.show("saving")
            logs.close()
        status.clear()
        summaries = [_summary(run, result) for run, result in zip(runs, results, strict=True)]
        if self.process == 0 and all(summary["status"] != "interrupted" for summary in summaries):
            partial = folder / ".results.json.partial"
            partial.write_text(json.dumps(summaries, indent=2))
            partial.replace(folder / "results.json")
        return summaries


def _name(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return runs[0].id
    return hashlib.sha256(" ".join(run.id for run in runs).encode()).hexdigest()[:16]


def _read_results(folder: Path, runs: Sequence[Run]) -> list[dict[str, Any]] | None:
    path = folder / "results.json"
    if not path.exists():
        return None
    try:
        results = json.loads(path.read_text())
        if [result["run"] for result in results] != [run.id for run in runs]:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{str(path)!r} cannot be read: delete it to train again") from None
    return results


def _summary(run: Run, result: Result) -> dict[str, Any]:
    last = [loss for loss in result.train_loss[-20:] if math.isfinite(loss)]
    return {
        "run": run.id,
        "status": result.status,
        "steps": result.steps,
        "train_loss": sum(last) / len(last) if last and result.status != "diverged" else None,
        "eval_loss": result.eval_loss if math.isfinite(result.eval_loss) and result.status != "diverged" else None,
        "tokens_per_second": round(result.tokens_per_second, 1),
        "data": run.identity["data"],
        "device": jax.devices()[0].device_kind,
    }


def line(now: Progress, seconds: float) -> str:
    """Say in one line where training stands."""
    losses = [loss for loss in now.losses if math.isfinite(loss)]
    evaluated = [loss for loss in now.eval_losses if math.isfinite(loss)]
    left = seconds / (now.step - now.start) * (now.steps - now.step)
    parts = [
        f"step {now.step}/{now.steps}",
        f"loss {min(losses):.4f}" if losses else "diverged",
        *([f"eval {min(evaluated):.4f}"] if evaluated else []),
    ]
    if now.tokens_per_second:  # before, time went into compiling and tells nothing
        parts += [f"{now.tokens_per_second:,.0f} tokens/s", f"{int(left // 60)}:{int(left % 60):02} left"]
    return "  ".join(parts)


def _show(runs: Sequence[Run], results: Sequence[dict[str, Any]], folder: Path) -> None:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.4f}"

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("run", "learning rate", "status", "steps", "train loss", "eval loss", "tokens/s"):
        table.add_column(heading, justify="left" if heading in ("run", "status") else "right", no_wrap=True)
    for run, result in zip(runs, results, strict=True):
        table.add_row(
            run.id,
            f"{run.spec.learning_rate:g}",
            result["status"],
            str(result["steps"]),
            number(result["train_loss"]),
            number(result["eval_loss"]),
            f"{result['tokens_per_second']:,.0f}",
        )
    output = Output()
    output.table(table)
    output.lines("", f"Checkpoints, TensorBoard files and results are in {folder}")
    output.write()
