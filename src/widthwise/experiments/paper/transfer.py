"""Transfer of the learning rate over width ("Per-layer Learning Rates", §4.2, and its additional results).

Sweeps of the base learning rate with rates per layer for full alignment, for no alignment, and with one global rate.
The paper compares full with no alignment with its optimal constants; here constants are the default, so that nothing
has to be tuned first, except at the paper's own scale. On a GPU there are both, and four optimizers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import difference
from widthwise.experiments.paper.values import EXPONENTS, FULL_ALIGNMENT, PAPER, PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import TUNED
from widthwise.report import showing
from widthwise.report.exhibits import Table, present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called, headed, nested, select, signed, slug, stated, with_interval
from widthwise.study.fits import GroupFit
from widthwise.study.setting import DEFAULT, Setting
from widthwise.sweeps.settings import settings
from widthwise.theory import Aligned, Global

OPTIMIZERS = ("adam", "sgd", "adam_ps", "adafactor")
GLOBAL, FULL, NONE = RATES = (Global(), Aligned("full"), Aligned("none"))
WIDEST = 2048
"""The largest width on a GPU."""
NOTES = (
    "The paper's exponents for full and for no alignment were measured with its optimal constants, at 50,000 steps on "
    "C4 and up to 26.8 B parameters; sizes, data and constants are different here.",
)


def settings_at(scale: Scale) -> list[Setting]:
    """Return every parameterization with every kind of rates; on a GPU, with more optimizers and constants."""
    if scale == "gpu":
        axes = {"optimizer": OPTIMIZERS, "constants": (DEFAULT, TUNED), "parameterization": PARAMETERIZATIONS}
        return list(settings(**axes, rates=RATES))
    optimal = PAPER if scale == "paper" else DEFAULT
    return [
        Setting(parameterization=name, rates=rates, constants=DEFAULT if rates == GLOBAL else optimal)
        for name in PARAMETERIZATIONS
        for rates in RATES
    ]


def size_of(size: Size, setting: Setting) -> Size:
    """Return what a setting is trained at: on a GPU, Adam with default constants at one more width."""
    wider = size.scale == "gpu" and setting.optimizer == "adam" and setting.constants == DEFAULT
    return replace(size, widths=(*size.widths, WIDEST)) if wider else size


def read(results: Results) -> Reading:
    """Compare the exponents of the three kinds of rates."""
    fits = results.of(settings_at(results.scale))
    # What all settings share is in no heading.
    several = [name for name in ("optimizer", "constants") if len({getattr(one, name) for one in fits}) > 1]
    panels = "rates" if len({one.parameterization for one in fits}) == 1 else "parameterization"
    figures: dict[tuple[str, ...], dict[Setting, GroupFit]] = {}
    for setting, fit in fits.items():
        kind = setting.parameterization if panels == "rates" else setting.rates.name
        figures.setdefault((kind, *(getattr(setting, name) for name in several)), {})[setting] = fit
    rows = headed(fits, *several, "parameterization", "rates")
    return Reading(
        findings=tuple(_findings(fits)),
        exhibits=present(
            *([_grid(fits)] if several else []),
            *(
                showing.transfers(slug("sweeps", *kind), called(*_titled(kind)), headed(some, panels), _paper)
                for kind, some in figures.items()
            ),
            showing.exponents(rows, _paper),
            *(
                showing.loss_against_size(
                    nested(select(fits, optimizer=optimizer), "parameterization", ("rates", *several[1:])),
                    f"Best eval loss against size, {called(optimizer)}",
                    name=slug("loss-against-size", *([optimizer] if several else [])),
                )
                for optimizer in dict.fromkeys(setting.optimizer for setting in fits)
            ),
            showing.sensitivity(rows),
        ),
        notes=NOTES,
    )


def _titled(kind: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in the title of a figure: the optimizer first, which is Adam where there is no other."""
    first, *others = kind
    return (*others, first) if others else ("adam", first)


def _grid(fits: Mapping[Setting, GroupFit]) -> Table:
    """Show all exponents at a glance: a row for each optimizer and parameterization, a column for each setting."""
    columns = dict.fromkeys((setting.rates, setting.constants) for setting in fits)
    rows = dict.fromkeys((setting.optimizer, setting.parameterization) for setting in fits)
    exponents = {
        (one.optimizer, one.parameterization, one.rates, one.constants): with_interval(fit.transfer.law.exponent)
        for one, fit in fits.items()
    }
    return Table.of(
        "grid",
        "Exponents at a glance",
        "Exponent of the optimal base learning rate against width with its 95 % interval, by rates and constants. The "
        "paper's are for a global rate with default constants.",
        [
            {
                "optimizer": called(optimizer),
                "parameterization": called(name),
                **{called(rates.name, of): exponents.get((optimizer, name, rates, of), "–") for rates, of in columns},
                "paper: global rate": signed(EXPONENTS.get((optimizer, name, "fixed"), math.nan)),
            }
            for optimizer, name in rows
        ],
    )


def _findings(fits: Mapping[Setting, GroupFit]) -> Iterator[Finding]:
    """Judge the claims, which are about Adam: with the constants that the paper has, and with others."""
    exponents = {setting: fit.transfer.law.exponent for setting, fit in fits.items()}
    constants = dict.fromkeys(setting.constants for setting in fits)
    for setting, full in exponents.items():
        if setting.optimizer != "adam" or setting.rates != FULL:
            continue
        name = setting.parameterization
        of = called(name, "adam", *([setting.constants] if len(constants) > 1 else []))
        yield Finding(
            claim="exponent near zero for full alignment",
            of=of,
            verdict=Judgement.near_zero(full),
            measured=stated(full),
            paper=signed(FULL_ALIGNMENT[name]),
        )
        one_rate = signed(EXPONENTS["adam", name, "fixed"])
        without = "slightly above 0" if name == "mean_field" else "−0.69 to −0.58"
        for claim, rates, paper in (
            ("exponent lower with one global rate than with full alignment", GLOBAL, one_rate),
            ("exponent lower for no alignment than for full alignment", NONE, without),
        ):
            # At the paper's scale, a global rate has default constants and the others do not.
            alike = replace(setting, rates=rates), replace(setting, rates=rates, constants=DEFAULT)
            if other := next((exponents[one] for one in alike if one in exponents), None):
                apart = difference(other, full)
                measured = stated(apart, f"{with_interval(other)}, apart by {{}}")
                verdict = Judgement.below_zero(apart)
                yield Finding(claim=claim, of=of, verdict=verdict, measured=measured, paper=paper)


def _paper(setting: Setting) -> float | None:
    if setting.rates == FULL:
        return FULL_ALIGNMENT[setting.parameterization] if setting.optimizer == "adam" else None
    if setting.rates == GLOBAL and setting.constants == DEFAULT:
        return EXPONENTS.get((setting.optimizer, setting.parameterization, "fixed"))
    return None


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
        "gpu": replace(SIZES["gpu"], seeds=(0, 1), loss_seeds=()),  # exponents are compared, and no losses
        "smoke": replace(SIZES["smoke"], parameterizations=PARAMETERIZATIONS),
        "cpu": replace(SIZES["cpu"].at_widths(32, 64, 128, 256, batch=8, steps=300, warmup=30), precision=0.1),
    },
    settings=settings_at,
    size_of=size_of,
    read=read,
)
