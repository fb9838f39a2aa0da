"""The paper's own numbers, as data to show beside ours, and its optimal constants, which a sweep can train with.

Constants: "Optimal per-layer learning rate multipliers" (appendix). They were found at the base width, where all
alignment assumptions prescribe the same rates, so one row serves every setting. They belong to the paper's model, data
and base width of 1024; elsewhere they are a starting point, not an optimum.

Exponents: "Fixed Step vs Compute Optimal experiments" (appendix) and §4.2. Eval losses: the table of all settings at
the largest size, 26.8 B parameters (appendix). For SGD with one global rate in mean-field, the table in the main text
has 4.092 where that table has 4.131.
"""

from types import MappingProxyType

from widthwise.parameterize import Constants
from widthwise.report.showing import percent
from widthwise.study import Study
from widthwise.study.setting import DEFAULT, Setting
from widthwise.sweeps import constants

PAPER = "paper"
"""The name of the paper's constants in a sweep."""
PARAMETERIZATIONS = ("standard", "ntk", "mup", "mean_field")

_CONSTANTS = """
sgd        standard      10.426   5.404   0.092
sgd        ntk            0.034  53.176   0.232
sgd        mup         1398.861   5.532   0.020
sgd        mean_field     1.325   6.506   0.504
adam       standard       5.357   1.133   2.596
adam       ntk            0.144   0.886   2.095
adam       mup            5.303   1.258  11.723
adam       mean_field     0.351   0.939   2.814
adam_ps    standard       2.598   1.845   0.838
adam_ps    ntk            1.224   0.881   0.591
adam_ps    mup            0.503   0.794   0.914
adam_ps    mean_field     2.339   1.060   0.516
adafactor  standard       0.918   1.048   0.703
adafactor  ntk            0.837   0.955   0.765
adafactor  mup            0.784   1.170   0.668
adafactor  mean_field     1.879   0.928   0.646
"""

PAPER_CONSTANTS = MappingProxyType(
    {
        (optimizer, parameterization): Constants(
            embedding=float(embedding), hidden=float(hidden), readout=float(readout)
        )
        for optimizer, parameterization, embedding, hidden, readout in map(str.split, _CONSTANTS.strip().splitlines())
    }
)
"""The optimal constants, by optimizer and parameterization."""

_GLOBAL = """
sgd        -0.38  0.56 -0.17  0.31   -1.27  0.04 -0.85 -0.41
adam       -0.95 -0.66 -1.09 -0.16   -1.18 -0.67 -1.38 -0.45
adafactor  -0.12 -0.10 -0.15 -0.09   -0.55 -0.52 -0.66 -0.57
"""

EXPONENTS = MappingProxyType(
    {
        (optimizer, parameterization, horizon): float(numbers[4 * (horizon == "compute_optimal") + place])
        for optimizer, *numbers in map(str.split, _GLOBAL.strip().splitlines())
        for horizon in ("fixed", "compute_optimal")
        for place, parameterization in enumerate(PARAMETERIZATIONS)
    }
)
"""Exponents of the optimal learning rate with one global rate and default constants, by horizon."""

FULL_ALIGNMENT = MappingProxyType({"standard": -0.05, "ntk": -0.02, "mup": -0.06, "mean_field": 0.26})
"""Exponents with Adam, rates per layer for full alignment and optimal constants, before epsilon was fixed."""

MEDIAN_DIFFERENCE = 0.46
"""The median difference by which exponents are smaller with a compute-optimal horizon."""

SETTINGS = (
    "global + default",
    "global + optimal",
    "full + default",
    "full + optimal",
    "none + optimal",
    "full + optimal + per-layer epsilon",
    "none + optimal + per-layer epsilon",
)
"""The columns of the table of eval losses."""

_LOSSES = """
sgd      standard    3.657 3.312 3.510 3.385 3.318
sgd      ntk         3.732 3.210 3.627 3.313 3.324
sgd      mup         4.224 3.810 4.184 3.809 4.222
sgd      mean_field  4.131 4.092 4.319 4.092 3.898
adam     standard    2.625 2.590 2.576 2.572 2.575 2.573 2.576
adam     ntk         2.592 2.584 2.615 2.591 2.581 2.576 2.577
adam     mup         2.727 2.614 2.646 2.599 2.590 2.601 2.590
adam     mean_field  2.638 2.649 2.630 2.633 2.638 2.590 2.583
adam_ps  standard    2.580 2.577 2.613 2.675 2.577 2.678 2.576
adam_ps  ntk         2.570 2.566 2.623 2.667 2.566 2.654 2.554
adam_ps  mup         2.574 2.575 2.655 2.606 2.575 2.611 2.574
adam_ps  mean_field  2.624 2.623 2.640 2.772 2.623 2.730 2.602
"""

EVAL_LOSSES = MappingProxyType(
    {
        (optimizer, parameterization, setting): float(loss)
        for optimizer, parameterization, *losses in map(str.split, _LOSSES.strip().splitlines())
        for setting, loss in zip(SETTINGS, losses, strict=False)
    }
)
"""Best eval losses at 26.8 B parameters, by optimizer, parameterization and setting."""

ARCTAN_CONSTANTS = MappingProxyType(
    {1: (1.0, 1.27), 2: (2.0, 2.16), 4: (4.0, 4.08), 8: (8.0, 8.04), 16: (16.0, 16.02), 32: (32.0, 32.01)}
)
"""Constants a for scaling the arctangent, by b: where m is far smaller than √v, and where they are of equal size."""


def paper_constants(optimizer: str, parameterization: str) -> Constants:
    """Return the paper's constants; Adam-atan2 has no row and uses Adam's, as in the paper.

    >>> paper_constants("adam", "mup")
    Constants(embedding=5.303, hidden=1.258, readout=11.723)
    """
    for tuned_for in constants.tuned_for(optimizer):
        if (tuned_for, parameterization) in PAPER_CONSTANTS:
            return PAPER_CONSTANTS[tuned_for, parameterization]
    optimizers, parameterizations = (", ".join(dict.fromkeys(names)) for names in zip(*PAPER_CONSTANTS, strict=True))
    raise ValueError(
        f"the paper has no constants for {optimizer!r} with {parameterization!r}: "
        f"expected one of {optimizers}, adam_atan2 with one of {parameterizations}"
    )


def look_up(study: Study | None, name: str, optimizer: str, parameterization: str) -> Constants:
    """Return the constants of a name: the paper's, all 1, or what was tuned in the study."""
    if name == PAPER:
        return paper_constants(optimizer, parameterization)
    return constants.look_up(study, name, optimizer, parameterization)


def cell(setting: Setting) -> tuple[str, str, str]:
    """Return where the table of eval losses has a setting: by optimizer, parameterization and column.

    >>> cell(Setting(parameterization="mup", constants="tuned", epsilon_per_parameter=True))
    ('adam', 'mup', 'full + optimal + per-layer epsilon')
    """
    constants = "default" if setting.constants == DEFAULT else "optimal"
    epsilon = " + per-layer epsilon" if setting.epsilon_per_parameter else ""
    return setting.optimizer, setting.parameterization, f"{setting.rates.name} + {constants}{epsilon}"


def losses_of(before: tuple[str, str, str], after: tuple[str, str, str]) -> str:
    """Write how the paper's eval losses change from one cell to another.

    >>> losses_of(("adam", "mup", "global + default"), ("adam", "mup", "full + default"))
    '−2.97 %, from 2.727 to 2.646 at 26.8 B'
    """
    old, new = EVAL_LOSSES[before], EVAL_LOSSES[after]
    return f"{percent(new / old - 1)}, from {old:.3f} to {new:.3f} at 26.8 B"
