"""Weight decay: what a step removes under a rule, and the equilibrium that this leads to, as exponents of width.

Rules of decay are rules over width. With depth they change nothing by themselves, but those that follow the learning
rate follow it here too (`depth_equilibria`).

A step removes a part n^-w of a weight and adds an update of size n^-d. Sooner or later a weight is the sum of its last
n^w updates, and nothing is left of its initialization. If these updates are independent, their sum grows as the root of
their number, so the weight has size n^-(d - w/2) and a step changes a part n^-(w/2) of it. If they all point the same
way, the size is n^-(d - w) and the part n^-w. With `persistence` p for the 1/2 or 1, both are one formula: size
d - p·w, part p·w. The part does not depend on d: in equilibrium, decay alone sets the effective learning rate.

Updates that are proportional to the weight (parameter scaling) have no such equilibrium. Their part is the learning
rate, and decay only adds a drift to the size. This is beyond the paper; docs/theory.md derives it and compares the
rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from widthwise.theory.checker import Assessment, aligned_layers, families_of
from widthwise.theory.depth import DepthAssessment
from widthwise.theory.exact import HALF
from widthwise.theory.parameterization import Role

INDEPENDENT_UPDATES = HALF
"""The persistence of updates that are independent from step to step."""
ALIGNED_UPDATES = Fraction(1)
"""The persistence of updates that keep their direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayRule:
    """How weight decay changes with width.

    Attributes:
        name: The name to print.
        title: The rule in words.
        coupled: Whether the factor on a parameter's learning rate applies to its decay.
        embedding: The exponent of n of the decay of embeddings, apart from that factor; None for no decay.
        hidden: The same for hidden layers.
        readout: The same for the readout.
    """

    name: str
    title: str
    coupled: bool = False
    embedding: Fraction | None = Fraction(0)
    hidden: Fraction | None = Fraction(0)
    readout: Fraction | None = Fraction(0)

    def power(self, role: Role) -> Fraction | None:
        """Return the exponent of n of the decay in a role; None for no decay."""
        return {Role.EMBEDDING: self.embedding, Role.HIDDEN: self.hidden, Role.READOUT: self.readout}[role]

    def removed(self, role: Role, c: Fraction) -> Fraction | None:
        """Return w for a layer with learning rate n^-c: a step removes n^-w of a weight. None for no decay."""
        power = self.power(role)
        return None if power is None else (c if self.coupled else 0) - power


INDEPENDENT = DecayRule(name="independent", title="the same part of every weight at every width")
COUPLED = DecayRule(name="coupled", title="unscaled, times the scaled learning rate", coupled=True)
SQRT = DecayRule(
    name="sqrt",
    title="√n times the scaled learning rate in hidden layers, no decay elsewhere",
    coupled=True,
    embedding=None,
    hidden=HALF,
    readout=None,
)
INVERSE = DecayRule(
    name="inverse",
    title="1/n of every weight",
    embedding=Fraction(-1),
    hidden=Fraction(-1),
    readout=Fraction(-1),
)

DECAY_RULES: Mapping[str, DecayRule] = MappingProxyType(
    {rule.name: rule for rule in (INDEPENDENT, COUPLED, SQRT, INVERSE)}
)
"""The rules by name.

A decay that is multiplied by the scaled learning rate and divided by its factor, as in mup and CompleteP, removes what
`independent` does.
"""


def read_decay_rule(rule: DecayRule | str) -> DecayRule:
    """Return a rule by name, or the rule itself."""
    if isinstance(rule, DecayRule):
        return rule
    if rule not in DECAY_RULES:
        raise ValueError(f"decay_rule is {rule!r}: expected one of {', '.join(DECAY_RULES)}")
    return DECAY_RULES[rule]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equilibrium:
    """A layer once nothing is left of its initialization; negative exponents of n, as everywhere in the theory.

    Attributes:
        removed: w; a step removes n^-w of a weight, and the equilibrium is reached in some n^w steps.
        effective_rate: A step changes n^-effective_rate of a weight.
        size: Weights have size n^-size; None if there is no equilibrium, as with parameter scaling.
        since_init: The size relative to the initialization.
        alignment: The exponent of the sum in the layer's output for which the output has constant size. If weights and
            activations are more aligned than that, the output grows with width; if less, it shrinks. None for the
            embedding, whose sum has a fixed length.
        output: Outputs have size n^-output with the alignment assumed of updates.
    """

    removed: Fraction
    effective_rate: Fraction
    size: Fraction | None = None
    since_init: Fraction | None = None
    alignment: Fraction | None = None
    output: Fraction | None = None


def equilibria(
    case: Assessment, rule: DecayRule, *, persistence: Fraction = INDEPENDENT_UPDATES
) -> tuple[Equilibrium | None, ...]:
    """Return the equilibrium of every layer, embedding first; None for layers that do not decay.

    Updates are as large as after the first step. With SGD they follow the gradients, so this takes for granted that the
    equilibrium does not change the size of gradients; w and the effective rate hold in any case.

    Args:
        case: The exponents of the network and its learning rates.
        rule: The rule of weight decay.
        persistence: 1/2 if updates are independent from step to step, 1 if they point the same way.

    >>> from widthwise.theory import ADAM, FULL, MUP, solve
    >>> hidden = equilibria(solve(MUP, ADAM, FULL), INDEPENDENT)[1]
    >>> str(hidden.removed), str(hidden.effective_rate), str(hidden.since_init), str(hidden.output)
    ('0', '0', '1/2', '0')
    """
    if case.rates is None or case.gradients is None:
        raise ValueError(f"{case.parameterization.name!r} is unstable at initialization: it has no equilibrium")
    network = case.parameterization
    families = families_of(network, case.family)
    alignments = (None, *(layer.alpha for layer in aligned_layers(network, case.family, case.alignment)))
    found: list[Equilibrium | None] = []
    for role, layer, family, c, g, alpha in zip(
        network.roles, network.layers, families, case.rates, case.gradients.trained, alignments, strict=True
    ):
        w = rule.removed(role, c)
        if w is None:
            found.append(None)
        elif family.parameter_power:
            found.append(Equilibrium(removed=w, effective_rate=family.growth(c=c, g=g)))
        else:
            size = family.update(b=layer.b, c=c, g=g) - persistence * w
            found.append(
                Equilibrium(
                    removed=w,
                    effective_rate=persistence * w,
                    size=size,
                    since_init=size - layer.b,
                    alignment=None if alpha is None else layer.a + size,
                    output=layer.a + size - (alpha or 0),
                )
            )
    return tuple(found)


def depth_equilibria(
    case: DepthAssessment, rule: DecayRule, *, persistence: Fraction = INDEPENDENT_UPDATES
) -> tuple[Equilibrium | None, Equilibrium | None]:
    """Return the equilibrium of matrices and of vectors inside blocks as depth grows, in negative exponents of L.

    `alignment` is the agreement of settled branches for which their sum is of constant size, and `output` the size of
    this sum with the agreement assumed of updates. The rates are those of a model that multiplies its branches: a
    weight that carries the multiplier has another rate, but must decay as it would without.

    >>> from widthwise.theory import ADAM, SQRT_DEPTH, assess_depth
    >>> matrices, _ = depth_equilibria(assess_depth(SQRT_DEPTH, ADAM), COUPLED)
    >>> str(matrices.removed), str(matrices.since_init), str(matrices.alignment)
    ('1/2', '1/4', '3/4')
    """
    exponents = case.exponents

    def of(role: Role, c: Fraction, d: Fraction) -> Equilibrium | None:
        if rule.power(role) is None:
            return None
        w = c if rule.coupled else Fraction(0)
        if case.family.at(role).parameter_power:
            return Equilibrium(removed=w, effective_rate=d)
        size = d - persistence * w
        branch = exponents.branch - case.stream + size
        return Equilibrium(
            removed=w,
            effective_rate=persistence * w,
            size=size,
            since_init=size - exponents.init,
            alignment=branch,
            output=branch - case.agreement,
        )

    matrix_update, vector_update = case.updates
    return (
        of(Role.HIDDEN, exponents.matrix_rate, matrix_update),
        of(Role.EMBEDDING, exponents.vector_rate, vector_update),
    )
