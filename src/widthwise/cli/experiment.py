"""`widthwise experiment`: run an experiment, the paper's or our own, at a scale that fits the machine."""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import jax
import tyro

from widthwise.cli.arguments import count, positive, read_by, unset
from widthwise.cli.output import between, table
from widthwise.cli.running import FAILED, StatusLine
from widthwise.cli.where import Where, count_runs, tabulate_forecast
from widthwise.experiments.carry_out import carry_out
from widthwise.experiments.cost import count_stages, hindrances
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.reading import read
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import Choice, Stage, spec_of
from widthwise.report import exhibits
from widthwise.study import Study
from widthwise.study.store import FILE
from widthwise.sweeps.budget import Budget
from widthwise.sweeps.forecast import Count, forecast, totals
from widthwise.sweeps.packs import Options
from widthwise.train import Spec, vocabulary_of

NAMES = "; ".join(f"{name} ({experiment.title})" for name, experiment in EXPERIMENTS.items())
SHOWN = 3
"""The most lines printed about what is missing; the report has all of them."""
SEEDS = "not counted: more seeds at the optima of settings, while a claim that compares their losses is unclear"


@dataclass(frozen=True, kw_only=True)
class ExperimentCommand:
    """Run an experiment of the paper or our own, tell which of its claims hold here, and write a report.

    Everything is kept in the study: after an interrupt, a kill or a crash, run the same command to resume. Experiments
    that share a study share their runs.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help=f"Which experiment: {NAMES}.")]
    scale: Scale = "cpu"
    """How large: smoke (under a minute), cpu (minutes on two cores), gpu (minutes to an hour on one), paper."""
    study: Annotated[Path | None, unset("studies/SCALE")] = None
    """The folder to keep everything in; created if necessary."""
    choice: Annotated[Choice, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Choice)
    steps: Annotated[int | None, count("N", least=1), unset("the scale's")] = None
    """Training steps."""
    data: Annotated[str | None, unset("the scale's")] = None
    """The text to train on: stdlib, synthetic, text or c4."""
    paths: tuple[str, ...] = ()
    """For text: files, folders or patterns. For c4: local shards."""
    tokenizer: Annotated[str | None, unset("the scale's")] = None
    """The tokenizer: bytes, or the path of a SentencePiece model."""
    precision: Annotated[float | None, positive("X"), unset("the scale's")] = None
    """Train until exponents are known to within this much, where the experiment measures exponents."""
    until_verdict: bool = False
    """Stop before that at settings for which it is clear whether the learning rate transfers."""
    budget: Annotated[Budget | None, read_by("LIMIT", Budget.read), unset("no limit")] = None
    """Stop after this much: a time (20m), runs ('300 runs') or FLOPs ('2e18 flops'). The same command goes on."""
    where: Annotated[Where, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Where)
    training: Annotated[Options, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Options)
    dry_run: bool = False
    """Show what is left to train and how long it takes, and train nothing."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Run it, print the findings, and write the report."""
        if self.name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {self.name!r}: expected one of {', '.join(EXPERIMENTS)}")
        self.where.leave_accelerators_to_workers()
        experiment = EXPERIMENTS[self.name]
        if experiment.sizes and self.scale not in experiment.sizes:
            raise ValueError(f"{self.name} has no scale {self.scale}: expected one of {', '.join(experiment.sizes)}")
        stages = self._stages(experiment)
        with StatusLine(quiet=self.json) as status:
            code, text = (self._forecast if self.dry_run else self._carry_out)(experiment, stages, status)
        print(text)
        return code

    def _carry_out(self, experiment: Experiment, stages: Sequence[Stage], status: StatusLine) -> tuple[int, str]:
        """Run the stages and write the report; return the exit code and what to print."""
        if stages and self.scale == "paper":
            counts, reasons = self._count(stages)
            if reasons:
                time = between(*(86400 * bound.gpu_days for bound in totals(counts)))
                raise ValueError(
                    f"{self.name} at scale paper cannot run here: {'; '.join(reasons)}. It takes {time} on one "
                    "GPU: --dry-run shows the plan, --widths selects a part of it"
                )
        from widthwise.report.write import write_report  # slow to import, and only needed here

        folder = self.study or Path("studies") / self.scale
        with self.where.driver(folder, self.training, status) as driver:
            missing = carry_out(experiment, self.scale, stages, driver, budget=self.budget)
            reading = experiment.read(Results(driver.study, self.name, self.scale))
            page = folder / "report" / "index.html"
            if driver.progress.trained or not stages or not page.exists():
                status.show("reading the study")
                page = write_report(read(driver.study), page.parent, progress=status.show).page
        progress = driver.progress
        code = FAILED if progress.failed else 0
        if self.json:
            values = {
                "experiment": self.name,
                "scale": self.scale,
                "claim": experiment.claim,
                "runs": progress.counts,
                "findings": [asdict(finding) for finding in reading.findings],
                "missing": list(missing),
                "study": str(folder),
                "report": str(page),
            }
            return code, json.dumps(values, indent=2)
        more = len(missing) - SHOWN
        lines = [
            *_tabulate(reading),
            *(f"incomplete: {line}" for line in missing[:SHOWN]),
            *([f"incomplete: {more} more; the report has them"] if more > 0 else []),
            *([count_runs(progress, folder)] if progress.wanted else []),
            f"Report: {page}",
        ]
        return code, "\n".join(lines)

    def _stages(self, experiment: Experiment) -> tuple[Stage, ...]:
        if not experiment.sizes:
            return ()
        changes = {"steps": self.steps, "data": self.data, "paths": self.paths, "tokenizer": self.tokenizer}
        given = {name: value for name, value in changes.items() if value not in (None, ())}

        def prepare(spec: Spec) -> Spec:
            return self.where.with_dtype(dataclasses.replace(spec, **given))

        size = experiment.sizes[self.scale]
        if size.precision is not None:
            precision = self.precision or size.precision
            until_verdict = self.until_verdict or size.until_verdict
            size = dataclasses.replace(size, precision=precision, until_verdict=until_verdict)
        return experiment.plan(size, self.choice, prepare=prepare)

    def _count(self, stages: Sequence[Stage]) -> tuple[list[Count], list[str]]:
        """Return what is left to train, and at the paper's scale the reasons why it cannot be trained here."""
        vocabulary, folder = vocabulary_of(spec_of(stages[0])), self.study or Path("studies") / self.scale
        with Study.open(folder, create=False) if (folder / FILE).exists() else nullcontext() as study:
            results = None if study is None else Results(study, self.name, self.scale)
            counts = count_stages(stages, vocabulary=vocabulary, results=results)
        if self.scale != "paper":
            return counts, []
        device, elsewhere = jax.devices()[0], self.where.ray is not None
        memory = None if elsewhere else (device.memory_stats() or {}).get("bytes_limit")
        return counts, hindrances(counts, accelerator=elsewhere or device.platform != "cpu", memory=memory)

    def _forecast(self, experiment: Experiment, stages: Sequence[Stage], status: StatusLine) -> tuple[int, str]:
        """Count what is left to train; return the exit code and the text."""
        del status
        if not stages:
            raise ValueError(f"{experiment.name} trains nothing: there is nothing to forecast")
        counts, reasons = self._count(stages)
        pace = self.where.pace(counts[0].spec)
        found = forecast(counts, pace)
        if not self.json:
            text = tabulate_forecast(f"{self.name} at scale {self.scale}", counts, None if reasons else found, pace)
            more = [SEEDS] if experiment.sizes[self.scale].loss_seeds else []
            return 0, "\n".join([text, *more, *(f"cannot run here: {reason}" for reason in reasons)])
        values = {
            "searches": found.searches,
            "known": found.known,
            **{name: [getattr(bound, name) for bound in found.bounds] for name in ("runs", "tokens", "flops")},
            "seconds": None if reasons else [bound.seconds for bound in totals(counts, pace)],
            "compile_seconds": None if reasons else found.compile_seconds,
            "measured": found.measured and not reasons,
            "gpu_days": [bound.gpu_days for bound in found.bounds],
            "cannot_run_here": list(reasons),
        }
        return 0, json.dumps(values, indent=2)


def _tabulate(reading: Reading) -> list[str]:
    """Return the first table of an experiment, which sums it up, and the findings."""
    lines: list[str] = []
    summary = next((one for one in reading.exhibits if isinstance(one, exhibits.Table)), None)
    if summary is not None:
        lines += [summary.title, table(summary.columns, summary.rows), ""]
    if reading.findings:
        headings, rows = ("claim", "of", "here", "measured"), list[tuple[str, ...]]()
        for before, one in zip([None, *reading.findings], reading.findings, strict=False):
            again = before is not None and before.claim == one.claim
            rows.append(("" if again else one.claim, one.of, str(one.verdict), one.measured, one.paper or "–"))
        if any(one.paper for one in reading.findings):
            headings = (*headings, "paper")
        lines += ["What is claimed, and what was measured here"]
        lines += [table(headings, [row[: len(headings)] for row in rows]), ""]
    return lines
