"""`widthwise sweep`: learning rates over widths and settings, searched, kept in a study, and read."""

import dataclasses
import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from widthwise.cli.arguments import unset
from widthwise.cli.fit_tables import show_fits
from widthwise.cli.output import Output
from widthwise.cli.status_line import StatusLine
from widthwise.cli.watching import FAILED, INTERRUPTED, STOPPED, duration
from widthwise.cli.where import Where
from widthwise.experiments.paper_constants import look_up
from widthwise.parameterize import Constants
from widthwise.sweep import Study
from widthwise.sweep.driver import Stopped
from widthwise.sweep.fits import GroupFit, fit_rows
from widthwise.sweep.forecast import Bounds, Forecast, forecast
from widthwise.sweep.packs import Wants
from widthwise.sweep.records import Horizon
from widthwise.sweep.rounds import Finding, run_sweep
from widthwise.sweep.search import Grid, Search
from widthwise.sweep.standing import Standing
from widthwise.sweep.store import FILE
from widthwise.sweep.sweep import Sweep as Asked
from widthwise.sweep.work import Options
from widthwise.train import Spec


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Search the optimal learning rate at several widths, for every combination of settings.

    Everything is kept in the study: interrupted, killed or crashed, the same command goes on, and finished it runs
    nothing. Several commands may work on one study at a time.
    """

    study: Path
    """The folder to keep everything in; made if it is not there."""
    spec: Annotated[Spec, tyro.conf.arg(name="")]
    widths: tuple[int, ...] = ()
    """Widths, in place of --width."""
    parameterizations: tuple[str, ...] = ()
    """Parameterizations, in place of --parameterization."""
    optimizers: tuple[str, ...] = ()
    """Optimizers, in place of --optimizer."""
    settings: tuple[str, ...] = ()
    """Alignments, global, or exponents of your own such as 0,-1,-1, in place of --alignment."""
    constants: tuple[str, ...] = ()
    """Constants of the layers' learning rates by name: default, paper, or what tune called them."""
    epsilons: tuple[float, ...] = ()
    """Base epsilons, in place of --epsilon."""
    epsilon_scalings: tuple[Literal["constant", "per_parameter"], ...] = ()
    """Whether epsilon follows the gradients' exponents, in place of --epsilon-per-parameter."""
    weight_decays: tuple[float, ...] = ()
    """Weight decays, in place of --weight-decay."""
    horizons: tuple[Horizon, ...] = ("fixed",)
    """Train for --steps, or for 20 tokens for each parameter."""
    seeds: tuple[int, ...] = ()
    """Seeds, in place of --seed: each learning rate is tried with all of them."""
    search: Search = dataclasses.field(default_factory=Search)
    grid: Annotated[tuple[float, float] | None, unset("search")] = None
    """Try all learning rates between these two, in steps of --search.step, in place of a search."""
    probe: bool = False
    """Measure alignment on the way; runs that do are others than those that do not."""
    where: Annotated[Where, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Where)
    training: Annotated[Options, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Options)
    dry_run: bool = False
    """Say what it takes, from a short calibration here, and train nothing."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Compute what is missing, and print what is known."""
        sweep = self._sweep()
        status = StatusLine(quiet=self.json)
        if self.dry_run:
            return self._forecast(sweep, status)
        with self.where.driver(self.study, self.training, status) as driver:
            study = driver.study

            def constants(*names: str) -> Constants:
                return look_up(study, *names)

            sweep.groups(constants)  # refuses names before the data is opened
            status.show("opening the data")
            try:
                findings = run_sweep(sweep, driver, Wants(sweep.base), probe=self.probe, constants=constants)
            except Stopped:
                status.say(STOPPED)
                return INTERRUPTED
            finally:
                status.clear()
            fits = fit_rows(study.runs(label=sweep.id))
        self._show(sweep, findings, fits, driver.standing)
        return FAILED if driver.standing.failed else 0

    def _sweep(self) -> Asked:
        if self.grid is not None:
            low, high = self.grid
            lattice = Grid(lowest=low, highest=high, step=self.search.step)
        else:
            lattice = self.search
        return Asked(
            base=self.where.prepared(self.spec),
            widths=self.widths,
            parameterizations=self.parameterizations,
            optimizers=self.optimizers,
            settings=self.settings,
            constants=self.constants,
            epsilons=self.epsilons,
            epsilons_per_parameter=tuple(scaling == "per_parameter" for scaling in self.epsilon_scalings),
            weight_decays=self.weight_decays,
            horizons=self.horizons,
            seeds=self.seeds,
            search=lattice,
        )

    def _forecast(self, sweep: Asked, status: StatusLine) -> int:
        there = (self.study / FILE).exists()
        with Study.open(self.study, create=False) if there else nullcontext() as study:
            groups = sweep.groups(lambda *names: look_up(study, *names))
        with self.where.executor(status.say) as executor:
            status.show("timing a few steps")
            found = forecast(sweep, groups, Wants(sweep.base), executor, self.training)
            capacity = executor.capacity
        status.clear()
        if self.json:
            print(json.dumps(asdict(found), indent=2))
        else:
            _show_forecast(found, capacity)
        return 0

    def _show(self, sweep: Asked, findings: list[Finding], fits: list[GroupFit], standing: Standing) -> None:
        counts = standing.counts
        if self.json:
            values = {
                "sweep": sweep.id,
                "runs": counts,
                "searches": [_search(finding) for finding in findings],
                "fits": [fit.to_json() for fit in fits],
            }
            print(json.dumps(values, indent=2))
            return
        output = Output()
        show_fits(fits, output)
        for finding in findings:
            for missing in finding.proposal.missing:
                output.lines(f"incomplete: {finding.group.title}, width {finding.width}: {missing}")
        output.lines(
            f"{counts['wanted']} runs, {counts['trained']} of them trained now, {counts['diverged']} diverged; "
            f"kept in {self.study}"
        )
        output.write()
        if standing.failed:
            print(f"failed: {len(standing.failed)}; the same command tries them again", file=sys.stderr)


def _search(finding: Finding) -> dict[str, Any]:
    spec, proposal = finding.group.spec, finding.proposal
    return {
        "parameterization": spec.parameterization,
        "optimizer": spec.optimizer,
        "setting": spec.setting,
        **finding.group.names,
        "width": finding.width,
        "complete": proposal.done and not proposal.missing,
        "missing": list(proposal.missing),
    }


def _show_forecast(found: Forecast, capacity: int) -> None:
    def row(name: str, write: Any) -> str:
        least, most = write(found.least), write(found.most)
        return f"  {name:8}{least}" if least == most else f"  {name:8}{least} to {most}"

    def seconds(bounds: Bounds) -> str:
        return duration(bounds.seconds)

    output = Output()
    output.lines(
        f"{found.groups} groups of settings, {found.searches} searches for a learning rate that do not coincide",
        row("runs", lambda bounds: f"{bounds.runs:,}"),
        row("tokens", lambda bounds: f"{bounds.tokens:.3g}"),
        row("FLOPs", lambda bounds: f"{bounds.flops:.3g}"),
        row("time", seconds) + f"   {capacity} at a time, {duration(found.compile_seconds)} of it compiling",
        "if nothing of it is known yet; nothing was trained",
    )
    output.write()
