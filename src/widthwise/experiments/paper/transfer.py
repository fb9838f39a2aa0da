"""Transfer of the learning rate over width ("Per-layer Learning Rates", §4.2, and its additional results).

Sweeps of the base learning rate with rates per layer for full alignment, for no alignment, and with one global rate.
The paper compares full with no alignment with its optimal constants; here constants are the default, so that nothing
has to be tuned first, except at the paper's own scale.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import difference
from widthwise.experiments.paper.values import EXPONENTS, FULL_ALIGNMENT, PAPER, PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Scale
from widthwise.report import showing
from widthwise.report.exhibits import present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called, headed, nested, select, signed, slug, stated, with_interval
from widthwise.study.fits import GroupFit
from widthwise.study.setting import DEFAULT, Setting
from widthwise.theory import Aligned, Global

GLOBAL, FULL, NONE = RATES = (Global(), Aligned("full"), Aligned("none"))
NOTES = (
    "The paper's exponents for full and for no alignment were measured with its optimal constants, at 50,000 steps on "
    "C4 and up to 26.8 B parameters; sizes, data and constants are different here.",
)


def settings_at(scale: Scale) -> list[Setting]:
    """Return every parameterization with every kind of rates."""
    optimal = PAPER if scale == "paper" else DEFAULT
    return [
        Setting(parameterization=name, rates=rates, constants=DEFAULT if rates == GLOBAL else optimal)
        for name in PARAMETERIZATIONS
        for rates in RATES
    ]


def read(results: Results) -> Reading:
    """Compare the exponents of the three kinds of rates."""
    fits = results.of(settings_at(results.scale))
    trained = {setting.parameterization for setting in fits}
    if len(trained) == 1:  # then what is compared are the rates
        sweeps = {name: headed(fits, "rates") for name in trained}
    else:
        sweeps = {rates.name: headed(select(fits, rates=rates), "parameterization") for rates in RATES}
    rows = headed(fits, "parameterization", "rates")
    return Reading(
        findings=tuple(one for name in PARAMETERIZATIONS for one in _findings(select(fits, parameterization=name))),
        exhibits=present(
            *(showing.transfers(slug("sweeps", of), f"Adam, {called(of)}", sweeps[of], _paper) for of in sweeps),
            showing.exponents(rows, _paper),
            showing.loss_against_size(nested(fits, "parameterization", "rates")),
            showing.sensitivity(rows),
        ),
        notes=NOTES,
    )


def _findings(fits: Mapping[Setting, GroupFit]) -> Iterator[Finding]:
    """Judge the claims about one parameterization."""
    exponents = {setting.rates: fit.transfer.law.exponent for setting, fit in fits.items()}
    if FULL not in exponents:
        return
    full, name = exponents[FULL], next(iter(fits)).parameterization
    yield Finding(
        claim="exponent near zero for full alignment",
        of=called(name, "adam"),
        verdict=Judgement.near_zero(full),
        measured=stated(full),
        paper=signed(FULL_ALIGNMENT[name]),
    )
    one_rate = signed(EXPONENTS["adam", name, "fixed"])
    without = "slightly above 0" if name == "mean_field" else "between −0.58 and −0.69"
    for claim, rates, paper in (
        ("exponent lower with one global rate than with full alignment", GLOBAL, one_rate),
        ("exponent lower for no alignment than for full alignment", NONE, without),
    ):
        if rates in exponents:
            apart = difference(exponents[rates], full)
            measured = stated(apart, f"{with_interval(exponents[rates])}, apart by {{}}")
            verdict = Judgement.below_zero(apart)
            yield Finding(claim=claim, of=called(name, "adam"), verdict=verdict, measured=measured, paper=paper)


def _paper(setting: Setting) -> float | None:
    if setting.rates == FULL:
        return FULL_ALIGNMENT[setting.parameterization]
    return EXPONENTS["adam", setting.parameterization, "fixed"] if setting.rates == GLOBAL else None


EXPERIMENT = Experiment(
    name="transfer",
    title="Does the learning rate transfer over width?",
    claim=(
        "With learning rates per layer for full alignment, the optimal base learning rate does not change with width "
        "in any parameterization (exponents near zero); with one global rate, and with the rates for no alignment, it "
        "falls as a power of the width (§4.2)."
    ),
    sizes={
        **SIZES,
        "smoke": replace(SIZES["smoke"], parameterizations=PARAMETERIZATIONS),
        "cpu": replace(SIZES["cpu"].at_widths(32, 64, 128, 256, batch=8, steps=300, warmup=30), precision=0.1),
        "gpu": replace(SIZES["gpu"], precision=0.1),
    },
    settings=settings_at,
    read=read,
)
