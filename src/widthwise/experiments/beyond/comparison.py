"""Rules side by side: with which of them can the best learning rate of a small run be reused for a larger one?

An experiment of this kind is a list of settings with names. Each is swept along the same axis and asked the same two
questions: does the optimum stay, and what does it cost to reuse the smallest run's rate for the largest?
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import percent_interval, reuse_cost
from widthwise.experiments.results import Results
from widthwise.experiments.shared_runs import to_train
from widthwise.experiments.sizes import Scale, Size
from widthwise.fit import Estimate
from widthwise.fit.transfer import CALLED
from widthwise.report import showing
from widthwise.report.exhibits import Table, present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import signed, stated, with_interval
from widthwise.study.fits import GroupFit, best_losses
from widthwise.study.setting import Setting

Named: TypeAlias = Mapping[str, Setting]
"""Settings by what a reader calls them."""
AFFORDABLE = 0.01
"""The part of the loss that reusing a learning rate may cost."""
PRECISION: Mapping[Scale, float] = {"cpu": 0.1, "gpu": 0.08}
"""How precisely exponents are measured."""


def comparison(
    name: str, *, title: str, claim: str, compared: Callable[[Scale], Named], sizes: Mapping[Scale, Size]
) -> Experiment:
    """Return an experiment that compares settings along an axis.

    Args:
        name: Its name on the command line.
        title: What it is about, as a question.
        claim: What is claimed, with its source.
        compared: Returns what is compared at a scale.
        sizes: What each scale trains; exponents are measured with two seeds, and to the end even if they clearly drift.
    """

    def read(results: Results) -> Reading:
        named = compared(results.scale)
        known = results.sharing(named.values())
        fits = {what: known[setting] for what, setting in named.items() if setting in known}
        return Reading(
            findings=tuple(_findings(fits)),
            exhibits=present(
                showing.transfers("sweeps", title, fits),
                _table(fits),
                showing.loss_against_size({"": fits}),
                showing.sensitivity(fits),
            ),
        )

    return Experiment(
        name=name,
        title=title,
        claim=claim,
        read=read,
        sizes={
            scale: replace(
                size,
                seeds=(0, 1) if scale in PRECISION else (0,),
                precision=PRECISION.get(scale),
                until_verdict=False,
                loss_seeds=(),
                parameterizations=tuple({setting.parameterization for setting in compared(scale).values()}),
            )
            for scale, size in sizes.items()
        },
        settings=lambda scale: to_train(compared(scale).values()),
        of_paper=False,
    )


def _table(fits: Mapping[str, GroupFit]) -> Table:
    """Show what each setting reaches, and what is lost where it is scaled up without another search."""
    axis = showing.axis_of(fits.values())
    called, losses = CALLED.get(axis, axis), {what: best_losses(fit) for what, fit in fits.items()}
    sizes = sorted({trial.width for fit in fits.values() for trial in fit.trials})
    return Table.of(
        "summary",
        "Exponents, costs and losses",
        "The exponent of the best learning rate, with its 95 % interval: 0 means that the rate can be reused. What the "
        "largest run loses with the rate that is best for the smallest. The eval loss with the best rate of each size.",
        [
            {
                "group": what,
                "exponent": with_interval(fit.transfer.law.exponent),
                "cost of reusing the rate": _written(reuse_cost(fit)) or "–",
                **{f"loss at {called} {size}": signed(losses[what].get(size, math.nan), 3) for size in sizes},
            }
            for what, fit in fits.items()
        ],
    )


def _findings(fits: Mapping[str, GroupFit]) -> Iterator[Finding]:
    for what, fit in fits.items():
        exponent = fit.transfer.law.exponent
        yield Finding(
            claim="the best learning rate stays",
            of=what,
            verdict=Judgement.near_zero(exponent),
            measured=stated(exponent, "exponent {}"),
        )
    for what, fit in fits.items():
        cost = reuse_cost(fit)
        yield Finding(
            claim="reusing the smallest run's rate costs the largest less than 1 % of its loss",
            of=what,
            verdict=Judgement.at_most(AFFORDABLE, cost),
            measured=_written(cost),
        )


def _written(cost: Estimate) -> str:
    if math.isnan(cost.value):
        return ""
    return "it diverges" if math.isinf(cost.value) else percent_interval(cost)
