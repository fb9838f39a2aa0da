"""Adafactor against Adam + parameter scaling ("Adafactor and Adam + Parameter Scaling experiments", appendix).

The paper ran Adafactor up to 4 B parameters only. It shows figures and speaks of minor differences and of similar
scaling; the fractions that are called minor and similar here are ours.
"""

from dataclasses import replace

from widthwise.experiments.comparing import alike, changes
from widthwise.experiments.exhibits import AnyExhibit
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding, Verdict
from widthwise.experiments.paper_values import PARAMETERIZATIONS
from widthwise.experiments.results import Results, pick
from widthwise.experiments.showing import BEST_LOSSES, called, exponents, loss_against_size, percent
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import TUNED, Search, Stage, optimal, tunings
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.fits import GroupFit

PART = "rates"
OPTIMIZERS = ("adafactor", "adam_ps")
SETTINGS = ("global", "full")
"""With default and with optimal constants."""
NOTES = ("What counts as little and as alike is a choice of this experiment: the paper shows figures.",)
MINOR = 0.02
"""The relative difference of eval losses that is called minor."""
SIMILAR = 0.01
"""How much that difference may change from the smallest to the largest width, if losses scale alike."""
LARGEST = 6144
"""The largest width of Adafactor in the paper: 4 B parameters."""
_SIZES: dict[Scale, Size] = {
    **SIZES,
    "cpu": SIZES["cpu"].at_widths(32, 64, 128),
    "paper": replace(SIZES["paper"], widths=tuple(width for width in SIZES["paper"].widths if width <= LARGEST)),
}


def plan(size: Size) -> tuple[Stage, ...]:
    """Tune constants where the paper's do not apply, and search the learning rates of both optimizers."""
    names = ("standard", "mup") if size.scale == "smoke" else PARAMETERIZATIONS
    constants = optimal(size.scale)
    searches = tuple(
        Search(part=PART, sweep=sweep)
        for optimizer in OPTIMIZERS
        for setting, name in (("global", DEFAULT), ("full", constants))
        for sweep in size.sweeps(optimizer, parameterizations=names, settings=(setting,), constants=(name,))
    )
    return (*(tunings(size, OPTIMIZERS, names) if constants == TUNED else ()), *searches)


def read(results: Results) -> Reading:
    """Compare the two optimizers' losses, width by width."""
    fits = results.fits(PART)
    findings: list[Finding] = []
    panels: dict[str, dict[str, GroupFit]] = {}
    for setting in SETTINGS:
        for name in PARAMETERIZATIONS:
            pair = {
                called(optimizer): fit
                for optimizer in OPTIMIZERS
                if (fit := pick(fits, optimizer=optimizer, parameterization=name, setting=setting))
            }
            if pair:
                panels[called(name, setting)] = pair
            if len(pair) == len(OPTIMIZERS):
                findings += _findings(called(name, setting), *pair.values())
    groups = {called(fit.names["optimizer"], fit.names["parameterization"], fit.names["setting"]): fit for fit in fits}
    exhibits: tuple[AnyExhibit, ...] = ()
    if groups:
        exhibits = (
            loss_against_size("loss-against-size", "Adafactor and Adam + parameter scaling", BEST_LOSSES, panels),
            exponents("exponents", "Exponents of the optimal learning rate", groups),
        )
    return Reading(findings=tuple(findings), exhibits=exhibits, notes=NOTES)


def _findings(of: str, adafactor: GroupFit, adam_ps: GroupFit) -> list[Finding]:
    change = changes(adafactor, adam_ps)
    found = alike(f"losses differ little, by {100 * MINOR:g} % or less", of, adafactor, adam_ps, within=MINOR)
    if len(change) > 1:
        moved = change[max(change)] - change[min(change)]
        found.append(
            Finding(
                claim=f"losses scale alike: the difference moves by {100 * SIMILAR:g} % or less",
                of=of,
                verdict=Verdict.of(abs(moved) <= SIMILAR),
                measured=f"it moves by {percent(moved)} from width {min(change)} to {max(change)}",
            )
        )
    return found


EXPERIMENT = Experiment(
    name="adafactor",
    title="Is Adafactor in the same regime as Adam + parameter scaling?",
    claim=(
        "Adafactor and Adam + parameter scaling differ little in eval loss and scale alike with size, with one global "
        'rate and with rates for full alignment ("Adafactor and Adam + Parameter Scaling experiments", appendix).'
    ),
    sizes=_SIZES,
    plan=plan,
    read=read,
)
