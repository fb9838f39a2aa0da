"""Constraints on the exponents, as values with their slack (Table 2, appendix).

Every constraint bounds a quantity of size n^-value. Its name states what is bounded, and through which term:

- `stable_at_init`: activations of constant size, and logits of at most constant size, in the first forward pass;
- `stable_activations.update | .inherited | .joint`: the change of a layer's activations through ΔW·z, W·Δz, ΔW·Δz;
- `stable_logits.update | .inherited | .joint`: the same for the logits;
- `bounded_growth`: with parameter scaling, weights are not multiplied by a power of n at every step (c ≥ 0);
- `nontrivial`: the logits change through at least one of the three terms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from widthwise.theory.alignment import LayerAlignment
from widthwise.theory.exact import HALF, power_of_n
from widthwise.theory.families import OptimizerFamily
from widthwise.theory.parameterization import Layer, Parameterization

STABLE_AT_INIT = "stable_at_init"
STABLE_ACTIVATIONS = "stable_activations"
STABLE_LOGITS = "stable_logits"
BOUNDED_GROWTH = "bounded_growth"
NONTRIVIAL = "nontrivial"


class Bound(StrEnum):
    """The size that a constrained quantity must have."""

    EXACTLY = "exactly constant"
    AT_MOST = "at most constant"
    AT_LEAST = "at least constant"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on one quantity of size n^-value in one layer.

    Attributes:
        name: Which constraint, as listed in this module's docstring.
        layer: The label of its layer.
        value: The negative exponent of the quantity.
        bound: The size that the quantity must have.
        variable: What grows: the width n, or the number L of residual blocks.
    """

    name: str
    layer: str
    value: Fraction
    bound: Bound = Bound.AT_MOST
    variable: str = "n"

    @property
    def slack(self) -> Fraction:
        """The distance of the exponent from its bound: 0 if it binds, negative if it is violated."""
        match self.bound:
            case Bound.AT_MOST:
                return self.value
            case Bound.AT_LEAST:
                return -self.value
            case Bound.EXACTLY:
                return -abs(self.value)

    @property
    def binding(self) -> bool:
        """Whether there is no slack left."""
        return self.value == 0

    @property
    def satisfied(self) -> bool:
        """Whether the constraint holds."""
        return self.slack >= 0

    def __str__(self) -> str:
        return f"{self.name} ({self.layer}): scales as {power_of_n(-self.value, self.variable)}, must be {self.bound}"


@dataclass(frozen=True, slots=True)
class Change:
    """The negative exponents of the three terms through which the output of a layer changes during training."""

    update: Fraction
    """ΔW·z"""
    joint: Fraction
    """ΔW·Δz"""
    inherited: Fraction
    """W·Δz"""

    @classmethod
    def of(cls, layer: Layer, alignment: LayerAlignment, d: Fraction, r: Fraction) -> "Change":
        """Return the terms of a layer whose update has size n^-d and whose input changed by n^-r."""
        updated = layer.a + d
        return cls(
            update=updated - alignment.alpha,
            joint=updated + r - alignment.u,
            inherited=layer.total + r - alignment.omega,
        )

    @property
    def residual(self) -> Fraction:
        """The negative exponent of the total change, that of its largest term."""
        return min(self.update, self.joint, self.inherited)

    def constraints(self, name: str, layer: str) -> Iterator[Constraint]:
        """Yield a bound on each term."""
        yield Constraint(f"{name}.update", layer, self.update)
        yield Constraint(f"{name}.joint", layer, self.joint)
        yield Constraint(f"{name}.inherited", layer, self.inherited)


def at_init(parameterization: Parameterization) -> tuple[Constraint, ...]:
    """Return the constraints on the first forward pass, one per layer (§3.3.1).

    A sum over n independent terms is √n times the size of one, so n^-(a + b) of hidden layers and readout must
    compensate for n^1/2. The sum of the embedding does not grow. Logits may shrink; activations may not.
    """
    p = parameterization
    labels = p.labels
    return (
        Constraint(STABLE_AT_INIT, labels[0], p.embedding.total, Bound.EXACTLY),
        *(
            Constraint(STABLE_AT_INIT, label, layer.total - HALF, Bound.EXACTLY)
            for label, layer in zip(labels[1:-1], p.hidden, strict=True)
        ),
        Constraint(STABLE_AT_INIT, labels[-1], p.readout.total - HALF),
    )


def in_training(labels: Sequence[str], embedding_change: Fraction, changes: Sequence[Change]) -> Iterator[Constraint]:
    """Yield the constraints on every later forward pass (§3.3.2).

    Args:
        labels: The labels of the layers, embedding first.
        embedding_change: The negative exponent of the change of the first activations.
        changes: The changes of the hidden layers, followed by that of the logits.
    """
    yield Constraint(f"{STABLE_ACTIVATIONS}.update", labels[0], embedding_change)
    for label, change in zip(labels[1:-1], changes[:-1], strict=True):
        yield from change.constraints(STABLE_ACTIVATIONS, label)
    yield from changes[-1].constraints(STABLE_LOGITS, labels[-1])
    yield Constraint(NONTRIVIAL, labels[-1], changes[-1].residual, Bound.AT_LEAST)


def bounded_growth(
    labels: Sequence[str],
    families: Sequence[OptimizerFamily],
    rates: Sequence[Fraction],
    gradients: Sequence[Fraction],
) -> Iterator[Constraint]:
    """Yield the constraints that keep weights from growing exponentially with the number of steps.

    Only parameter scaling can do that: each update is n^-(c + gradient_power·g) times the weights it is added to.
    """
    for label, family, c, g in zip(labels, families, rates, gradients, strict=True):
        if family.parameter_power:
            yield Constraint(BOUNDED_GROWTH, label, family.growth(c=c, g=g))
