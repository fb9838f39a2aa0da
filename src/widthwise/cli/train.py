"""`widthwise train`: one run, or one at each of several learning rates, which can be resumed at any moment."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from jax.sharding import Mesh

from widthwise.cli.arguments import unset
from widthwise.cli.hosts import joined
from widthwise.cli.output import table
from widthwise.cli.paths import check_folder
from widthwise.cli.running import SavedAndStopped, StatusLine
from widthwise.cli.runs import naming, open_data, read_result, train_in, write_result
from widthwise.models.storing import Rematerialization
from widthwise.train import Inputs, Lanes, Result, Run, Spec, make_mesh, resolve
from widthwise.train.logs import Logs


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """Train a transformer, at one learning rate or several.

    After an interrupt, a kill or a crash, run the same command to resume. Run again after the end, it shows the
    results.
    """

    spec: Annotated[Spec, tyro.conf.arg(name="")]
    learning_rates: Annotated[tuple[float, ...], unset("--learning-rate")] = ()
    """Base learning rates: one run for each."""
    out: Path = Path("runs")
    """The folder for checkpoints, TensorBoard files and results."""
    chunk: int = 20
    """Steps per call of the compiled program."""
    evaluate_every: int = 100
    """Steps between evaluations."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    checkpoint_steps: int | None = None
    """Also save a checkpoint every so many steps."""
    fsdp: int = 1
    """Number of devices over which the parameters, optimizer state and batch of each run are split."""
    remat: Annotated[Rematerialization | None, unset("by width")] = None
    """What is computed again to save memory: nothing, the MLP's activation, all of a block, or the logits as well."""
    coordinator: str | None = None
    """On several hosts: host:port of the first. Each host runs this command with its own --process."""
    processes: int = 1
    """On several hosts: the number of processes."""
    process: int = 0
    """On several hosts: the number of this process, from 0."""
    side_by_side: bool | None = None
    """Whether several runs train at the same time; by default, on a GPU but not on a CPU."""
    json: bool = False
    """Print a JSON object for each run, one per line."""

    def run(self) -> int:
        """Train or resume, and print the results."""
        self._check()
        with joined(self.coordinator, processes=self.processes, process=self.process):
            self._run()
        return 0

    def _run(self) -> None:
        mesh = self._mesh()
        with StatusLine(quiet=self.json) as status:
            inputs = open_data(self.spec, status)
            rates = self.learning_rates or (self.spec.learning_rate,)
            specs = [replace(self.spec, learning_rate=rate) for rate in rates]
            runs = [resolve(spec, vocabulary=inputs.batches.vocabulary, data=inputs.fingerprint) for spec in specs]
            folder = self.out / _name(runs)
            if self.spec.width % self.fsdp and self.process == 0:
                status.say(f"matrices stay whole on every device: --fsdp {self.fsdp} does not divide the width")
            results = read_result(folder / "results.json", lambda values: _matching(values, runs))
            if results is None:
                with naming(folder):
                    results = self._train(runs, inputs, mesh, folder, status)
        if self.process == 0:  # which prints for all
            print("\n".join(map(json.dumps, results)) if self.json else _tabulate(runs, results, folder))
        if any(result["status"] == "interrupted" for result in results):
            raise SavedAndStopped

    def _check(self) -> None:
        check_folder(self.out)
        for name in ("chunk", "evaluate_every", "checkpoint_steps", "fsdp", "processes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds is {self.checkpoint_seconds}: expected 0 or more")
        if self.coordinator is None and (self.processes, self.process) != (1, 0):
            raise ValueError("--process and --processes are for several hosts: expected --coordinator with them")
        if self.coordinator is not None and not _is_address(self.coordinator):
            raise ValueError(f"coordinator is {self.coordinator!r}: expected host:port, such as 10.0.0.1:1234")
        if not 0 <= self.process < self.processes:
            raise ValueError(f"process is {self.process}: expected 0 to {self.processes - 1}")
        if self.spec.batch % self.fsdp:
            raise ValueError(f"batch is {self.spec.batch}: expected a multiple of fsdp, {self.fsdp}")

    def _mesh(self) -> Mesh | None:
        """Return the devices to split over, if there is more than one."""
        if self.fsdp == 1 and self.processes == 1:
            return None
        lanes = jax.device_count() // self.fsdp if self.side_by_side else 1
        if self.processes > 1 and lanes * self.fsdp != (count := jax.device_count()):
            expected = f"a number that divides {count}" if self.side_by_side else str(count)
            raise ValueError(f"fsdp is {self.fsdp}: expected {expected}, the devices of all processes together")
        return make_mesh(lanes=lanes, fsdp=self.fsdp)

    def _train(
        self, runs: Sequence[Run], inputs: Inputs, mesh: Mesh | None, folder: Path, status: StatusLine
    ) -> list[dict[str, Any]]:
        folder.mkdir(parents=True, exist_ok=True)
        recorded = runs if self.process == 0 else ()
        for run in recorded:
            (folder / f"{run.id}.json").write_text(json.dumps(run.spec.to_json(), indent=2))
        logs = Logs(folder / "tensorboard", [run.id for run in recorded])
        program, lanes = runs[0].program, [run.lane for run in runs]
        program = replace(program, model=replace(program.model, remat=self.remat))
        results = train_in(
            folder,
            Lanes(program, lanes, inputs.batches, side_by_side=self.side_by_side, mesh=mesh),
            inputs.evaluation,
            status,
            log=logs.write,
            chunk=self.chunk,
            evaluate_every=self.evaluate_every,
            checkpoint_seconds=self.checkpoint_seconds,
            checkpoint_steps=self.checkpoint_steps,
        )
        logs.close()
        summaries = [_summarize(run, result) for run, result in zip(runs, results, strict=True)]
        if recorded and all(result.status != "interrupted" for result in results):
            write_result(folder / "results.json", summaries)
        return summaries


def _is_address(text: str) -> bool:
    found = re.fullmatch(r"\S+:(\d{1,5})", text)
    return found is not None and 0 < int(found[1]) < 1 << 16


def _name(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return runs[0].id
    return hashlib.sha256(" ".join(run.id for run in runs).encode()).hexdigest()[:16]


def _matching(results: Any, runs: Sequence[Run]) -> list[dict[str, Any]]:
    if [result["run"] for result in results] != [run.id for run in runs]:
        raise ValueError
    return results


def _summarize(run: Run, result: Result) -> dict[str, Any]:
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


def _tabulate(runs: Sequence[Run], results: Sequence[dict[str, Any]], folder: Path) -> str:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.4f}"

    rows = [
        (
            run.id,
            f"{run.spec.learning_rate:g}",
            result["status"],
            str(result["steps"]),
            number(result["train_loss"]),
            number(result["eval_loss"]),
            f"{result['tokens_per_second']:,.0f}",
        )
        for run, result in zip(runs, results, strict=True)
    ]
    headings = ("run", "learning rate", "status", "steps", "train loss", "eval loss", "tokens/s")
    drawn = table(headings, rows, right=(1, 3, 4, 5, 6))
    return f"{drawn}\n\nCheckpoints, TensorBoard files and results are in {folder}"
