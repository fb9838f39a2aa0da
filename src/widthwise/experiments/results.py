"""What a study holds of an experiment, complete or not."""

from collections.abc import Collection, Iterable
from typing import Any

from widthwise.experiments.paper.values import look_up
from widthwise.experiments.shared_runs import rows_of
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import ALIGNMENT, CONSTANTS, RATES, TUNED
from widthwise.fit import Trial
from widthwise.measure import AlignmentPoint
from widthwise.parameterize import Constants
from widthwise.study import Study
from widthwise.study.alignment import alignment_points
from widthwise.study.fits import GroupFit, alike, fit_rows
from widthwise.study.setting import Setting
from widthwise.sweeps.forecast import Held


class Results:
    """The results of an experiment at one scale, read from its study when they are first needed.

    Attributes:
        name: The experiment's name.
        scale: The scale.
    """

    def __init__(self, study: Study, name: str, scale: Scale) -> None:
        self.name = name
        self.scale: Scale = scale
        self._study = study
        self._fits: dict[str, dict[Setting, GroupFit]] = {}

    def label(self, part: str) -> str:
        """Return the label that the runs of a part are kept under."""
        return f"{self.name}/{self.scale}/{part}"

    def fits(self, part: str = RATES) -> dict[Setting, GroupFit]:
        """Return the fits of a part, by setting; the newest of several that differ in something else, such as steps.

        Runs of the same groups that another experiment asked for are read as well.
        """
        if part not in self._fits:
            fits = fit_rows(alike(self._study.runs(label=self.label(part)), self._study.runs()))
            self._fits[part] = {fit.setting: fit for fit in fits}
        return self._fits[part]

    def __getitem__(self, setting: Setting) -> GroupFit | None:
        """Return the fit of a setting; None if none of its runs has ended."""
        return self.fits().get(setting)

    def of(self, settings: Iterable[Setting]) -> dict[Setting, GroupFit]:
        """Return the fits of those of these settings that have any, in their order."""
        return {setting: fit for setting in settings if (fit := self[setting]) is not None}

    def sharing(self, settings: Collection[Setting]) -> dict[Setting, GroupFit]:
        """Return the fits of settings of which several may have the same runs, as `of` does for others."""
        asked = self._study.runs(label=self.label(RATES))
        rows = [row for setting in settings for row in rows_of(setting, asked)]
        fits = {fit.setting: fit for fit in fit_rows(alike(rows, [*rows, *self._study.runs()]))}
        return {setting: fits[setting] for setting in settings if setting in fits}

    def alignment(self) -> dict[tuple[Setting, int], tuple[AlignmentPoint, ...]]:
        """Return the alignment that was measured, by setting and width."""
        ended = [row for row in self._study.runs(label=self.label(ALIGNMENT)) if row.ended]
        kept = self._study.curves([row.run for row in ended])
        measured = {(Setting.of(row.spec), row.spec["width"]): alignment_points(kept[row.run]) for row in ended}
        return {key: points for key, points in measured.items() if points}

    def gradients(self, fit: GroupFit, trial: Trial) -> dict[str, float]:
        """Return the root mean square of a run's last gradients, by role; empty where it is not known."""
        run = fit.runs[trial]
        return {
            name.removeprefix("gradients/"): float(history.values[-1])
            for name, history in self._study.curves([run]).get(run, {}).items()
            if name.startswith("gradients/") and len(history.values)
        }

    def constants(self, name: str, optimizer: str, parameterization: str) -> Constants:
        """Return the constants of a name; those that an experiment tunes are its own."""
        return look_up(self._study, self.label(name) if name == TUNED else name, optimizer, parameterization)

    def count(self) -> int:
        """Return how many runs of it have ended."""
        parts = (CONSTANTS, RATES, ALIGNMENT)
        return len({row.run for part in parts for row in self._study.runs(label=self.label(part)) if row.ended})

    def held(self) -> Held:
        """Return the runs of the whole study: experiments share them."""
        return Held(self._study.runs())

    def tuned(self, name: str) -> dict[tuple[str, str], dict[str, Any]]:
        """Return what was tuned under a name, by optimizer and parameterization.

        Every experiment keeps its own constants for each scale, because they do not carry over.
        `constants` is a `Constants`; `about` has the eval loss, the ranges and the number of trials averaged.
        """
        prefix = f"constants/{self.label(name)}/"
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for note, value in self._study.notes(prefix).items():
            optimizer, parameterization = note.removeprefix(prefix).split("/")
            found[optimizer, parameterization] = {**value, "constants": Constants(**value["constants"])}
        return found
