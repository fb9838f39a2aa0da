"""Adafactor against Adam + parameter scaling ("Adafactor and Adam + Parameter Scaling experiments", appendix).

The paper trained Adafactor only up to 4 B parameters. It shows figures and speaks of minor differences and similar
scaling; the thresholds for minor and similar are ours.
"""

from dataclasses import replace

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import alike, changes, difference, percent_interval
from widthwise.experiments.paper.values import PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import PAPER_WIDTHS, SIZES, Scale
from widthwise.experiments.stages import optimal
from widthwise.report import showing
from widthwise.report.exhibits import present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import headed, nested
from widthwise.study.fits import GroupFit
from widthwise.study.setting import DEFAULT, Setting
from widthwise.theory import Aligned, Global

NOTES = ("What counts as little and as alike is the choice of this experiment: the paper shows figures only.",)
MINOR = 0.02
"""The relative difference of eval losses that is called minor."""
SIMILAR = 0.01
"""How much that difference may change from the smallest to the largest width, if losses scale alike."""
LARGEST = 6144
"""The largest width of Adafactor in the paper: 4 B parameters."""


def settings_at(scale: Scale) -> list[Setting]:
    """Return both optimizers with a global rate, and with full alignment and optimal constants."""
    return [
        Setting(optimizer=optimizer, parameterization=name, rates=rates, constants=constants)
        for optimizer in ("adafactor", "adam_ps")
        for rates, constants in ((Global(), DEFAULT), (Aligned("full"), optimal(scale)))
        for name in PARAMETERIZATIONS
    ]


def read(results: Results) -> Reading:
    """Compare the two optimizers' losses, width by width."""
    fits = results.of(settings_at(results.scale))
    panels = nested(fits, ("parameterization", "rates"), "optimizer")
    return Reading(
        findings=tuple(
            finding for of, pair in panels.items() if len(pair) == 2 for finding in _findings(of, *pair.values())
        ),
        exhibits=present(
            showing.loss_against_size(panels, "Adafactor and Adam + parameter scaling"),
            showing.exponents(headed(fits, "optimizer", "parameterization", "rates")),
        ),
        notes=NOTES,
    )


def _findings(of: str, adafactor: GroupFit, adam_ps: GroupFit) -> list[Finding]:
    change = changes(adafactor, adam_ps)
    found = alike(f"losses differ little, by {100 * MINOR:g} % or less", of, adafactor, adam_ps, within=MINOR)
    if len(change) > 1:
        moved = difference(change[max(change)], change[min(change)])
        size = moved if moved.value >= 0 else -moved
        found.append(
            Finding(
                claim=f"losses scale alike: the difference moves by {100 * SIMILAR:g} % or less",
                of=of,
                verdict=Judgement.at_most(SIMILAR, size),
                measured=f"it moves by {percent_interval(moved)} from width {min(change)} to {max(change)}",
                losses_of=(adafactor.setting, adam_ps.setting),
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
    sizes={
        **SIZES,
        "cpu": SIZES["cpu"].at_widths(32, 64, 128),
        "paper": replace(SIZES["paper"], widths=tuple(width for width in PAPER_WIDTHS if width <= LARGEST)),
    },
    settings=settings_at,
    read=read,
)
