"""The tuned constants ("Hyperparameter tuning for constant per-layer learning rate factors", appendix; §4.2).

The three constants are tuned for every optimizer and parameterization at the base width, where all alignment
assumptions prescribe the same rates. Part of what a trial gains over the default is a better base learning rate, since
a common factor of the constants is one. The gain that is reported is without it: learning rates are searched at the
base width with default and with tuned constants, and the best of both are compared.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import changes, improves, percent_interval
from widthwise.experiments.paper.values import PAPER_CONSTANTS, PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES
from widthwise.experiments.stages import TUNED
from widthwise.fit import Estimate
from widthwise.parameterize import Constants
from widthwise.report.exhibits import Table, present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called
from widthwise.study.setting import DEFAULT
from widthwise.sweeps.settings import settings
from widthwise.theory import Role

OPTIMIZERS = ("sgd", "adam", "adam_ps", "adafactor")
NOTES = (
    "Constants belong to a model, its data and the base learning rate they were tuned with; a common factor of all "
    "three is a factor of that rate. The paper's were tuned at width 1024 with 800 trials each.",
)
SETTINGS = settings(optimizer=OPTIMIZERS, parameterization=PARAMETERIZATIONS, constants=(DEFAULT, TUNED))


def read(results: Results) -> Reading:
    """Show the constants that were tuned, and what they gain."""
    tuned = results.tuned(TUNED)
    findings: list[Finding] = []
    rows: list[dict[str, str]] = []
    for setting in SETTINGS:
        optimizer, name = setting.optimizer, setting.parameterization
        if setting.constants == TUNED and (optimizer, name) in tuned:
            pair = results[setting], results[replace(setting, constants=DEFAULT)]
            claim = "tuned constants improve the eval loss at the base width"
            findings += improves(claim, called(name, optimizer), *pair)
            rows.append(_row(optimizer, name, tuned[optimizer, name], changes(*pair)))
    findings += _spreads({key: kept["constants"] for key, kept in tuned.items()})
    table = Table.of(
        "constants",
        "Tuned constants",
        "Factors on the learning rates of each role: the average over the trials within 0.1 % of the best. The change "
        "of the loss is at the base width, with the best learning rate of each. A range is moved where its optimum lay "
        "at an edge of it.",
        rows,
    )
    return Reading(findings=tuple(findings), exhibits=present(table), notes=NOTES)


def spread(constants: Constants) -> float:
    """Return how far the constants are apart: the largest over the smallest, which no common factor changes.

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
            verdict=Judgement.of(adam_ps < adam),
            measured=f"largest over smallest, in the mean: {adam_ps:.1f} with parameter scaling, {adam:.1f} without",
            paper="from 0.5 to 2.6 with parameter scaling, from 0.15 to 11.7 without",
        )
    ]


def _row(optimizer: str, name: str, tuned: dict[str, Any], change: Mapping[int, Estimate]) -> dict[str, str]:
    about, constants, paper = tuned["about"], tuned["constants"], PAPER_CONSTANTS[optimizer, name]
    return {
        "optimizer": called(optimizer),
        "parameterization": called(name),
        **{role.value: f"{constants.of(role):.3g}" for role in Role},
        "change of the loss": next(map(percent_interval, change.values()), "–"),
        "trials": str(about["trials"]),
        "averaged": str(about["averaged"]),
        "ranges moved": ", ".join(about["extended"]) or "none",
        "at an edge": ", ".join(about["at_edge"]) or "none",
        **{f"paper: {role.value}": f"{paper.of(role):g}" for role in Role},
    }


EXPERIMENT = Experiment(
    name="constants",
    title="Which constants are best for each layer?",
    claim=(
        "Constant factors for the rates of embedding, hidden layers and readout, tuned at the base width, improve the "
        "eval loss; with parameter scaling they are near one, with Adam they are not (§4.2 and appendix)."
    ),
    sizes={
        **{scale: replace(size, widths=(size.base.base_width,)) for scale, size in SIZES.items()},
        "smoke": replace(SIZES["smoke"], widths=(SIZES["smoke"].base.base_width,), optimizers=("adam", "adam_ps")),
    },
    settings=lambda _: SETTINGS,
    read=read,
)
