"""Transfer of the learning rate over width ("Per-layer Learning Rates", §4.2, and its additional results).

Sweeps of the base learning rate with rates per layer for full alignment, for no alignment, and with one global rate.
The paper compares full with no alignment with its optimal constants; here constants are the default, so that nothing
has to be tuned first, except at the paper's own scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from widthwise.experiments.exhibits import AnyExhibit, Transfers
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding, below_zero, difference, near_zero
from widthwise.experiments.paper_constants import PAPER
from widthwise.experiments.paper_values import EXPONENTS, FULL_ALIGNMENT, PARAMETERIZATIONS
from widthwise.experiments.results import Results, pick
from widthwise.experiments.showing import (
    BEST_LOSSES,
    SWEEPS,
    called,
    exponents,
    loss_against_size,
    sensitivity,
    signed,
    stated,
    transfers,
    with_interval,
)
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import Search, Stage
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.fits import GroupFit

PART = "rates"
SETTINGS = ("global", "full", "none")
NO_ALIGNMENT = "between −0.58 and −0.69"
"""What the paper measured with no alignment and optimal constants in all but mean-field."""
_SIZES: dict[Scale, Size] = {
    **SIZES,
    # Student's t is 12.7 with three widths and 3.2 with five; small widths cost little.
    "cpu": replace(SIZES["cpu"], widths=(32, 64, 96, 128, 256)),
}
NOTES = (
    "The paper's exponents for full and for no alignment were measured with its optimal constants, at 50,000 steps on "
    "C4 and up to 26.8 B parameters; those measured here are of other sizes, data and constants.",
)


def plan(size: Size) -> tuple[Stage, ...]:
    """Search the learning rate of Adam in every parameterization and setting."""
    by_constants = {PAPER: ("full", "none"), DEFAULT: ("global",)} if size.scale == "paper" else {DEFAULT: SETTINGS}
    return tuple(
        Search(part=PART, sweep=sweep)
        for constants, settings in by_constants.items()
        for sweep in size.sweeps("adam", parameterizations=PARAMETERIZATIONS, settings=settings, constants=(constants,))
    )


def read(results: Results) -> Reading:
    """Compare the exponents of the settings."""
    fits = results.fits(PART)
    findings: list[Finding] = []
    exhibits: list[AnyExhibit] = []
    known = {(fit.names["setting"], fit.names["parameterization"]): fit for fit in fits}
    trained = [name for name in PARAMETERIZATIONS if any(name == of for _, of in known)]
    if len(trained) == 1:  # then what is compared are the settings
        exhibits.append(_sweeps(trained[0], known, [(setting, trained[0]) for setting in SETTINGS]))
    else:
        settings = [setting for setting in SETTINGS if any(setting == of for of, _ in known)]
        exhibits += [_sweeps(setting, known, [(setting, name) for name in trained]) for setting in settings]
    for name in PARAMETERIZATIONS:
        findings += _findings(name, *(pick(fits, parameterization=name, setting=setting) for setting in SETTINGS))
    groups = {called(fit.names["parameterization"], fit.names["setting"]): fit for fit in fits}
    if groups:
        values = {called(name, setting): value for setting in SETTINGS for name, value in _paper(setting).items()}
        panels = {
            called(name): {called(fit.names["setting"]): fit for fit in fits if fit.names["parameterization"] == name}
            for name in PARAMETERIZATIONS
        }
        exhibits += [
            exponents("exponents", "Exponents of the optimal learning rate", groups, values),
            loss_against_size(
                "loss-against-size",
                "Best eval loss against size",
                BEST_LOSSES,
                {heading: fits for heading, fits in panels.items() if fits},
            ),
            sensitivity("sensitivity", groups),
        ]
    return Reading(findings=tuple(findings), exhibits=tuple(exhibits), notes=NOTES)


def _sweeps(of: str, known: Mapping[tuple[str, str], GroupFit], pairs: Sequence[tuple[str, str]]) -> Transfers:
    """Show sweeps of one setting or of one parameterization; the panels say the other."""

    def panel(setting: str, name: str) -> str:
        return called(name if of == setting else setting)

    shown = {panel(*pair): known[pair] for pair in pairs if pair in known}
    paper = {panel(*pair): _paper(pair[0])[pair[1]] for pair in pairs if pair[1] in _paper(pair[0])}
    return transfers(f"sweeps-{of.replace('_', '-')}", f"Adam, {called(of)}", SWEEPS, shown, paper)


def _findings(name: str, *fits: GroupFit | None) -> list[Finding]:
    found: list[Finding] = []
    one, full, none = fits
    of = called(name, "adam")
    if full is not None:
        exponent = full.transfer.law.exponent
        found.append(
            Finding(
                claim="exponent near zero for full alignment",
                of=of,
                verdict=near_zero(exponent),
                measured=stated(exponent),
                paper=signed(FULL_ALIGNMENT[name]),
            )
        )
    without = "slightly above 0" if name == "mean_field" else NO_ALIGNMENT
    for claim, other, paper in (
        ("exponent lower with one global rate than with full alignment", one, signed(EXPONENTS["adam", name, "fixed"])),
        ("exponent lower for no alignment than for full alignment", none, without),
    ):
        if full is None or other is None:
            continue
        apart = difference(other.transfer.law.exponent, full.transfer.law.exponent)
        found.append(
            Finding(
                claim=claim,
                of=of,
                verdict=below_zero(apart),
                measured=stated(apart, f"{with_interval(other.transfer.law.exponent)}, apart by {{}}"),
                paper=paper,
            )
        )
    return found


def _paper(setting: str) -> dict[str, float]:
    if setting == "full":
        return dict(FULL_ALIGNMENT)
    return {name: EXPONENTS["adam", name, "fixed"] for name in PARAMETERIZATIONS} if setting == "global" else {}


EXPERIMENT = Experiment(
    name="transfer",
    title="Does the learning rate transfer over width?",
    claim=(
        "With learning rates per layer for full alignment, the optimal base learning rate does not change with width "
        "in any parameterization (exponents near zero); with one global rate, and with the rates for no alignment, it "
        "falls as a power of the width (§4.2)."
    ),
    sizes=_SIZES,
    plan=plan,
    read=read,
)
