"""Fixed steps against compute-optimal training ("Fixed Step vs Compute Optimal experiments", appendix).

One global rate and default constants; SGD, Adam and Adafactor. A compute-optimal run sees 20 tokens for each parameter
outside the token embedding, so its cost grows with the fourth power of the width: `cpu` and `gpu` have narrow models of
their own. As in the paper, the fixed number of steps is about that of a compute-optimal model inside the range of
widths, and the warm-up is the same for all; where compute-optimal training is shorter than the warm-up, the rate rises
until the end.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import exponent_difference
from widthwise.experiments.paper.values import EXPONENTS, MEDIAN_DIFFERENCE, PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import PAPER_WIDTHS, SIZES
from widthwise.fit import Estimate
from widthwise.report import showing
from widthwise.report.exhibits import Table, present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called, headed, heading, select, signed, slug, stated, with_interval
from widthwise.study.fits import GroupFit
from widthwise.study.setting import Setting
from widthwise.sweeps.settings import settings
from widthwise.theory import Global

OPTIMIZERS = ("sgd", "adam", "adafactor")
HORIZONS = ("fixed", "compute_optimal")
LARGEST = 6144
"""The largest width that the paper trained compute-optimally."""
SETTINGS = settings(optimizer=OPTIMIZERS, parameterization=PARAMETERIZATIONS, rates=(Global(),), horizon=HORIZONS)


def read(results: Results) -> Reading:
    """Compare the exponents of the two horizons."""
    fits = results.of(SETTINGS)
    fixed = dict.fromkeys(replace(setting, horizon="fixed") for setting in fits)
    pairs = {setting: (results[setting], results[replace(setting, horizon="compute_optimal")]) for setting in fixed}
    apart = {one: exponent_difference(longer, short) for one, (short, longer) in pairs.items() if short and longer}
    findings = [
        Finding(
            claim="the exponent is smaller with a compute-optimal horizon",
            of=heading(setting, "parameterization", "optimizer"),
            verdict=Judgement.below_zero(estimate),
            measured=stated(-estimate, "smaller by {}"),
            paper="{} with fixed steps, {} compute-optimal".format(*_paper(setting)),
        )
        for setting, estimate in apart.items()
    ]
    sweeps = (
        showing.transfers(
            slug("sweeps", optimizer, horizon),
            called(optimizer, horizon),
            headed(select(fits, optimizer=optimizer, horizon=horizon), "parameterization"),
            lambda setting: EXPONENTS[setting.optimizer, setting.parameterization, setting.horizon],
        )
        for optimizer in OPTIMIZERS
        for horizon in HORIZONS
    )
    return Reading(
        findings=(*findings, _median(apart.values())) if fits else (),
        exhibits=present(
            Table.of(
                "exponents",
                "Exponents of the optimal learning rate by horizon",
                "Exponent of the optimal global learning rate against width, for a fixed number of steps and for 20 "
                "tokens per parameter, and by how much it is smaller for the latter.",
                [_row(setting, pair, apart.get(setting)) for setting, pair in pairs.items()],
            ),
            *sweeps,
        ),
        notes=tuple(
            f"The fixed horizon is {fit.spec['steps']} steps, the warm-up {fit.spec['warmup']} for both; the paper's "
            "are 50,000 and 1,000. Where compute-optimal training is shorter than the warm-up, its rate rises until "
            "the end."
            for fit in list(select(fits, horizon="fixed").values())[:1]
        ),
    )


def _median(apart: Iterable[Estimate]) -> Finding:
    """Judge the median difference, of those that are known."""
    known = [-estimate.value for estimate in apart if math.isfinite(estimate.value)]
    middle = median(known) if known else math.nan
    return Finding(
        claim="exponents are smaller with a compute-optimal horizon, in the median",
        of=f"{len(known)} of {len(OPTIMIZERS) * len(PARAMETERIZATIONS)} settings",
        verdict=Judgement.of(middle > 0, middle),
        measured=f"by {signed(middle)}, from {signed(min(known))} to {signed(max(known))}" if known else "",
        paper=f"by {MEDIAN_DIFFERENCE}, from 0.01 to 0.89",
    )


def _row(setting: Setting, pair: Sequence[GroupFit | None], apart: Estimate | None) -> dict[str, str]:
    fixed, longer = ("–" if fit is None else with_interval(fit.transfer.law.exponent) for fit in pair)
    fixed_in_paper, longer_in_paper = _paper(setting)
    return {
        "optimizer": called(setting.optimizer),
        "parameterization": called(setting.parameterization),
        "fixed steps": fixed,
        "compute-optimal": longer,
        "difference": "–" if apart is None else with_interval(-apart),
        "paper: fixed steps": fixed_in_paper,
        "paper: compute-optimal": longer_in_paper,
    }


def _paper(setting: Setting) -> list[str]:
    return [signed(EXPONENTS[setting.optimizer, setting.parameterization, horizon]) for horizon in HORIZONS]


EXPERIMENT = Experiment(
    name="horizon",
    title="Does the exponent depend on how long one trains?",
    claim=(
        "With a compute-optimal horizon the exponent of the optimal learning rate is smaller than with fixed steps for "
        'every optimizer and parameterization, by 0.46 in the median ("Fixed Step vs Compute Optimal experiments", '
        "appendix)."
    ),
    sizes={
        "smoke": replace(
            SIZES["smoke"].at_widths(8, 16, batch=32, context=32, steps=100, warmup=4),
            octaves=1.5,
            optimizers=("adam",),
        ),
        "cpu": SIZES["cpu"].at_widths(16, 32, 48, batch=32, context=64, steps=200, warmup=20),
        "gpu": replace(
            SIZES["gpu"].at_widths(64, 128, 192, 256, head_dim=32, batch=64, steps=1200, warmup=60),
            precision=0.1,
            loss_seeds=(),
            until_verdict=False,  # two exponents are compared, and one that clearly drifts would stop too early
        ),
        "paper": replace(SIZES["paper"], widths=tuple(width for width in PAPER_WIDTHS if width <= LARGEST)),
    },
    settings=lambda _: SETTINGS,
    read=read,
)
