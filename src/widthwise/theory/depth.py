"""Depth: exponents of the number L of residual blocks, next to those of the width n.

A stream passes through L blocks, and each adds its branch, multiplied by L^-α. At initialization branches are
independent, so their sum grows as √L. Updates of all blocks serve the same loss, so what they add to the stream grows
as L. Everything else follows from these two numbers, with α as the only choice: α = 1 is CompleteP, α = 1/2 is Tensor
Programs VI. docs/theory.md derives it.

A block has a fixed number of layers, so a factor in n and a factor in L never meet in one sum. The exponents of the
width theory hold at every depth, these hold at every width, and a parameter gets the product of both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from widthwise.theory.exact import HALF, exact
from widthwise.theory.families import Family, OptimizerFamily
from widthwise.theory.parameterization import Role

AT_INIT = HALF
"""The exponent of L in a sum over branches at initialization, which are independent."""
UPDATED = Fraction(1)
"""The exponent of L in a sum over the changes of branches, which agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRule:
    """What changes with depth: the multiplier of residual branches, and exponents of your own where given.

    All are negative exponents of L: 1 means L^-1. Those that are None follow from `branch` and the optimizer.

    Attributes:
        name: The name to print.
        branch: α; every residual branch is multiplied by L^-α.
        matrix_rate: The learning rate of matrices inside blocks.
        vector_rate: The learning rate of vectors inside blocks: scales of norms, biases.
        epsilon: Epsilon inside blocks.
        source: Where it was found.
    """

    name: str
    branch: Fraction
    matrix_rate: Fraction | None = None
    vector_rate: Fraction | None = None
    epsilon: Fraction | None = None
    source: str = "given"

    def __post_init__(self) -> None:
        object.__setattr__(self, "branch", exact(self.branch))
        for field in ("matrix_rate", "vector_rate", "epsilon"):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else exact(value))


COMPLETEP = DepthRule(name="completep", branch=Fraction(1), source="CompleteP (EleutherAI/nanoGPT-mup, completep)")
SQRT_DEPTH = DepthRule(name="sqrt", branch=HALF, source="Tensor Programs VI (arXiv 2310.02244)")
PLAIN_DEPTH = DepthRule(
    name="constant",
    branch=Fraction(0),
    matrix_rate=Fraction(0),
    vector_rate=Fraction(0),
    epsilon=Fraction(0),
    source="the plain model",
)

DEPTH_RULES: Mapping[str, DepthRule] = MappingProxyType(
    {rule.name: rule for rule in (COMPLETEP, SQRT_DEPTH, PLAIN_DEPTH)}
)
"""The rules by name; `constant` changes nothing."""


def read_depth_rule(rule: DepthRule | str) -> DepthRule:
    """Return a rule by name, or with the α that is given; or the rule itself.

    >>> read_depth_rule("3/4").branch
    Fraction(3, 4)
    """
    if isinstance(rule, DepthRule):
        return rule
    if rule in DEPTH_RULES:
        return DEPTH_RULES[rule]
    try:
        return DepthRule(name=rule.strip(), branch=exact(rule))
    except ValueError:
        expected = f"one of {', '.join(DEPTH_RULES)}, or the exponent of branches, such as 3/4"
        raise ValueError(f"depth_rule is {rule!r}: expected {expected}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthExponents:
    """What changes with depth, as negative exponents of L: the factor is m^-e, with m the depth over the base depth.

    They are for a model that multiplies its branches. Nothing outside of blocks changes.

    Attributes:
        branch: The multiplier of residual branches.
        init: The initial standard deviation inside blocks.
        matrix_rate: The learning rate of matrices inside blocks.
        vector_rate: The learning rate of vectors inside blocks.
        epsilon: Epsilon inside blocks; it follows the gradients.
    """

    branch: Fraction
    init: Fraction
    matrix_rate: Fraction
    vector_rate: Fraction
    epsilon: Fraction


def depth_exponents(rule: DepthRule, family: Family) -> DepthExponents:
    """Return the exponents of a rule: the largest stable rates, unless the rule has its own.

    Args:
        rule: The multiplier of branches, and exponents of your own.
        family: The optimizer family. Vectors are trained as embeddings are: by Adam beside Muon, for instance.

    >>> from widthwise.theory import ADAM
    >>> found = depth_exponents(SQRT_DEPTH, ADAM)
    >>> str(-found.branch), str(-found.matrix_rate), str(-found.epsilon)  # exponents of L
    ('-1/2', '-1/2', '-1/2')
    """
    gradient = rule.branch  # the stream's gradient is constant, and it enters a branch through the multiplier

    def rate(own: Fraction | None, of: OptimizerFamily) -> Fraction:
        if own is not None:
            return own
        if rule.branch < AT_INIT:
            raise ValueError(
                f"branches of {rule.name!r} are multiplied by L^{-rule.branch}, and their sum grows with depth at "
                "initialization: no learning rate is stable; multiply by L^-1/2 or less, or give matrix_rate and "
                "vector_rate"
            )
        update = max(Fraction(0), UPDATED - rule.branch)
        return update - of.gradient_power * gradient

    return DepthExponents(
        branch=rule.branch,
        init=Fraction(0),
        matrix_rate=rate(rule.matrix_rate, family.at(Role.HIDDEN)),
        vector_rate=rate(rule.vector_rate, family.at(Role.EMBEDDING)),
        epsilon=gradient if rule.epsilon is None else rule.epsilon,
    )
