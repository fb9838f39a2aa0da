"""The paper's own optimal constants ("Optimal per-layer learning rate multipliers", appendix), as data.

They were found at the base width, where all alignment assumptions prescribe the same rates: one row serves every
setting. They belong to the paper's model, data and base width of 1024; elsewhere they are a start, not an optimum.
"""

from types import MappingProxyType

from widthwise.parameterize import Constants
from widthwise.sweep import Study, constants

PAPER = "paper"
"""What they are called in a sweep."""

_TABLE = """
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
        for optimizer, parameterization, embedding, hidden, readout in map(str.split, _TABLE.strip().splitlines())
    }
)
"""The table, by optimizer and parameterization."""


def paper_constants(optimizer: str, parameterization: str) -> Constants:
    """Look up the constants for an optimizer and a parameterization.

    Adam-atan2 has no row: the paper ran it as Adam without epsilon, and so it gets Adam's.

    >>> paper_constants("adam", "mup")
    Constants(embedding=5.303, hidden=1.258, readout=11.723)
    """
    key = ("adam" if optimizer == "adam_atan2" else optimizer, parameterization)
    if key not in PAPER_CONSTANTS:
        optimizers, parameterizations = (
            ", ".join(dict.fromkeys(names)) for names in zip(*PAPER_CONSTANTS, strict=True)
        )
        raise ValueError(
            f"the paper has no constants for {optimizer!r} with {parameterization!r}: "
            f"expected one of {optimizers}, adam_atan2 with one of {parameterizations}"
        )
    return PAPER_CONSTANTS[key]


def look_up(study: Study | None, name: str, optimizer: str, parameterization: str) -> Constants:
    """Give the constants of a name: the paper's, all 1, or what was tuned in the study."""
    if name == PAPER:
        return paper_constants(optimizer, parameterization)
    return constants.look_up(study, name, optimizer, parameterization)
