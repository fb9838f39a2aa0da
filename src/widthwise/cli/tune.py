"""`widthwise tune`: search the constant factors of the layers' learning rates at the base width.

The paper tunes the three constants at one base learning rate: a factor common to all three is a learning rate, so the
search over constants covers it, and a sweep that uses them searches its own.
"""

import dataclasses
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from widthwise.cli.arguments import count, positive
from widthwise.cli.running import FAILED, StatusLine
from widthwise.cli.where import Where
from widthwise.experiments.paper.values import PAPER
from widthwise.study.setting import DEFAULT
from widthwise.sweeps.carry_out import run_tuning
from widthwise.sweeps.constants import keep
from widthwise.sweeps.packs import Options
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.tuning import ConstantsTrial, Tuned, Tuning
from widthwise.theory import Role
from widthwise.train import Spec

DEFAULTS = Tuning()


@dataclass(frozen=True, kw_only=True)
class TuneCommand:
    """Search the constants of embedding, hidden layers and readout at the base width, whatever --width says.

    Everything is kept in the study: run the same command to resume. The result is kept there under a name, for
    widthwise sweep --constants NAME.
    """

    study: Path
    """The folder to keep everything in; created if necessary."""
    spec: Annotated[Spec, tyro.conf.arg(name="")]
    name: str = "tuned"
    """The name to keep the constants under; each optimizer and parameterization has its own under this name."""
    trials: Annotated[int, count("N", least=1)] = DEFAULTS.trials
    """Number of trials, run again after ranges are moved; 60 is sensible on a CPU."""
    at_a_time: Annotated[int, count("N", least=1)] = DEFAULTS.batch
    """Number of trials to propose at a time, without knowing each other's results."""
    low: Annotated[float, positive("X")] = DEFAULTS.low
    """Lower end of the initial range of each constant."""
    high: Annotated[float, positive("X")] = DEFAULTS.high
    """Upper end of the initial range of each constant."""
    extensions: Annotated[int, count("N")] = DEFAULTS.extensions
    """How many times ranges may be moved towards an optimum at their edge."""
    sampler_seed: Annotated[int, count("N")] = DEFAULTS.seed
    """The seed of the sampler."""
    where: Annotated[Where, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Where)
    training: Annotated[Options, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Options)
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Search, keep the result, and print it."""
        if not self.name.strip():
            raise ValueError("name is empty: expected a name for the constants")
        if self.name in (DEFAULT, PAPER):
            raise ValueError(f"the name {self.name!r} is reserved: expected another name for the constants")
        self.where.leave_accelerators_to_workers()
        spec = replace(self.where.with_dtype(self.spec), width=self.spec.base_width)
        tuning = Tuning(
            trials=self.trials,
            batch=self.at_a_time,
            low=self.low,
            high=self.high,
            extensions=self.extensions,
            seed=self.sampler_seed,
        )
        with StatusLine(quiet=self.json) as status, self.where.driver(self.study, self.training, status) as driver:
            tried = run_tuning(tuning, spec, driver, SweepData(spec))
            tuned = None if driver.progress.failed else tuning.result(tried)
            if tuned is not None:
                about = {"spec": spec.to_json(), "tuning": asdict(tuning), **tuned.to_json()}
                keep(driver.study, self.name, spec.optimizer, spec.parameterization, tuned.constants, about)
        if driver.progress.failed:
            return FAILED
        print(self._describe(spec, tuned, tried, driver.progress.trained))
        return FAILED if tuned is None else 0

    def _describe(self, spec: Spec, tuned: Tuned | None, tried: list[ConstantsTrial], trained: int) -> str:
        default = next((trial.loss for trial in tried if set(asdict(trial.constants).values()) == {1.0}), None)
        if self.json:
            found = {} if tuned is None else {"constants": asdict(tuned.constants), **tuned.to_json()}
            counts = {"trials": len(tried), "trained": trained}
            return json.dumps({"name": self.name, **counts, "default_loss": default, **found}, indent=2)
        if tuned is None:
            return f"all {len(tried)} trials diverged: try a smaller --learning-rate"
        return "\n".join(
            [
                f"{spec.parameterization}, {spec.optimizer}, width {spec.width}: constants {self.name!r}",
                *(_describe_constant(tuned, role) for role in Role),
                f"{len(tried)} trials, {trained} of them trained now; best eval loss {tuned.loss:.4f}"
                + ("" if default is None else f", {default:.4f} with all constants 1")
                + f"; averaged over the {tuned.averaged} best",
                f"use them with: widthwise sweep --study {self.study} --constants {self.name}",
            ]
        )


def _describe_constant(tuned: Tuned, role: Role) -> str:
    low, high = tuned.ranges[role]
    notes = [*(["moved"] if role in tuned.extended else []), *(["at an edge"] if role in tuned.at_edge else [])]
    note = f", {' and '.join(notes)}" if notes else ""
    return f"  {role.value:10}{tuned.constants.of(role):>10.4g}   from {low:g} to {high:g}{note}"
