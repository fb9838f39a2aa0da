"""What a study holds of an experiment: complete, or as far as it has come."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from widthwise.experiments.sizes import Scale
from widthwise.fit import Trial
from widthwise.fit.trials import curves
from widthwise.measure import AlignmentPoint
from widthwise.parameterize import Constants
from widthwise.sweep import Curve, Row, Study
from widthwise.sweep.fits import GroupFit, fit_rows


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A run that measured alignment: what was asked for, and what it measured."""

    spec: dict[str, Any]
    points: tuple[AlignmentPoint, ...]


class Results:
    """The results of an experiment at one scale.

    Attributes:
        name: The experiment's name.
        scale: The scale.
    """

    def __init__(self, study: Study, name: str, scale: Scale) -> None:
        self.name = name
        self.scale: Scale = scale
        self._study = study

    def label(self, part: str) -> str:
        """Say what the runs of a part are kept under."""
        return f"{self.name}/{self.scale}/{part}"

    def rows(self, part: str) -> list[Row]:
        """List the requests of a part."""
        return self._study.runs(label=self.label(part))

    def fits(self, part: str) -> list[GroupFit]:
        """Fit the groups of a part, of what has ended."""
        return fit_rows(self.rows(part))

    def probed(self, part: str) -> list[Probed]:
        """Give what the runs of a part measured."""
        ended = [row for row in self.rows(part) if row.status in ("finished", "diverged")]
        kept = self._study.curves([row.run for row in ended])
        found = (Probed(spec=row.spec, points=alignment_points(kept[row.run])) for row in ended)
        return [probed for probed in found if probed.points]

    def gradients(self, part: str, fit: GroupFit, trial: Trial) -> dict[str, float]:
        """Give the root mean square of the last gradients of a group's run, by role; nothing where it is not known."""
        shared = {name: value for name, value in fit.spec.items() if not isinstance(value, tuple)}
        wanted = {**shared, "width": trial.width, "learning_rate": trial.learning_rate, "seed": trial.seed}
        found = [row.run for row in self.rows(part) if wanted.items() <= _plain(row.spec).items()]
        kept = self._study.curves(found[:1])
        return {
            name.removeprefix("gradients/"): float(curve.values[-1])
            for of_run in kept.values()
            for name, curve in of_run.items()
            if name.startswith("gradients/") and len(curve.values)
        }

    def tuned(self, name: str) -> dict[tuple[str, str], dict[str, Any]]:
        """Give what was tuned under a name, by optimizer and parameterization: the constants, and what is kept of them.

        Every experiment keeps its own, for each scale: what is best at one is not at another.
        `constants` is a `Constants`; `about` has the eval loss, the ranges and the number of trials averaged.
        """
        prefix = f"constants/{self.label(name)}/"
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for note, value in self._study.notes(prefix).items():
            optimizer, parameterization = note.removeprefix(prefix).split("/")
            found[optimizer, parameterization] = {**value, "constants": Constants(**value["constants"])}
        return found


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if not isinstance(value, list)}


def alignment_points(curves: dict[str, Curve]) -> tuple[AlignmentPoint, ...]:
    """Put together what a run measured of its layers, from the curves it is kept as."""
    names = {name: name.removeprefix("alignment/").rpartition("/") for name in curves if name.startswith("alignment/")}
    if not names:
        return ()
    steps = curves[next(iter(names))].steps.tolist()
    points: list[dict[str, dict[str, float]]] = [{} for _ in steps]
    for name, (layer, _, field) in names.items():
        for point, value in zip(points, curves[name].values.tolist(), strict=True):
            point.setdefault(layer, {})[field] = value
    return tuple(AlignmentPoint(step=step, layers=layers) for step, layers in zip(steps, points, strict=True))


def best_losses(fit: GroupFit) -> dict[int, float]:
    """Give the smallest eval loss of each width whose optimum lies inside what was tried.

    As in the paper it is the best of the rates tried. The bottom of a parabola is no substitute: far from the optimum
    losses are no parabola, and the bottom then is off by a percent, which is more than most settings differ by.
    """
    known = {optimum.width for optimum in fit.transfer.optima if optimum.interior}
    return {curve.width: math.exp(curve.level[curve.best]) for curve in curves(fit.trials) if curve.width in known}


def pick(fits: Iterable[GroupFit], **names: Any) -> GroupFit | None:
    """Find the group with these names, or values of its specification; None where there is none.

    An experiment asks for a group that may not have been trained yet.
    """
    for fit in fits:
        values = {**fit.spec, **fit.names}
        if all(values.get(name) == value for name, value in names.items()):
            return fit
    return None
