"""The tuned constants ("Hyperparameter tuning for constant per-layer learning rate factors", appendix; §4.2).

The three constants are tuned for every optimizer and parameterization at the base width, where all alignment
assumptions prescribe the same rates. Part of what a trial gains over the default is a better base learning rate, since
a common factor of the constants is one. The gain that is reported is without it: learning rates are searched at the
base width with default and with tuned constants, and the best of both are compared.
"""

import math
from statistics import geometric_mean
from typing import Any

from widthwise.experiments.comparing import changes, improves
from widthwise.experiments.exhibits import Table
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding, Verdict
from widthwise.experiments.paper_constants import PAPER_CONSTANTS
from widthwise.experiments.paper_values import PARAMETERIZATIONS
from widthwise.experiments.results import Results, pick
from widthwise.experiments.showing import called, percent
from widthwise.experiments.sizes import SIZES, Size
from widthwise.experiments.stages import TUNED, Search, Stage, tunings
from widthwise.parameterize import Constants
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.fits import GroupFit
from widthwise.theory import Role

PART = "rates"
OPTIMIZERS = ("sgd", "adam", "adam_ps", "adafactor")
NOTES = (
    "Constants belong to a model, its data and the base learning rate they were tuned with; a common factor of all "
    "three is a factor of that rate. The paper's were tuned at width 1024 with 800 trials each.",
)


def plan(size: Size) -> tuple[Stage, ...]:
    """Tune the constants, and search the learning rate at the base width without and with them."""
    smoke = size.scale == "smoke"
    optimizers = ("adam", "adam_ps") if smoke else OPTIMIZERS
    names = ("standard", "mup") if smoke else PARAMETERIZATIONS
    searches = tuple(
        Search(part=PART, sweep=sweep)
        for optimizer in optimizers
        for sweep in size.sweeps(
            optimizer,
            changes={"width": size.base.base_width},
            widths=(size.base.base_width,),
            parameterizations=names,
            settings=("full",),
            constants=(DEFAULT, TUNED),
        )
    )
    return (*tunings(size, optimizers, names), *searches)


def read(results: Results) -> Reading:
    """Show what was tuned, and what it gains."""
    tuned, fits = results.tuned(TUNED), results.fits(PART)
    keys = [(optimizer, name) for optimizer in OPTIMIZERS for name in PARAMETERIZATIONS if (optimizer, name) in tuned]
    findings: list[Finding] = []
    rows: list[tuple[str, ...]] = []
    for optimizer, name in keys:
        default, best = (
            pick(fits, optimizer=optimizer, parameterization=name, constants=constants)
            for constants in (DEFAULT, TUNED)
        )
        claim = "tuned constants improve the eval loss at the base width"
        findings += improves(claim, called(name, optimizer), best, default)
        rows.append(_row(optimizer, name, tuned[optimizer, name], _gain(best, default)))
    findings += _spreads({key: tuned[key]["constants"] for key in keys})
    return Reading(findings=tuple(findings), exhibits=(_table(rows),) if rows else (), notes=NOTES)


def spread(constants: Constants) -> float:
    """Give how far the constants are apart: the largest over the smallest, which no common factor changes.

    >>> spread(Constants(embedding=0.5, hidden=1.0, readout=2.0))
    4.0
    """
    values = [constants.of(role) for role in Role]
    return max(values) / min(values)


def _spreads(tuned: dict[tuple[str, str], Constants]) -> list[Finding]:
    """Compare optimizers in the parameterizations that both of them have."""
    shared = [name for name in PARAMETERIZATIONS if {("adam", name), ("adam_ps", name)} <= tuned.keys()]
    if not shared:
        return []
    adam, adam_ps = (geometric_mean([spread(tuned[key, name]) for name in shared]) for key in ("adam", "adam_ps"))
    return [
        Finding(
            claim="constants are nearer to each other with parameter scaling than with Adam alone",
            of=called(*shared),
            verdict=Verdict.of(adam_ps < adam),
            measured=f"largest over smallest, in the mean: {adam_ps:.1f} with parameter scaling, {adam:.1f} without",
            paper="from 0.5 to 2.6 with parameter scaling, from 0.15 to 11.7 without",
        )
    ]


def _gain(best: GroupFit | None, default: GroupFit | None) -> float:
    if best is None or default is None:
        return math.nan
    return next(iter(changes(best, default).values()), math.nan)


def _row(optimizer: str, name: str, tuned: dict[str, Any], gain: float) -> tuple[str, ...]:
    about, constants, paper = tuned["about"], tuned["constants"], PAPER_CONSTANTS[optimizer, name]
    return (
        called(optimizer),
        called(name),
        *(f"{constants.of(role):.3g}" for role in Role),
        percent(gain) if math.isfinite(gain) else "–",
        str(about["trials"]),
        str(about["averaged"]),
        ", ".join(about["extended"]) or "none",
        ", ".join(about["at_edge"]) or "none",
        *(f"{paper.of(role):g}" for role in Role),
    )


def _table(rows: list[tuple[str, ...]]) -> Table:
    roles = [role.value for role in Role]
    columns = (
        "optimizer",
        "parameterization",
        *roles,
        "change of the loss",
        "trials",
        "averaged",
        "ranges moved",
        "at an edge",
        *(f"paper: {role}" for role in roles),
    )
    return Table(
        name="constants",
        title="Tuned constants",
        caption=(
            "Factors on the learning rates of each role: the average over the trials within 0.1 % of the best. The "
            "change of the loss is at the base width, with the best learning rate of each. A range is moved where its "
            "optimum lay at an edge of it."
        ),
        columns=columns,
        rows=tuple(rows),
        paper=frozenset(range(len(columns) - len(roles), len(columns))),
    )


EXPERIMENT = Experiment(
    name="constants",
    title="Which constants are best for each layer?",
    claim=(
        "Constant factors for the rates of embedding, hidden layers and readout, tuned at the base width, improve the "
        "eval loss; with parameter scaling they are near one, with Adam they are not (§4.2 and appendix)."
    ),
    sizes=SIZES,
    plan=plan,
    read=read,
)
