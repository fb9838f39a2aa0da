"""The checker: what happens to a network that is trained with given exponents (§3.3, appendix).

Given a, b and c for every layer, it follows sizes forward through the network. The gradients that matter are those
*after* the first update. By then the readout's weights are as large as the larger of their initialization and their
update, so the gradients of earlier layers can only have grown. (The paper prints max where this needs the min of two
negative exponents; docs/theory.md shows why.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from widthwise.theory.alignment import Alignment, LayerAlignment
from widthwise.theory.constraints import NONTRIVIAL, Change, Constraint, at_init, bounded_growth, in_training
from widthwise.theory.exact import Exact
from widthwise.theory.families import Family, OptimizerFamily
from widthwise.theory.parameterization import Parameterization, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion drawn from the constraints.

    Attributes:
        stable_at_init: Activations start at constant size, and logits at constant size or smaller.
        stable: They stay that way during training.
        nontrivial: The logits change by at least a constant.
        feature_learning: All activations are stable, and the input of the readout changes by a constant.
        residual: r_L; the input of the readout changes by n^-r_L. None if the network is unstable at initialization;
            the other three are then False.
    """

    stable_at_init: bool
    stable: bool
    nontrivial: bool
    feature_learning: bool
    residual: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """The negative exponents g of the gradients, one per layer.

    Attributes:
        at_init: In the first backward pass. Table 1 shows these, and a per-layer epsilon follows them.
        trained: From the first update on. Smaller than `at_init` (larger gradients) if the update of the readout
            outgrows its initialization.
    """

    at_init: tuple[Fraction, ...]
    trained: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A parameterization, an optimizer and an alignment, with everything that follows from them.

    All tuples are ordered like `parameterization.layers`: embedding, hidden layers, readout. If the network is unstable
    at initialization, `gradients`, `residuals` and `logit_change` are None, and so is `rates` unless it was passed in.

    Attributes:
        parameterization: The a and b.
        family: The optimizer family.
        alignment: The alignment assumed.
        rates: The c; learning rates scale as n^-c.
        gradients: The g.
        residuals: The r of embedding and hidden layers; their activations change by n^-r.
        logit_change: The same for the logits.
        constraints: All constraints, with their slack.
        verdict: The conclusion drawn from them.
    """

    parameterization: Parameterization
    family: Family
    alignment: Alignment
    rates: tuple[Fraction, ...] | None
    gradients: Gradients | None = None
    residuals: tuple[Fraction, ...] | None = None
    logit_change: Fraction | None = None
    constraints: tuple[Constraint, ...]
    verdict: Verdict

    @property
    def broken(self) -> tuple[Constraint, ...]:
        """The violated constraints."""
        return tuple(c for c in self.constraints if not c.satisfied)


def check(
    parameterization: Parameterization,
    rates: Sequence[Exact],
    family: Family,
    alignment: Alignment,
) -> Assessment:
    """Check given exponents a, b and c.

    Args:
        parameterization: The a and b of every layer.
        rates: c for every layer, embedding first; learning rates scale as n^-c.
        family: The optimizer family.
        alignment: The alignment assumed.

    Returns:
        The case with its residuals, gradients, constraints and verdict.

    >>> from widthwise.theory import ADAM, FULL, STANDARD
    >>> case = check(STANDARD, [0, 0, 0], ADAM, FULL)  # one global learning rate
    >>> case.verdict.stable, [str(c) for c in case.broken][0]
    (False, 'stable_activations.update (hidden): scales as n, must be at most constant')
    """
    c = parameterization.per_layer(rates)
    constraints = at_init(parameterization)
    if not all(constraint.satisfied for constraint in constraints):
        return unstable_at_init(parameterization, family, alignment, c)

    layers, labels = parameterization.layers, parameterization.labels
    gradients = Gradients(
        at_init=gradients_at_init(parameterization),
        trained=trained_gradients(parameterization, family, c[-1]),
    )
    families = families_of(parameterization, family)
    updates = [
        each.update(b=layer.b, c=rate, g=g)
        for each, layer, rate, g in zip(families, layers, c, gradients.trained, strict=True)
    ]
    aligned = aligned_layers(parameterization, family, alignment)
    residuals = [layers[0].a + updates[0]]
    changes: list[Change] = []
    for layer, d, align in zip(layers[1:], updates[1:], aligned, strict=True):
        changes.append(Change.of(layer, align, d, residuals[-1]))
        residuals.append(changes[-1].residual)
    logit_change = residuals.pop()

    constraints += tuple(bounded_growth(labels, families, c, gradients.trained))
    constraints += tuple(in_training(labels, residuals[0], changes))
    return Assessment(
        parameterization=parameterization,
        family=family,
        alignment=alignment,
        rates=c,
        gradients=gradients,
        residuals=tuple(residuals),
        logit_change=logit_change,
        constraints=constraints,
        verdict=Verdict(
            stable_at_init=True,
            stable=all(constraint.satisfied for constraint in constraints if constraint.name != NONTRIVIAL),
            nontrivial=logit_change <= 0,
            feature_learning=residuals[-1] == 0 and min(residuals) == 0,
            residual=residuals[-1],
        ),
    )


def unstable_at_init(
    parameterization: Parameterization,
    family: Family,
    alignment: Alignment,
    rates: tuple[Fraction, ...] | None = None,
) -> Assessment:
    """Return the assessment of exponents for which no learning rate helps; `rates` are those passed in, if any."""
    return Assessment(
        parameterization=parameterization,
        family=family,
        alignment=alignment,
        rates=rates,
        constraints=at_init(parameterization),
        verdict=Verdict(stable_at_init=False, stable=False, nontrivial=False, feature_learning=False, residual=None),
    )


def families_of(parameterization: Parameterization, family: Family) -> tuple[OptimizerFamily, ...]:
    """Return the family of each layer."""
    return tuple(family.at(role) for role in parameterization.roles)


def aligned_layers(
    parameterization: Parameterization, family: Family, alignment: Alignment
) -> tuple[LayerAlignment, ...]:
    """Return the alignment of each layer but the embedding, with updates of this family."""
    assumed = alignment.layers(len(parameterization.hidden))
    return tuple(
        each.aligned(one) for each, one in zip(families_of(parameterization, family)[1:], assumed, strict=True)
    )


def gradients_at_init(parameterization: Parameterization) -> tuple[Fraction, ...]:
    """Return g for every layer in the first backward pass of a network that is stable at initialization.

    The derivative of the loss with respect to the logits has constant size. Going back through the readout multiplies
    it by n^-(a + b), through a hidden layer by n^-(a + b) √n = 1. The layer's own multiplier contributes n^-a.
    """
    return _gradients(parameterization, parameterization.readout.b)


def trained_gradients(
    parameterization: Parameterization, family: Family, readout_rate: Fraction
) -> tuple[Fraction, ...]:
    """Return g for every layer after the readout was updated with learning rate n^-readout_rate."""
    readout = parameterization.readout
    d = family.at(Role.READOUT).update(b=readout.b, c=readout_rate, g=readout.a)
    return _gradients(parameterization, min(readout.b, d))


def _gradients(parameterization: Parameterization, readout_weight: Fraction) -> tuple[Fraction, ...]:
    *below, readout = parameterization.layers
    backward = readout.a + readout_weight
    return (*(layer.a + backward for layer in below), readout.a)
