"""`widthwise sweep`: search learning rates over widths and settings, and keep the runs in a study."""

import dataclasses
import functools
import json
import math
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from widthwise.cli.arguments import count, named, positive, read_by, unset
from widthwise.cli.fit import tabulate_fits
from widthwise.cli.running import FAILED, StatusLine
from widthwise.cli.where import Where, count_runs, tabulate_forecast
from widthwise.experiments.paper.values import look_up
from widthwise.search.lattice import AdaptiveSearch, Grid
from widthwise.study import Setting, Study
from widthwise.study.axes import AXES, WIDTH
from widthwise.study.fits import fit_rows
from widthwise.study.setting import Horizon
from widthwise.study.store import FILE
from widthwise.sweeps.budget import Account, Budget
from widthwise.sweeps.carry_out import GroupResult, Job, SearchResult, run_sweeps
from widthwise.sweeps.forecast import Held, count_sweep, forecast
from widthwise.sweeps.packs import Options
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.settings import settings
from widthwise.sweeps.sweep import Sweep
from widthwise.theory import read_rates
from widthwise.train import Spec, vocabulary_of


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Search the optimal learning rate at several widths, or along another axis, for every combination of settings.

    Everything is kept in the study: after an interrupt, a kill or a crash, run the same command to resume. Runs that
    are known are not trained again. Several commands may work on one study at the same time.
    """

    study: Path
    """The folder to keep everything in; created if necessary."""
    spec: Annotated[Spec, tyro.conf.arg(name="")]
    widths: Annotated[tuple[int, ...], unset("--width")] = ()
    """Widths to train."""
    axis: Annotated[str, named({name: name for name in AXES})] = WIDTH.name
    """What grows: width, depth (--blocks), batch (at the same number of tokens), tokens (--steps x --batch x
    --context), or all of them together with the width. Warm-up keeps its share of the steps."""
    values: Annotated[tuple[int, ...], unset("that of the options")] = ()
    """Sizes along another axis than width to train."""
    parameterizations: Annotated[tuple[str, ...], unset("--parameterization")] = ()
    """Parameterizations to train."""
    optimizers: Annotated[tuple[str, ...], unset("--optimizer")] = ()
    """Optimizers to train with."""
    settings: Annotated[tuple[str, ...], unset("--alignment or --rates")] = ()
    """Learning rates to compare: alignments to assume, global, or your own exponents such as 0,-1,-1."""
    constants: Annotated[tuple[str, ...], unset("default")] = ()
    """Constants of the layers' learning rates, by name: default, paper, or the name given to tune."""
    epsilons: Annotated[tuple[float, ...], unset("--epsilon")] = ()
    """Base epsilons."""
    epsilon_scalings: Annotated[tuple[Literal["constant", "per_parameter"], ...], unset("--epsilon-per-parameter")] = ()
    """Whether epsilon is constant or follows the gradients' exponents."""
    weight_decays: Annotated[tuple[float, ...], unset("--weight-decay")] = ()
    """Weight decays."""
    decay_rules: Annotated[tuple[str, ...], unset("--decay-rule")] = ()
    """How weight decay changes with width: independent, coupled, sqrt, inverse."""
    depth_rules: Annotated[tuple[str, ...], unset("--depth-rule")] = ()
    """What changes with depth: completep, sqrt, constant, or your own powers of residual branches."""
    batch_rules: Annotated[tuple[str, ...], unset("--batch-rule")] = ()
    """What changes with the batch size: sde, sde2, sqrt, timescale, scion, constant, or your own powers of the rate."""
    token_rules: Annotated[tuple[str, ...], unset("--token-rule")] = ()
    """What changes with the number of tokens: horizon, timescale, scion, constant, or your own powers of the rate."""
    horizons: tuple[Horizon, ...] = ("fixed",)
    """Train for --steps, or for 20 tokens per parameter."""
    seeds: Annotated[tuple[int, ...], unset("--seed")] = ()
    """Seeds: each learning rate is tried with all of them. With --precision, more are added as needed."""
    precision: Annotated[float | None, positive("X"), unset("search every width once")] = None
    """Train until the exponent of the optimal learning rate is known to within this much, 0.1 for instance: the sweep
    chooses widths, rates and seeds that narrow its interval most for their cost."""
    until_verdict: bool = False
    """With --precision: stop earlier at settings for which it is clear whether the learning rate transfers."""
    loss_seeds: Annotated[int, count("N")] = 0
    """Train at least this many seeds at the optima of the smallest and largest width. Losses of settings are compared
    seed by seed; 8 seeds often tell losses apart that differ by half a percent."""
    budget: Annotated[Budget | None, read_by("LIMIT", Budget.read), unset("no limit")] = None
    """Stop after this much: a time (20m), runs ('300 runs') or FLOPs ('2e18 flops'). The same command goes on."""
    edge: bool = False
    """Also locate the stability edge of every width, the largest rate that trains well."""
    search: AdaptiveSearch = dataclasses.field(default_factory=AdaptiveSearch)
    grid: Annotated[tuple[float, float] | None, unset("search")] = None
    """Try all learning rates between these two, in steps of --search.step, instead of searching."""
    probe: bool = False
    """Measure alignment during training. Runs without these measurements are trained again."""
    where: Annotated[Where, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Where)
    training: Annotated[Options, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Options)
    dry_run: bool = False
    """Show what is left to train and how long it takes, and train nothing."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Train what is missing, and print what is known."""
        self.where.leave_accelerators_to_workers()
        with StatusLine(quiet=self.json) as status:
            code, text = (self._forecast if self.dry_run else self._carry_out)(self._sweep(), status)
        print(text)
        return code

    def _sweep(self) -> Sweep:
        for name in (
            "parameterizations",
            "optimizers",
            "settings",
            "constants",
            "epsilons",
            "epsilon_scalings",
            "weight_decays",
            "decay_rules",
            "depth_rules",
            "batch_rules",
            "token_rules",
            "horizons",
        ):
            if len(set(values := getattr(self, name))) < len(values):
                raise ValueError(f"{name} are {', '.join(map(str, values))}: expected each once")
        base = self.where.with_dtype(self.spec)
        return Sweep(
            base=base,
            settings=settings(
                Setting.of(base.to_json()),
                parameterization=self.parameterizations,
                optimizer=self.optimizers,
                rates=[read_rates(text) for text in self.settings],
                constants=self.constants,
                epsilon=self.epsilons,
                epsilon_per_parameter=[scaling == "per_parameter" for scaling in self.epsilon_scalings],
                weight_decay=self.weight_decays,
                decay_rule=self.decay_rules,
                depth_rule=self.depth_rules,
                batch_rule=self.batch_rules,
                token_rule=self.token_rules,
                horizon=self.horizons,
            ),
            widths=self.widths,
            axis=self.axis,
            values=self.values,
            seeds=self.seeds,
            search=self.search
            if self.grid is None
            else Grid(lowest=self.grid[0], highest=self.grid[1], step=self.search.step),
            edge=self.edge,
            precision=self.precision,
            until_verdict=self.until_verdict,
            loss_seeds=self.loss_seeds,
        )

    def _carry_out(self, sweep: Sweep, status: StatusLine) -> tuple[int, str]:
        """Run the sweep; return the exit code and what to print."""
        with self.where.driver(self.study, self.training, status) as driver:
            constants = functools.partial(look_up, driver.study)
            sweep.constants(constants)  # refuses names before the data is opened
            status.show("opening the data")
            job = Job(sweep=sweep, data=SweepData(sweep.base), probe=self.probe, constants=constants)
            (found,) = run_sweeps([job], driver, account=Account(self.budget))
            fits = fit_rows(driver.study.runs(label=sweep.id))
        progress = driver.progress
        code = FAILED if progress.failed else 0
        if self.json:
            values = {
                "sweep": sweep.id,
                "runs": progress.counts,
                "groups": [_group_to_json(result) for result in found],
                "searches": [_search_to_json(search, sweep.axis) for result in found for search in result.searches],
                "fits": [fit.to_json() for fit in fits],
            }
            return code, json.dumps(values, indent=2)
        ended = [
            f"{result.reached} reached: {result.setting.title}, ±{result.half_width:.2f} after {result.runs} runs"
            for result in found
            if result.reached
        ]
        incomplete = [f"incomplete: {line}" for result in found for line in result.missing]
        return code, "\n".join([*tabulate_fits(fits), *ended, *incomplete, count_runs(progress, self.study)])

    def _forecast(self, sweep: Sweep, status: StatusLine) -> tuple[int, str]:
        """Count what is left of the sweep; return the exit code and what to print."""
        del status
        there = (self.study / FILE).exists()
        with Study.open(self.study, create=False) if there else nullcontext() as study:
            counts = count_sweep(
                sweep,
                vocabulary=vocabulary_of(sweep.base),
                part="sweep",
                probe=self.probe,
                constants=sweep.constants(functools.partial(look_up, study)),
                held=None if study is None else Held(study.runs()),
            )
        groups, pace = len(sweep.all_settings), self.where.pace(sweep.base)
        found = forecast(counts, pace, groups=groups)
        if self.json:
            return 0, json.dumps(asdict(found), indent=2)
        return 0, tabulate_forecast(f"sweep of {groups} settings", counts, found, pace)


def _group_to_json(result: GroupResult) -> dict[str, Any]:
    return {
        **result.setting.names,
        "runs": result.runs,
        "half_width": result.half_width if math.isfinite(result.half_width) else None,
        "reached": result.reached,
        "out_of": result.out_of,
    }


def _search_to_json(result: SearchResult, axis: str) -> dict[str, Any]:
    return {
        **result.setting.names,
        axis: result.width,
        "complete": result.proposal.done and not result.proposal.missing,
        "missing": list(result.proposal.missing),
    }
