"""What an experiment trains, as values: constants to tune, learning rates to search, alignment to measure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from widthwise.experiments.paper.values import PAPER
from widthwise.experiments.sizes import Scale
from widthwise.study.setting import Setting
from widthwise.sweeps.sweep import Sweep
from widthwise.sweeps.tuning import Tuning
from widthwise.train import Spec

TUNED = "tuned"
"""The name of constants that an experiment tunes; "optimal" in the paper."""
CONSTANTS, RATES, ALIGNMENT = "constants", "rates", "alignment"
"""The parts that searches for constants and learning rates, and measurements of alignment, are kept under."""
AXES: dict[str, Callable[[Setting], str]] = {
    "parameterizations": lambda setting: setting.parameterization,
    "optimizers": lambda setting: setting.optimizer,
    "settings": lambda setting: setting.rates.name,
}
"""What can be narrowed by name."""


@dataclass(frozen=True)
class TuneStage:
    """Search the three constants of the optimizer and parameterization of `spec`, at the base width."""

    spec: Spec
    tuning: Tuning
    part = CONSTANTS


@dataclass(frozen=True)
class SweepStage:
    """Search learning rates."""

    sweep: Sweep
    part = RATES


@dataclass(frozen=True)
class ProbeStage:
    """Train again with the best learning rate of each width of a search, and measure alignment on the way."""

    of: SweepStage
    part = ALIGNMENT


Stage: TypeAlias = TuneStage | SweepStage | ProbeStage


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A part of an experiment; everything where nothing is chosen."""

    widths: tuple[int, ...] = ()
    """Train these widths instead of the scale's own."""
    parameterizations: tuple[str, ...] = ()
    """Train only these of the experiment's parameterizations."""
    optimizers: tuple[str, ...] = ()
    """Train only these of the experiment's optimizers."""
    settings: tuple[str, ...] = ()
    """Train only these of the experiment's settings (full, none, global)."""
    seeds: tuple[int, ...] = ()
    """Train with these seeds instead of the scale's own."""

    def of(self, settings: Sequence[Setting]) -> list[Setting]:
        """Return the settings that were chosen.

        Raises:
            ValueError: If a name that was chosen occurs in none of them, or no setting has all that was chosen.
        """
        chosen = list(settings)
        for axis, name in AXES.items():
            names, known = getattr(self, axis), {name(setting) for setting in settings}
            if unknown := [each for each in names if each not in known]:
                expected = ", ".join(sorted(known))
                raise ValueError(f"{axis[:-1]} {unknown[0]!r} is not part of this experiment: expected {expected}")
            chosen = [setting for setting in chosen if not names or name(setting) in names]
        if settings and not chosen:
            raise ValueError("no setting of this experiment has all that was chosen: choose fewer names")
        return chosen


EVERYTHING = Choice()


def search_of(stage: SweepStage | ProbeStage) -> SweepStage:
    """Return the search that a stage consists of or follows."""
    return stage.of if isinstance(stage, ProbeStage) else stage


def spec_of(stage: Stage) -> Spec:
    """Return what the runs of a stage share."""
    return stage.spec if isinstance(stage, TuneStage) else search_of(stage).sweep.base


def optimal(scale: Scale) -> str:
    """Return the name of optimal constants at a scale: the paper's where they apply, else those that are tuned."""
    return PAPER if scale == "paper" else TUNED
