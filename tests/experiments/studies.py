"""Studies with known answers: the runs of a plan, written down without training, on parabolas that a test states.

The log of the loss is a parabola in octaves of the learning rate, so every optimum, every exponent and every loss that
a reading has is known in advance.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from widthwise.experiments.experiment import Reading
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import TUNED, Choice, ProbeStage, Stage, SweepStage, TuneStage, search_of
from widthwise.parameterize import Constants
from widthwise.report.findings import Finding
from widthwise.study import Outcome, Request, Setting, Study
from widthwise.study.encoding import encode, key
from widthwise.sweeps.constants import keep
from widthwise.train import Spec

CURVATURE = 0.1
"""By how much the log of the loss rises one octave away from the optimum."""
OCTAVES = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
"""Where rates are tried, from the optimum."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of a setting at a width: its best rate, in octaves, and the loss there."""

    octaves: float
    loss: float


Answers = Callable[[Setting, int], Truth]
"""Returns the truth for a setting at a width."""


def fill(
    study: Study,
    name: str,
    scale: Scale,
    stages: Iterable[Stage],
    answers: Answers,
    *,
    constants: Callable[[str, str], Constants] = lambda *_: Constants(),
    ratios: Callable[[Spec, str, int], float] = lambda *_: 0.5,
    ended: Callable[[Spec], bool] = lambda _: True,
    diverges: Callable[[Spec], bool] = lambda _: False,
) -> Results:
    """Write the runs of a plan into a study.

    Args:
        study: The study.
        name: The experiment's name.
        scale: The scale.
        stages: The plan.
        answers: What is true.
        constants: What tuning found, by optimizer and parameterization.
        ratios: The alignment of a layer after a step.
        ended: Which runs have ended; the others are waiting.
        diverges: Which of them diverged.
    """
    results = Results(study, name, scale)
    for stage in stages:
        if isinstance(stage, TuneStage):
            _tune(results, study, stage, constants)
            continue
        runs = list(_runs(search_of(stage), answers))
        _write(study, results.label(search_of(stage).part), runs, ended, diverges)
        if isinstance(stage, ProbeStage):
            _write(study, results.label(stage.part), [_probed(run, ratios) for run in runs if run.best], ended)
    return results


def read(study: Study, name: str, answers: Answers, choice: Choice | None = None, **options) -> Reading:
    experiment = EXPERIMENTS[name]
    stages = experiment.plan(experiment.sizes["cpu"], choice or Choice())
    return experiment.read(fill(study, name, "cpu", stages, answers, **options))


def level(*, octaves: float = -6.0, loss: float = 2.0) -> Answers:
    """Return answers that are the same everywhere."""
    return lambda setting, width: Truth(octaves=octaves, loss=loss)


def find(reading: Reading, claim: str, of: str = "") -> Finding:
    about = [finding for finding in reading.findings if claim in finding.claim]
    (found,) = [one for one in about if one.of == of] or [one for one in about if of in one.of]
    return found


def exhibit(reading: Reading, name: str):
    (found,) = [one for one in reading.exhibits if one.name == name]
    return found


@dataclass(frozen=True, kw_only=True)
class _Run:
    request: Request
    spec: Spec
    truth: Truth
    curves: Mapping[str, Any]

    @property
    def away(self) -> float:
        """How many octaves its rate lies from the optimum."""
        return math.log2(self.spec.learning_rate) - self.truth.octaves

    @property
    def best(self) -> bool:
        return abs(self.away) < 1e-9

    @property
    def outcome(self) -> Outcome:
        loss = self.truth.loss * math.exp(CURVATURE * self.away**2)
        results = {"eval_loss": loss, "parameters": 12 * self.spec.width**2}
        return Outcome(run=self.request.id, status="finished", results=results, curves=self.curves)


def _tune(results: Results, study: Study, stage: TuneStage, constants: Callable[[str, str], Constants]) -> None:
    spec = stage.spec
    about = {"trials": stage.tuning.trials, "averaged": 2, "extended": ["embedding"], "at_edge": [], "eval_loss": 2.0}
    found = constants(spec.optimizer, spec.parameterization)
    keep(study, results.label(TUNED), spec.optimizer, spec.parameterization, found, about)


def _runs(stage: SweepStage, answers: Answers) -> Iterable[_Run]:
    sweep = stage.sweep
    for setting in sweep.settings:
        for width in sweep.all_sizes:
            truth = answers(setting, width)
            for seed in sweep.all_seeds:
                fixed: dict[str, Any] = {"size": width, "seed": seed, "vocabulary": 256, "constants": Constants()}
                middle = sweep.spec(setting, learning_rate=1.0, **fixed)
                names = {"constants": setting.constants, "horizon": setting.horizon, **sweep.names}
                gradients = {f"gradients/{role}": ([middle.steps], [1 / width]) for role in ("embedding", "hidden")}
                for octave in OCTAVES:
                    spec = replace(middle, learning_rate=2.0 ** (truth.octaves + octave))
                    request = _request({**spec.to_json(), **names})
                    yield _Run(request=request, spec=spec, truth=truth, curves=gradients)


def _probed(run: _Run, ratios: Callable[[Spec, str, int], float]) -> _Run:
    return replace(run, request=_request({**run.request.request, "probe": True}), curves=_alignment(run.spec, ratios))


def _request(spec: dict[str, Any]) -> Request:
    return Request(request=spec, id=key(encode(spec)), identity=spec)


def _write(
    study: Study,
    label: str,
    runs: list[_Run],
    ended: Callable[[Spec], bool],
    diverges: Callable[[Spec], bool] = lambda _: False,
) -> None:
    study.ask([run.request for run in runs], label=label)
    outcomes = [(run.outcome, diverges(run.spec)) for run in runs if ended(run.spec)]
    study.record([replace(outcome, status="diverged") if lost else outcome for outcome, lost in outcomes])


def _alignment(spec: Spec, ratios: Callable[[Spec, str, int], float]) -> dict[str, Any]:
    layers = ("readout/kernel", "blocks/0/mlp/up/kernel", "blocks/0/attention/query/kernel")
    steps = [0, 1, spec.steps]
    curves: dict[str, Any] = {
        f"alignment/{layer}/ratio": (steps, [ratios(spec, layer, step) for step in steps]) for layer in layers
    }
    return {**curves, "alignment/tokens/embedding/ratio": (steps, [math.nan] * len(steps))}
