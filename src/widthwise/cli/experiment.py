"""`widthwise experiment`: one of the paper's experiments, at a scale that fits the machine."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import jax
import tyro

from widthwise.cli.arguments import count, unset
from widthwise.cli.experiment_tables import cost_to_json, show_cost, show_missing, show_reading, time_for
from widthwise.cli.output import Output
from widthwise.cli.status_line import StatusLine
from widthwise.cli.watching import FAILED, INTERRUPTED, STOPPED
from widthwise.cli.where import Where
from widthwise.experiments.carry_out import carry_out
from widthwise.experiments.cost import Work, device_days, hindrances, work_of
from widthwise.experiments.experiment import Experiment as Declared
from widthwise.experiments.experiment import Reading
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import Choice, Stage, narrow, spec_of
from widthwise.report.write import write_report
from widthwise.sweep.driver import Stopped
from widthwise.sweep.forecast import calibrate
from widthwise.sweep.packs import Wants
from widthwise.sweep.standing import Standing
from widthwise.sweep.work import Options, inputs_of

NAMES = "; ".join(f"{name} ({experiment.title})" for name, experiment in EXPERIMENTS.items())


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Carry out an experiment of the paper, say which of its claims hold here, and write a report.

    Everything is kept in the study: the same command goes on after any end, finished it runs nothing, and experiments
    that share a study share their runs.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help=f"Which experiment: {NAMES}.")]
    scale: Scale = "cpu"
    """How large: smoke (under a minute), cpu (minutes on two cores), gpu (minutes to an hour on one), paper."""
    study: Annotated[Path | None, unset("studies/SCALE")] = None
    """The folder to keep everything in; made if it is not there."""
    choice: Annotated[Choice, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Choice)
    steps: Annotated[int | None, count("N", least=1), unset("the scale's")] = None
    """Train for so many steps."""
    data: Annotated[str | None, unset("the scale's")] = None
    """Where text comes from: stdlib, synthetic, text or c4."""
    paths: tuple[str, ...] = ()
    """Files, folders or patterns, for text; local shards, for c4."""
    tokenizer: Annotated[str | None, unset("the scale's")] = None
    """What makes tokens of text: bytes, or the path of a SentencePiece model."""
    where: Annotated[Where, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Where)
    training: Annotated[Options, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Options)
    dry_run: bool = False
    """Say what it takes, and train nothing."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Carry it out, print what it found, and write the report."""
        if self.name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {self.name!r}: expected one of {', '.join(EXPERIMENTS)}")
        experiment = EXPERIMENTS[self.name]
        stages = self._stages(experiment)
        status = StatusLine(quiet=self.json)
        if self.dry_run and not stages:
            raise ValueError(f"{self.name} trains nothing: there is nothing to forecast")
        if stages and (self.dry_run or self.scale == "paper"):
            works = work_of(stages, vocabulary=_vocabulary(stages))
            reasons = self._hindrances(works) if self.scale == "paper" else []
            if self.dry_run:
                return self._forecast(works, reasons, status)
            if reasons:
                raise ValueError(_refusal(self.name, works, reasons))
        folder = self.study or Path("studies") / self.scale
        with self.where.driver(folder, self.training, status) as driver:
            try:
                missing = carry_out(self.name, self.scale, stages, driver)
            except Stopped:
                status.say(STOPPED)
                return INTERRUPTED
            finally:
                status.clear()
            reading = experiment.read(Results(driver.study, self.name, self.scale))
            page = folder / "report" / "index.html"
            if driver.standing.trained or not stages or not page.exists():
                page = write_report(driver.study, page.parent, progress=status.show).page
        status.clear()
        self._show(experiment, reading, missing, driver.standing, folder, page)
        return FAILED if driver.standing.failed else 0

    def _stages(self, experiment: Declared) -> tuple[Stage, ...]:
        if not experiment.sizes:
            return ()
        changes = {"steps": self.steps, "data": self.data, "paths": self.paths, "tokenizer": self.tokenizer}
        given = {name: value for name, value in changes.items() if value not in (None, ())}
        plan = experiment.plan(experiment.sizes[self.scale])
        return narrow(plan, self.choice, prepare=lambda spec: self.where.prepared(dataclasses.replace(spec, **given)))

    def _hindrances(self, works: Sequence[Work]) -> list[str]:
        device = jax.devices()[0]
        elsewhere = self.where.ray is not None
        memory = None if elsewhere else (device.memory_stats() or {}).get("bytes_limit")
        return hindrances(works, accelerator=elsewhere or device.platform != "cpu", memory=memory)

    def _forecast(self, works: Sequence[Work], reasons: Sequence[str], status: StatusLine) -> int:
        """Count what it takes; time a few steps too, unless that is out of reach here."""
        seconds = None
        if self.scale != "paper":
            wants = Wants(works[0].spec)
            with self.where.executor(status.say) as executor:
                status.show("timing a few steps")
                paces = calibrate([wants.want(work.spec) for work in works], executor, self.training)
                capacity = executor.capacity
            step_seconds = {one.flops / one.run.program.steps: pace.step_seconds for one, pace in paces.items()}
            seconds = time_for(works, step_seconds, capacity)
            status.clear()
        output = Output()
        if self.json:
            print(json.dumps(cost_to_json(works, seconds, reasons), indent=2))
            return 0
        show_cost(f"{self.name} at scale {self.scale}", works, seconds, reasons, output)
        output.write()
        return 0

    def _show(
        self,
        experiment: Declared,
        reading: Reading,
        missing: Sequence[str],
        standing: Standing,
        folder: Path,
        page: Path,
    ) -> None:
        counts = standing.counts
        if self.json:
            values = {
                "experiment": self.name,
                "scale": self.scale,
                "claim": experiment.claim,
                "runs": counts,
                "findings": [asdict(finding) for finding in reading.findings],
                "missing": list(missing),
                "study": str(folder),
                "report": str(page),
            }
            print(json.dumps(values, indent=2))
            return
        output = Output()
        show_reading(reading, output)
        show_missing(missing, output)
        if standing.wanted:
            output.lines(
                f"{counts['wanted']} runs, {counts['trained']} of them trained now, {counts['diverged']} diverged; "
                f"kept in {folder}"
            )
        output.lines(f"Report: {page}")
        output.write()
        if standing.failed:
            print(f"failed: {len(standing.failed)}; the same command tries them again", file=sys.stderr)


def _vocabulary(stages: Sequence[Stage]) -> int:
    """Ask the data, unless the model's own number is given: C4 is not to be opened to be counted."""
    spec = spec_of(stages[0])
    return spec.vocabulary or inputs_of(spec).batches.vocabulary


def _refusal(name: str, works: Sequence[Work], reasons: Sequence[str]) -> str:
    fewest, most = device_days(works)
    return (
        f"{name} at scale paper cannot run here: {'; '.join(reasons)}. It takes {fewest:,.0f} to {most:,.0f} days on "
        "one GPU: --dry-run shows the plan, --widths takes a part of it"
    )
