"""Depth: exponents of the number L of residual blocks, next to those of the width n.

A stream passes through L blocks, and each adds its branch, multiplied by L^-α. At initialization branches are
independent, so their sum grows as √L. Updates of all blocks serve the same loss, so what they add to the stream grows
as L. Everything else follows from these two numbers, with α as the only choice: α = 1 is CompleteP, α = 1/2 is Tensor
Programs VI, α = 0 is no multiplier. docs/theory.md derives it.

A block has a fixed number of layers, so a factor in n and a factor in L never meet in one sum. The exponents of the
width theory hold at every depth, these hold at every width, and a parameter gets the product of both.

Blocks, and the readout, normalize what they read from the stream. So if the stream outgrows a constant, as it does for
α < 1/2, its changes count relative to its size. The constraints, in the order of `DepthAssessment.constraints`:

- `stable_at_init`: the sum over branches is of at most constant size in the first forward pass;
- `stable_stream.update`: the change of the stream through the updates of all blocks. Through ΔW·Δz it is the same, for
  the stream itself changes by a constant from the embedding on;
- `stable_block.update`: the change of activations inside a block through its own update;
- `nontrivial`: the stream changes by a constant through the updates of blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from widthwise.theory.constraints import NONTRIVIAL, STABLE_AT_INIT, Bound, Constraint
from widthwise.theory.exact import HALF, Exact, exact
from widthwise.theory.families import Family
from widthwise.theory.parameterization import Role

INDEPENDENT_BLOCKS = HALF
"""The exponent of L in a sum over L terms that are independent of each other, as branches are at initialization."""
AGREEING_BLOCKS = Fraction(1)
"""The exponent of L in a sum over L terms that agree, as the changes of branches do."""

STABLE_STREAM = "stable_stream"
STABLE_BLOCK = "stable_block"
STREAM = "stream"
MATRICES = "matrices"
VECTORS = "vectors"


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


def read_depth_rule(rule: DepthRule | Exact) -> DepthRule:
    """Return a rule by name, or with the α that is given; or the rule itself.

    >>> read_depth_rule("3/4").branch
    Fraction(3, 4)
    """
    if isinstance(rule, DepthRule):
        return rule
    if isinstance(rule, str) and rule in DEPTH_RULES:
        return DEPTH_RULES[rule]
    try:
        return DepthRule(name=str(rule).strip(), branch=exact(rule))
    except ValueError:
        expected = f"one of {', '.join(DEPTH_RULES)}, or the exponent of branches, such as 3/4"
        raise ValueError(f"depth_rule is {rule!r}: expected {expected}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthExponents:
    """What changes with depth, as negative exponents of L: the factor is m^-e, with m the depth over the base depth.

    Nothing outside of blocks changes.

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

    def folded(self, family: Family) -> "DepthExponents":
        """Return the exponents of the last weight and bias of a branch if they carry its multiplier.

        A branch is linear in them, so this is the move of the width theory (`widthwise.theory.move`) by -α: the model
        is called as it is, and trains as if it multiplied its branches.

        >>> from widthwise.theory import ADAM
        >>> last = depth_exponents(COMPLETEP, ADAM).folded(ADAM)
        >>> str(last.branch), str(last.init), str(last.matrix_rate), str(last.epsilon)
        ('0', '1', '1', '0')
        """
        matrix, vector = (family.at(role).rate_correction for role in (Role.HIDDEN, Role.EMBEDDING))
        return DepthExponents(
            branch=Fraction(0),
            init=self.init + self.branch,
            matrix_rate=self.matrix_rate + matrix * self.branch,
            vector_rate=self.vector_rate + vector * self.branch,
            epsilon=self.epsilon - self.branch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthVerdict:
    """The conclusion drawn from the constraints.

    Attributes:
        stable_at_init: The sum over branches starts at constant size, or smaller.
        stable: It stays that way, and so do activations inside blocks. False if not stable at initialization.
        nontrivial: Blocks change the stream by at least a constant.
        every_block: Stable and nontrivial, and every block changes its own activations by a constant. Otherwise blocks
            are lazy: the deeper the network, the less each of them moves from its initialization, and it learns only
            what is linear in its parameters.
    """

    stable_at_init: bool
    stable: bool
    nontrivial: bool
    every_block: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAssessment:
    """A rule and an optimizer, with everything that follows from them as L grows; negative exponents of L.

    Attributes:
        rule: The multiplier of branches.
        family: The optimizer family.
        agreement: The exponent of L in the sum over the changes of branches: 1 if they agree, 1/2 if not at all.
        exponents: What changes with depth.
        stream: The size of the stream at initialization.
        branches: The part of the stream that branches contribute at initialization.
        updates: The updates inside blocks, of matrices and of vectors.
        stream_change: The change of the stream through the updates of blocks, relative to its size.
        block_change: The change of activations inside a block through its own updates.
        constraints: All constraints, with their slack.
        verdict: The conclusion drawn from them.
    """

    rule: DepthRule
    family: Family
    agreement: Fraction
    exponents: DepthExponents
    stream: Fraction
    branches: Fraction
    updates: tuple[Fraction, Fraction]
    stream_change: Fraction
    block_change: Fraction
    constraints: tuple[Constraint, ...]
    verdict: DepthVerdict

    @property
    def broken(self) -> tuple[Constraint, ...]:
        """The violated constraints."""
        return tuple(c for c in self.constraints if not c.satisfied)

    def limits(self, kind: str) -> tuple[Constraint, ...]:
        """Return the constraints that are violated as soon as the rate of matrices, or of vectors, is raised."""
        return tuple(c for c in self.constraints if c.layer == kind and c.binding)


def assess_depth(rule: DepthRule, family: Family, *, agreement: Exact = AGREEING_BLOCKS) -> DepthAssessment:
    """Solve for the largest stable rates inside blocks, unless the rule has its own; check them.

    Args:
        rule: The multiplier of branches, and exponents of your own.
        family: The optimizer family. Vectors are trained as embeddings are: by Adam beside Muon, for instance.
        agreement: How much the changes of different branches agree, from 1/2 (by chance) to 1.

    >>> from widthwise.theory import ADAM
    >>> [assess_depth(rule, ADAM).verdict.every_block for rule in (COMPLETEP, SQRT_DEPTH)]
    [True, False]
    """
    agreement = exact(agreement)
    if not INDEPENDENT_BLOCKS <= agreement <= AGREEING_BLOCKS:
        raise ValueError(f"agreement is {agreement}: expected 1/2, for independent changes, to 1")
    branches = rule.branch - INDEPENDENT_BLOCKS
    stream = min(Fraction(0), branches)
    relative = rule.branch - stream  # a branch counts relative to the stream; so does its gradient
    solved = max(Fraction(0), agreement - relative)

    def rate_and_update(own: Fraction | None, role: Role) -> tuple[Fraction, Fraction]:
        gradient = family.at(role).gradient_power * relative
        return (solved - gradient, solved) if own is None else (own, own + gradient)

    matrix_rate, matrix_update = rate_and_update(rule.matrix_rate, Role.HIDDEN)
    vector_rate, vector_update = rate_and_update(rule.vector_rate, Role.EMBEDDING)
    updates = {MATRICES: matrix_update, VECTORS: vector_update}
    block_change = min(updates.values())
    stream_change = relative + block_change - agreement
    constraints = (
        Constraint(STABLE_AT_INIT, STREAM, branches, variable="L"),
        *(Constraint(f"{STABLE_STREAM}.update", k, relative + d - agreement, variable="L") for k, d in updates.items()),
        *(Constraint(f"{STABLE_BLOCK}.update", k, d, variable="L") for k, d in updates.items()),
        Constraint(NONTRIVIAL, STREAM, stream_change, Bound.AT_LEAST, variable="L"),
    )
    stable = all(c.satisfied for c in constraints[:-1])
    return DepthAssessment(
        rule=rule,
        family=family,
        agreement=agreement,
        exponents=DepthExponents(
            branch=rule.branch,
            init=Fraction(0),
            matrix_rate=matrix_rate,
            vector_rate=vector_rate,
            epsilon=relative if rule.epsilon is None else rule.epsilon,
        ),
        stream=stream,
        branches=branches - stream,
        updates=(matrix_update, vector_update),
        stream_change=stream_change,
        block_change=block_change,
        constraints=constraints,
        verdict=DepthVerdict(
            stable_at_init=branches >= 0,
            stable=stable,
            nontrivial=stream_change <= 0,
            every_block=stable and stream_change == block_change == 0,
        ),
    )


def depth_exponents(rule: DepthRule, family: Family) -> DepthExponents:
    """Return the exponents of a rule: the largest stable rates, unless the rule has its own.

    >>> from widthwise.theory import ADAM
    >>> found = depth_exponents(SQRT_DEPTH, ADAM)
    >>> str(-found.branch), str(-found.matrix_rate), str(-found.epsilon)  # exponents of L
    ('-1/2', '-1/2', '-1/2')

    Raises:
        ValueError: If the rule leaves rates to be solved for, and none is stable.
    """
    found = assess_depth(rule, family)
    if not found.verdict.stable_at_init and None in (rule.matrix_rate, rule.vector_rate):
        raise ValueError(
            f"branches of {rule.name!r} are multiplied by L^{-rule.branch}, and their sum grows with depth at "
            "initialization: no learning rate is stable; multiply by L^-1/2 or less, or give matrix_rate and "
            "vector_rate"
        )
    return found.exponents
