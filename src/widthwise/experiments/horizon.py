"""Fixed steps against compute-optimal training ("Fixed Step vs Compute Optimal experiments", appendix).

One global rate and default constants; SGD, Adam and Adafactor. A compute-optimal run sees 20 tokens for each parameter
outside the token embedding, so its cost grows with the fourth power of the width: `cpu` and `gpu` have narrow models of
their own. As in the paper, the fixed number of steps is about that of a compute-optimal model inside the range of
widths, and the warm-up is the same for all; where a compute-optimal training is shorter than the warm-up, the rate
rises until it ends.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from widthwise.experiments.exhibits import AnyExhibit, Table
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding, Verdict, below_zero, difference
from widthwise.experiments.paper_values import EXPONENTS, MEDIAN_DIFFERENCE, PARAMETERIZATIONS
from widthwise.experiments.results import Results, pick
from widthwise.experiments.showing import SWEEPS, called, signed, stated, transfers, with_interval
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import Search, Stage
from widthwise.fit import Estimate
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.fits import GroupFit

PART = "rates"
OPTIMIZERS = ("sgd", "adam", "adafactor")
HORIZONS = ("fixed", "compute_optimal")
LARGEST = 6144
"""The largest width that the paper trained compute-optimally."""
_SIZES: dict[Scale, Size] = {
    "smoke": replace(SIZES["smoke"].at_widths(8, 16, batch=32, context=32, steps=100, warmup=4), octaves=1.5),
    "cpu": SIZES["cpu"].at_widths(16, 32, 48, batch=32, context=64, steps=200, warmup=20),
    "gpu": replace(
        SIZES["gpu"].at_widths(64, 128, 192, 256, blocks=2, head_dim=32, steps=1200, warmup=60), more_seeds=()
    ),
    "paper": replace(SIZES["paper"], widths=tuple(width for width in SIZES["paper"].widths if width <= LARGEST)),
}


def plan(size: Size) -> tuple[Stage, ...]:
    """Search the global learning rate for both horizons."""
    smoke = size.scale == "smoke"
    return tuple(
        Search(part=PART, sweep=sweep)
        for optimizer in (("adam",) if smoke else OPTIMIZERS)
        for sweep in size.sweeps(
            optimizer,
            parameterizations=("standard", "mup") if smoke else PARAMETERIZATIONS,
            settings=("global",),
            constants=(DEFAULT,),
            horizons=HORIZONS,
        )
    )


def read(results: Results) -> Reading:
    """Compare the exponents of the two horizons."""
    fits = results.fits(PART)
    pairs: dict[tuple[str, str], tuple[GroupFit | None, ...]] = {}
    for optimizer in OPTIMIZERS:
        for name in PARAMETERIZATIONS:
            pair = tuple(
                pick(fits, optimizer=optimizer, parameterization=name, horizon=horizon) for horizon in HORIZONS
            )
            if any(pair):
                pairs[optimizer, name] = pair
    apart = {
        key: difference(longer.transfer.law.exponent, fixed.transfer.law.exponent)
        for key, (fixed, longer) in pairs.items()
        if fixed is not None and longer is not None
    }
    findings = [
        Finding(
            claim="the exponent is smaller with a compute-optimal horizon",
            of=called(name, optimizer),
            verdict=below_zero(estimate),
            measured=stated(_negated(estimate), "smaller by {}"),
            paper=_paper_difference(optimizer, name),
        )
        for (optimizer, name), estimate in apart.items()
    ]
    exhibits: list[AnyExhibit] = []
    if pairs:
        findings.append(_median(apart))
        exhibits.append(_table(pairs, apart))
    for optimizer in OPTIMIZERS:
        for horizon in HORIZONS:
            shown = {
                called(fit.names["parameterization"]): fit
                for fit in fits
                if (fit.names["optimizer"], fit.names["horizon"]) == (optimizer, horizon)
            }
            paper = {called(name): EXPONENTS[optimizer, name, horizon] for name in PARAMETERIZATIONS}
            title = f"{called(optimizer)}, {called(horizon)}"
            if shown:
                name = f"sweeps-{optimizer}-{horizon.replace('_', '-')}"
                exhibits.append(transfers(name, title, SWEEPS, shown, paper))
    return Reading(findings=tuple(findings), exhibits=tuple(exhibits), notes=_notes(fits))


def _median(apart: Mapping[tuple[str, str], Estimate]) -> Finding:
    """Say what the median difference is, of those that are known."""
    known = [-estimate.value for estimate in apart.values() if math.isfinite(estimate.value)]
    middle = median(known) if known else math.nan
    return Finding(
        claim="exponents are smaller with a compute-optimal horizon, in the median",
        of=f"{len(known)} of {len(OPTIMIZERS) * len(PARAMETERIZATIONS)} settings",
        verdict=Verdict.of(middle > 0, middle),
        measured=f"by {signed(middle)}, from {signed(min(known))} to {signed(max(known))}" if known else "",
        paper=f"by {MEDIAN_DIFFERENCE}, from 0.01 to 0.89",
    )


def _table(
    pairs: Mapping[tuple[str, str], tuple[GroupFit | None, ...]], apart: Mapping[tuple[str, str], Estimate]
) -> Table:
    rows = tuple(
        (
            called(optimizer),
            called(name),
            *("–" if fit is None else with_interval(fit.transfer.law.exponent) for fit in pair),
            with_interval(_negated(apart[optimizer, name])) if (optimizer, name) in apart else "–",
            *(signed(EXPONENTS[optimizer, name, horizon]) for horizon in HORIZONS),
        )
        for (optimizer, name), pair in pairs.items()
    )
    return Table(
        name="exponents",
        title="Exponents of the optimal learning rate by horizon",
        caption=(
            "Exponent of the optimal global learning rate against width, for a fixed number of steps and for 20 tokens "
            "per parameter, and by how much it is smaller for the latter."
        ),
        columns=(
            "optimizer",
            "parameterization",
            "fixed steps",
            "compute-optimal",
            "difference",
            "paper: fixed steps",
            "paper: compute-optimal",
        ),
        rows=rows,
        paper=frozenset({5, 6}),
    )


def _negated(estimate: Estimate) -> Estimate:
    return Estimate(value=-estimate.value, low=-estimate.high, high=-estimate.low)


def _paper_difference(optimizer: str, name: str) -> str:
    fixed, longer = (signed(EXPONENTS[optimizer, name, horizon]) for horizon in HORIZONS)
    return f"{fixed} with fixed steps, {longer} compute-optimal"


def _notes(fits: list[GroupFit]) -> tuple[str, ...]:
    steps = [fit.spec["steps"] for fit in fits if fit.names["horizon"] == "fixed"]
    if not steps:
        return ()
    return (
        f"The fixed horizon is {steps[0]} steps, the warm-up {fits[0].spec['warmup']} for both; the paper's are 50,000 "
        "and 1,000. Where a compute-optimal training is shorter than the warm-up, its rate rises until the end.",
    )


EXPERIMENT = Experiment(
    name="horizon",
    title="Does the exponent depend on how long one trains?",
    claim=(
        "With a compute-optimal horizon the exponent of the optimal learning rate is smaller than with fixed steps for "
        'every optimizer and parameterization, by 0.46 in the median ("Fixed Step vs Compute Optimal experiments", '
        "appendix)."
    ),
    sizes=_SIZES,
    plan=plan,
    read=read,
)
