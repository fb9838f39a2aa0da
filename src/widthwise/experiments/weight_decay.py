"""Weight decay ("Weight Decay Experiments", appendix): Adam, rates for full alignment, default constants.

The paper's independent decay of 1e-4 takes effect over its 50,000 steps: in all, weights are multiplied by about
e^−2.5. In a training of some hundred steps it does next to nothing. So a shorter training is also tried with a decay
that does as much in all, 5 / steps; the two are the same at the paper's scale.
"""

from widthwise.experiments.comparing import improves
from widthwise.experiments.exhibits import AnyExhibit
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding, difference, near_zero
from widthwise.experiments.paper_values import PARAMETERIZATIONS
from widthwise.experiments.results import Results, pick
from widthwise.experiments.showing import (
    BEST_LOSSES,
    SWEEPS,
    called,
    exponents,
    loss_against_size,
    stated,
    transfers,
)
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import Search, Stage
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.fits import GroupFit

PART = "rates"
DECAY = 1e-4
"""The paper's."""
IN_ALL = 5.0
"""What the paper's decay adds up to over its 50,000 steps."""
_SIZES: dict[Scale, Size] = {**SIZES, "cpu": SIZES["cpu"].at_widths(32, 64, 128)}


def decays(size: Size) -> tuple[float, ...]:
    """Give the decays to train with: none, the paper's, and one that does as much in so many steps."""
    return tuple(dict.fromkeys((0.0, DECAY, IN_ALL / size.base.steps)))


def plan(size: Size) -> tuple[Stage, ...]:
    """Search the learning rate of Adam in every parameterization, with and without decay."""
    names = ("standard", "mup") if size.scale == "smoke" else PARAMETERIZATIONS
    return tuple(
        Search(part=PART, sweep=sweep)
        for sweep in size.sweeps(
            "adam", parameterizations=names, settings=("full",), constants=(DEFAULT,), weight_decays=decays(size)
        )
    )


def read(results: Results) -> Reading:
    """Compare losses and exponents with decay to those without."""
    fits = results.fits(PART)
    tried = sorted({fit.spec["weight_decay"] for fit in fits})
    findings: list[Finding] = []
    for name in PARAMETERIZATIONS:
        without = pick(fits, parameterization=name, weight_decay=0.0)
        for decay in tried[1:]:
            findings += _findings(name, decay, pick(fits, parameterization=name, weight_decay=decay), without)
    notes = tuple(
        f"In {fits[0].spec['steps']} steps a decay of {DECAY:g} does next to nothing; {decay:.3g} does as much in all "
        "as the paper's does in 50,000."
        for decay in tried
        if decay > DECAY
    )
    return Reading(findings=tuple(findings), exhibits=tuple(_exhibits(fits, tried)), notes=notes)


def _findings(name: str, decay: float, fit: GroupFit | None, without: GroupFit | None) -> list[Finding]:
    of = f"{called(name, 'adam')}, decay {decay:.3g}"
    found = improves("weight decay improves the eval loss", of, fit, without)
    if fit is not None and without is not None:
        apart = difference(fit.transfer.law.exponent, without.transfer.law.exponent)
        found.append(
            Finding(
                claim="the learning rate scales alike with and without weight decay",
                of=of,
                verdict=near_zero(apart),
                measured=stated(apart, "exponents apart by {}"),
            )
        )
    return found


def _exhibits(fits: list[GroupFit], tried: list[float]) -> list[AnyExhibit]:
    if not fits:
        return []
    by_decay = {
        decay: {called(fit.names["parameterization"]): fit for fit in fits if fit.spec["weight_decay"] == decay}
        for decay in tried
    }
    by_name = {
        called(name): {_written(fit.spec["weight_decay"]): fit for fit in fits if fit.names["parameterization"] == name}
        for name in PARAMETERIZATIONS
    }
    rows = {f"{called(fit.names['parameterization'])}, {_written(fit.spec['weight_decay'])}": fit for fit in fits}
    return [
        loss_against_size(
            "loss-against-size",
            "Best eval loss with and without weight decay",
            BEST_LOSSES,
            {heading: groups for heading, groups in by_name.items() if groups},
        ),
        *(
            transfers(f"sweeps-{place}", f"Adam, full alignment, {_written(decay)}", SWEEPS, panels)
            for place, (decay, panels) in enumerate(by_decay.items(), start=1)
        ),
        exponents("exponents", "Exponents of the optimal learning rate", rows),
    ]


def _written(decay: float) -> str:
    return f"decay {decay:.3g}" if decay else "no decay"


EXPERIMENT = Experiment(
    name="weight-decay",
    title="Does weight decay change how the learning rate scales?",
    claim=(
        "Independent weight decay of 1e-4 improves the eval loss of Adam in every parameterization and leaves the "
        'scaling of the learning rate as it is ("Weight Decay Experiments", appendix).'
    ),
    sizes=_SIZES,
    plan=plan,
    read=read,
)
