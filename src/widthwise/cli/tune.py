"""`widthwise tune`: the constant factors of the layers' learning rates, searched at the base width.

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
from widthwise.cli.output import Output
from widthwise.cli.status_line import StatusLine
from widthwise.cli.watching import FAILED, INTERRUPTED, STOPPED
from widthwise.cli.where import Where
from widthwise.experiments.paper_constants import PAPER
from widthwise.sweep.constants import keep
from widthwise.sweep.driver import Stopped
from widthwise.sweep.packs import Wants
from widthwise.sweep.trials import run_tuning
from widthwise.sweep.tuning import Trial, Tuned, Tuning
from widthwise.sweep.work import Options
from widthwise.theory import Role
from widthwise.train import Spec

DEFAULTS = Tuning()


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Search the constants of embedding, hidden layers and readout at the base width, whatever --width says.

    Everything is kept in the study: the same command goes on after any end. The result is kept there by name, for
    widthwise sweep --constants NAME.
    """

    study: Path
    """The folder to keep everything in; made if it is not there."""
    spec: Annotated[Spec, tyro.conf.arg(name="")]
    name: str = "tuned"
    """What to call the constants; one name serves all optimizers and parameterizations, each with its own."""
    trials: Annotated[int, count("N", least=1)] = DEFAULTS.trials
    """How many trials to run, and again after each move of a range; 60 are sensible on a CPU."""
    at_a_time: Annotated[int, count("N", least=1)] = DEFAULTS.batch
    """How many trials to propose at a time: they know nothing of each other's results."""
    low: Annotated[float, positive("X")] = DEFAULTS.low
    """The lower end of the range of each constant, at first."""
    high: Annotated[float, positive("X")] = DEFAULTS.high
    """The upper end."""
    extensions: Annotated[int, count("N")] = DEFAULTS.extensions
    """How many times ranges may be moved."""
    sampler_seed: Annotated[int, count("N")] = DEFAULTS.seed
    """The seed of the sampler."""
    where: Annotated[Where, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Where)
    training: Annotated[Options, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Options)
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Search, keep the result, and print it."""
        if not self.name.strip():
            raise ValueError("name is empty: expected what to call the constants")
        if self.name == PAPER:
            raise ValueError(f"constants cannot be called {PAPER!r}: that name has a meaning")
        spec = replace(self.where.prepared(self.spec), width=self.spec.base_width)
        tuning = Tuning(
            trials=self.trials,
            batch=self.at_a_time,
            low=self.low,
            high=self.high,
            extensions=self.extensions,
            seed=self.sampler_seed,
        )
        status = StatusLine(quiet=self.json)
        with self.where.driver(self.study, self.training, status) as driver:
            try:
                tried = run_tuning(tuning, spec, driver, Wants(spec))
            except Stopped:
                status.say(STOPPED)
                return INTERRUPTED
            finally:
                status.clear()
            if driver.standing.failed:
                status.say(f"failed: {len(driver.standing.failed)}; the same command tries them again")
                return FAILED
            tuned = tuning.result(tried)
            if tuned is not None:
                about = {"spec": spec.to_json(), "tuning": asdict(tuning), **tuned.to_json()}
                keep(driver.study, self.name, spec.optimizer, spec.parameterization, tuned.constants, about)
        self._show(spec, tuned, tried, driver.standing.trained)
        return FAILED if tuned is None else 0

    def _show(self, spec: Spec, tuned: Tuned | None, tried: list[Trial], trained: int) -> None:
        default = next((trial.loss for trial in tried if set(asdict(trial.constants).values()) == {1.0}), None)
        if self.json:
            found = {} if tuned is None else {"constants": asdict(tuned.constants), **tuned.to_json()}
            counts = {"trials": len(tried), "trained": trained}
            print(json.dumps({"name": self.name, **counts, "default_loss": default, **found}, indent=2))
            return
        output = Output()
        if tuned is None:
            output.lines(f"all {len(tried)} trials diverged: try a smaller --learning-rate")
        else:
            output.lines(f"{spec.parameterization}, {spec.optimizer}, width {spec.width}: constants {self.name!r}")
            for role in Role:
                low, high = tuned.ranges[role]
                notes = [
                    *(["moved"] if role in tuned.extended else []),
                    *(["at an edge"] if role in tuned.at_edge else []),
                ]
                note = f", {' and '.join(notes)}" if notes else ""
                output.lines(f"  {role.value:10}{tuned.constants.of(role):>10.4g}   from {low:g} to {high:g}{note}")
            output.lines(
                f"{len(tried)} trials, {trained} of them trained now; best eval loss {tuned.loss:.4f}"
                + ("" if default is None else f", {default:.4f} with all constants 1")
                + f"; averaged over the {tuned.averaged} best",
                f"kept in {self.study}: widthwise sweep --constants {self.name}",
            )
        output.write()
