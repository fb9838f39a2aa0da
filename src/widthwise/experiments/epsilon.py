"""Epsilon underflow ("Epsilon Underflow in Adaptive Optimizers", §4.3, and its additional experiments).

Adam with rates for full alignment and optimal constants: constant epsilons and epsilons per layer, three mitigations
against a baseline, and the columns of the table of eval losses with epsilons per layer. Below the paper's own scale all
epsilons are larger than the paper's, so that they meet the gradients of smaller models (`epsilon_kinds`).
"""

from dataclasses import replace

from widthwise.experiments.epsilon_exhibits import OPTIMIZERS, exhibits
from widthwise.experiments.epsilon_findings import findings
from widthwise.experiments.epsilon_kinds import BASELINE, FACTORS, PART, Groups, baseline, mitigations, tried
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.paper_values import PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import TUNED, Search, Stage, optimal, tunings

_SIZES: dict[Scale, Size] = {
    "smoke": replace(
        SIZES["smoke"], starts={**SIZES["smoke"].starts, "adam": 2**-3.5, "adam_atan2": 2**-3.5}, octaves=1.5
    ),
    "cpu": replace(SIZES["cpu"].at_widths(32, 64, 128), trials=32),
    "gpu": replace(SIZES["gpu"], widths=(128, 256, 512), more_seeds=()),
    "paper": replace(SIZES["paper"], widths=SIZES["paper"].widths[-6:]),
}


def plan(size: Size) -> tuple[Stage, ...]:
    """Tune constants where the paper's do not apply, and search the learning rate with every kind of epsilon."""
    scale = size.scale
    names = ("standard", "mean_field") if scale == "smoke" else PARAMETERIZATIONS
    constants = optimal(scale)
    atan2, kinds = mitigations(scale)[-1], [kind for kinds in tried(scale) for kind in kinds]
    in_table = [baseline(scale), mitigations(scale)[1]]
    wanted = [
        *(("adam", "full", kind) for kind in kinds),
        ("adam_atan2", "full", atan2),
        *(("adam", "none", kind) for kind in in_table),
        *(("adam_ps", setting, kind) for setting in ("full", "none") for kind in in_table),
    ]
    searches = tuple(
        Search(part=PART, sweep=sweep)
        for optimizer, setting, kind in wanted
        for sweep in size.sweeps(
            optimizer,
            changes={"epsilon": kind.epsilon, "epsilon_per_parameter": kind.per_layer},
            parameterizations=names,
            settings=(setting,),
            constants=(constants,),
        )
    )
    return (*(tunings(size, OPTIMIZERS, names) if constants == TUNED else ()), *searches)


def read(results: Results) -> Reading:
    """Compare epsilons."""
    groups = Groups(results)
    if not groups:
        return Reading(findings=(), exhibits=())
    return Reading(findings=findings(groups), exhibits=exhibits(groups, results), notes=_notes(results.scale))


def _notes(scale: Scale) -> tuple[str, ...]:
    if FACTORS[scale] == 1:
        return ()
    return (
        f"Every epsilon here is {FACTORS[scale]:.0e} times the paper's: {baseline(scale).epsilon:.0e} stands for "
        f"{BASELINE:.0e}. Gradients of models this small never come near the paper's epsilons; with larger ones "
        "underflow is reached on purpose, in mean-field first, as the paper's largest models reach it.",
        "Epsilons too small to prevent numerical instability, as 1e-30 in the paper's largest model, are not reached.",
    )


EXPERIMENT = Experiment(
    name="epsilon",
    title="When does epsilon get in the way?",
    claim=(
        "Gradients shrink with width until a constant epsilon dominates them, first in mean-field. A smaller constant, "
        "epsilons per layer and Adam-atan2 improve NTK and mean-field alike, leave standard and muP as they are, and "
        "make equivalent parameterizations perform alike (§4.3)."
    ),
    sizes=_SIZES,
    plan=plan,
    read=read,
)
