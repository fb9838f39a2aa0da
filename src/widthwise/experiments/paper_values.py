"""The paper's own numbers, as data to put beside ours; nothing is computed from them.

Exponents: "Fixed Step vs Compute Optimal experiments" (appendix) and §4.2. Eval losses: the table of all
settings at the largest size, 26.8 B parameters (appendix); for SGD with one global rate in mean-field the table in the
main text has 4.092 in place of its 4.131.
"""

from types import MappingProxyType

PARAMETERIZATIONS = ("standard", "ntk", "mup", "mean_field")

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
"""How much smaller exponents are with a compute-optimal horizon, in the median."""

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
"""Constants a for scaling the arctangent, by b: where m is far smaller than √v, and where it is alike."""
