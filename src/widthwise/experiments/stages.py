"""What an experiment trains, as values: constants to tune, learning rates to search, alignment to measure.

A plan is a sequence of stages. It is declared whole and then *narrowed* to what was chosen on the command line, so that
an experiment's file says what the paper did and nothing about options.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from widthwise.experiments.paper_constants import PAPER
from widthwise.experiments.sizes import Scale, Size
from widthwise.sweep.sweep import Sweep
from widthwise.sweep.tuning import Tuning
from widthwise.train import Spec

AXES = ("parameterizations", "optimizers", "settings")
"""What can be narrowed by name."""
TUNED = "tuned"
"""What experiments call the constants that they tune; "optimal" in the paper."""


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Search the three constants of one optimizer and parameterization at the base width.

    Attributes:
        spec: What to train; the optimizer and the parameterization are its own.
        tuning: How to search.
    """

    spec: Spec
    tuning: Tuning

    @property
    def part(self) -> str:
        """What its runs are kept under."""
        return "constants"


@dataclass(frozen=True, kw_only=True)
class Search:
    """Search learning rates.

    Attributes:
        part: What its runs are kept under; stages that share a name are read together.
        sweep: The sweep.
    """

    part: str
    sweep: Sweep


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Train again with the best learning rate of each width, and measure alignment on the way.

    Attributes:
        part: What its runs are kept under.
        of: The search whose optima are taken.
    """

    part: str
    of: Search


Stage: TypeAlias = Tune | Search | Probe


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A part of an experiment; everything where nothing is chosen."""

    widths: tuple[int, ...] = ()
    """Train these widths, in place of the scale's own."""
    parameterizations: tuple[str, ...] = ()
    """Of the experiment's parameterizations, these alone."""
    optimizers: tuple[str, ...] = ()
    """Of the experiment's optimizers, these alone."""
    settings: tuple[str, ...] = ()
    """Of the experiment's settings (full, none, global), these alone."""
    seeds: tuple[int, ...] = ()
    """Train with these seeds, in place of the scale's own."""


def spec_of(stage: Stage) -> Spec:
    """Give what the runs of a stage share."""
    if isinstance(stage, Tune):
        return stage.spec
    return (stage if isinstance(stage, Search) else stage.of).sweep.base


def optimal(scale: Scale) -> str:
    """Say what optimal constants are called at a scale: the paper's where they apply, else those that are tuned."""
    return PAPER if scale == "paper" else TUNED


def tunings(size: Size, optimizers: Iterable[str], parameterizations: Sequence[str]) -> tuple[Tune, ...]:
    """Search the constants of every optimizer and parameterization at a size's base width."""
    width = size.base.base_width
    return tuple(
        Tune(spec=size.spec(optimizer, width=width, parameterization=name), tuning=size.tuning)
        for optimizer in optimizers
        for name in parameterizations
    )


def narrow(
    stages: Iterable[Stage], choice: Choice, *, prepare: Callable[[Spec], Spec] = lambda spec: spec
) -> tuple[Stage, ...]:
    """Leave out what was not chosen.

    Args:
        stages: An experiment's plan.
        choice: What to keep of it.
        prepare: Makes other changes to every specification, such as its data.

    Raises:
        ValueError: If a name that was chosen does not occur in the plan.
    """
    stages = tuple(stages)
    for axis in AXES:
        known = {name for stage in stages for name in _occurring(stage, axis)}
        if known and (unknown := [name for name in getattr(choice, axis) if name not in known]):
            raise ValueError(
                f"{axis[:-1]} {unknown[0]!r} is not part of this experiment: expected {', '.join(sorted(known))}"
            )
    narrowed = (_narrow(stage, choice, prepare) for stage in stages)
    return tuple(stage for stage in narrowed if stage is not None)


def _occurring(stage: Stage, axis: str) -> Sequence[str]:
    if isinstance(stage, Tune):
        return {"parameterizations": (stage.spec.parameterization,), "optimizers": (stage.spec.optimizer,)}.get(
            axis, ()
        )
    return getattr(stage.sweep if isinstance(stage, Search) else stage.of.sweep, axis)


def _narrow(stage: Stage, choice: Choice, prepare: Callable[[Spec], Spec]) -> Stage | None:
    if isinstance(stage, Probe):
        of = _narrow(stage.of, choice, prepare)
        return replace(stage, of=of) if isinstance(of, Search) else None
    kept = {
        axis: tuple(name for name in _occurring(stage, axis) if name in (getattr(choice, axis) or (name,)))
        for axis in AXES
    }
    if any(_occurring(stage, axis) and not names for axis, names in kept.items()):
        return None
    if isinstance(stage, Tune):
        return replace(stage, spec=prepare(stage.spec))
    sweep = stage.sweep
    return replace(
        stage,
        sweep=replace(
            sweep,
            base=prepare(replace(sweep.base, width=min(choice.widths or sweep.all_widths))),
            widths=tuple(sorted(choice.widths)) or sweep.widths,
            seeds=choice.seeds or sweep.seeds,
            **kept,
        ),
    )
