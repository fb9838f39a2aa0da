"""Weight decay ("Weight Decay Experiments", appendix): Adam, rates for full alignment, default constants.

Over the paper's 50,000 steps its independent decay of 1e-4 multiplies weights by about e^−2.5 in total. Over a few
hundred steps it has almost no effect, so shorter training also uses a decay with the same total effect, 5 / steps; the
two are the same at the paper's scale.
"""

from dataclasses import replace

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import exponent_difference, improves
from widthwise.experiments.paper.values import PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.report import showing
from widthwise.report.exhibits import present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import headed, heading, nested, stated
from widthwise.study.fits import GroupFit
from widthwise.study.setting import Setting
from widthwise.sweeps.settings import settings

DECAY = 1e-4
"""The paper's."""
IN_ALL = 5.0
"""The paper's decay times its 50,000 steps."""
_SIZES: dict[Scale, Size] = {
    **SIZES,
    "cpu": SIZES["cpu"].at_widths(32, 64, 128),
    # Two exponents are compared here, and one that clearly drifts would stop before it is precise.
    "gpu": replace(SIZES["gpu"], until_verdict=False),
}


def decays(scale: Scale) -> tuple[float, ...]:
    """Return the decays to train with: none, the paper's, and one with the same total effect in fewer steps."""
    return tuple(dict.fromkeys((0.0, DECAY, IN_ALL / _SIZES[scale].base.steps)))


def settings_at(scale: Scale) -> tuple[Setting, ...]:
    """Return every parameterization with every decay."""
    return settings(parameterization=PARAMETERIZATIONS, weight_decay=decays(scale))


def read(results: Results) -> Reading:
    """Compare losses and exponents with decay to those without."""
    fits = results.of(settings_at(results.scale))
    return Reading(
        findings=tuple(finding for setting, fit in fits.items() for finding in _findings(setting, fit, results)),
        exhibits=present(
            showing.loss_against_size(
                nested(fits, "parameterization", "weight_decay"), "Best eval loss with and without weight decay"
            ),
            *(
                showing.transfers(f"sweeps-{place}", f"Adam, full alignment, {decay}", panels)
                for place, (decay, panels) in enumerate(nested(fits, "weight_decay", "parameterization").items(), 1)
            ),
            showing.exponents(headed(fits, "parameterization", "weight_decay")),
        ),
        notes=tuple(
            f"In {fit.spec['steps']} steps a decay of {DECAY:g} has almost no effect; {setting.weight_decay:.3g} has "
            "the same total effect as the paper's in 50,000 steps."
            for setting, fit in list(fits.items())[-1:]
            if setting.weight_decay > DECAY
        ),
    )


def _findings(setting: Setting, fit: GroupFit, results: Results) -> list[Finding]:
    """Judge the claims about one decay."""
    without = results[replace(setting, weight_decay=0.0)]
    if not setting.weight_decay or without is None:
        return []
    of, apart = heading(setting, "parameterization", "optimizer", "weight_decay"), exponent_difference(fit, without)
    return [
        *improves("weight decay improves the eval loss", of, fit, without),
        Finding(
            claim="the learning rate scales alike with and without weight decay",
            of=of,
            verdict=Judgement.near_zero(apart),
            measured=stated(apart, "exponents apart by {}"),
        ),
    ]


EXPERIMENT = Experiment(
    name="weight-decay",
    title="Does weight decay change how the learning rate scales?",
    claim=(
        "Independent weight decay of 1e-4 improves the eval loss of Adam in every parameterization and leaves the "
        'scaling of the learning rate as it is ("Weight Decay Experiments", appendix).'
    ),
    sizes=_SIZES,
    settings=settings_at,
    read=read,
)
