"""The solver: the largest learning rates that keep training stable (§3.3.4, appendix).

"Largest" means the smallest c, layer by layer *in the order of the forward pass*: no rate can be raised without
lowering the rate of an earlier layer. The order matters in two places. With SGD, the rate of the readout affects the
gradients of all other layers, so the readout gets the largest rate that does not slow them down. If u > alpha, a layer
could learn faster if its input changed less; the earlier layer does not slow down for it. Elsewhere the largest rate of
a layer does not depend on the others.
"""

from fractions import Fraction

from widthwise.theory.alignment import Alignment
from widthwise.theory.checker import (
    Assessment,
    aligned_layers,
    check,
    families_of,
    gradients_at_init,
    unstable_at_init,
)
from widthwise.theory.constraints import Change, at_init
from widthwise.theory.families import Family, OptimizerFamily
from widthwise.theory.parameterization import Layer, Parameterization


def solve(parameterization: Parameterization, family: Family, alignment: Alignment) -> Assessment:
    """Find the maximum stable learning-rate exponents.

    Where features cannot be learned (standard and NTK under Tensor Programs), these are the largest rates that are
    still stable. A network that is unstable at initialization gets that verdict and no rates.

    Args:
        parameterization: The a and b of every layer.
        family: The optimizer family.
        alignment: The alignment assumed.

    Returns:
        The case with its rates, residuals, gradients, constraints and verdict.

    >>> from widthwise.theory import ADAM, FULL, MUP
    >>> case = solve(MUP, ADAM, FULL)
    >>> [str(-c) for c in case.rates]  # exponents of n: embedding, hidden, readout
    ['-1/2', '-1', '-1/2']
    >>> case.verdict.feature_learning
    True
    """
    if not all(constraint.satisfied for constraint in at_init(parameterization)):
        return unstable_at_init(parameterization, family, alignment)
    return check(parameterization, _largest_rates(parameterization, family, alignment), family, alignment)


def solve_by_role(parameterization: Parameterization, family: Family, alignment: Alignment) -> Assessment:
    """Find the largest stable exponents that all hidden layers share: those of the most limited one.

    Hidden layers differ only if omega is above 1/2, which can happen when it is measured: changes then grow from layer
    to layer, and early layers must change less. Lowering the rates of the others keeps them stable.

    >>> from widthwise.theory import ADAM, STANDARD
    >>> measured = Alignment.of(alpha=1, omega=("0.6", "1/2"), u=1)
    >>> [str(-c) for c in solve_by_role(STANDARD.with_hidden_layers(2), ADAM, measured).rates]
    ['-1/5', '-11/10', '-11/10', '-1']
    """
    largest = solve(parameterization, family, alignment)
    if largest.rates is None:
        return largest
    embedding, *hidden, readout = largest.rates
    shared = [max(hidden)] * len(hidden) if hidden else []
    return check(parameterization, [embedding, *shared, readout], family, alignment)


def _largest_rates(parameterization: Parameterization, family: Family, alignment: Alignment) -> list[Fraction]:
    embedding, *hidden, readout = parameterization.layers
    *aligned, readout_aligned = aligned_layers(parameterization, family, alignment)
    *below, last = families_of(parameterization, family)
    required, *hidden_required = least_residuals(parameterization, alignment)
    embedding_g, *hidden_g, readout_g = gradients_at_init(parameterization)

    def bounded(d: Fraction, layer: Layer, family: OptimizerFamily) -> Fraction:
        """Keep an update that is proportional to the weights from outgrowing them."""
        return max(d, layer.b) if family.parameter_power else d

    d = bounded(required - embedding.a, embedding, below[0])
    rates = [below[0].rate(b=embedding.b, d=d, g=embedding_g)]
    residual = embedding.a + d
    for layer, each, align, least, g in zip(hidden, below[1:], aligned, hidden_required, hidden_g, strict=True):
        d = bounded(least + max(align.alpha, align.u - residual) - layer.a, layer, each)
        rates.append(each.rate(b=layer.b, d=d, g=g))
        residual = Change.of(layer, align, d, residual).residual

    d = bounded(max(readout_aligned.alpha, readout_aligned.u - residual) - readout.a, readout, last)
    if any(each.gradient_power for each in below):
        d = max(d, readout.b)  # an update beyond the initialization would enlarge every earlier gradient
    rates.append(last.rate(b=readout.b, d=d, g=readout_g))
    return rates


def least_residuals(parameterization: Parameterization, alignment: Alignment) -> list[Fraction]:
    """Return the smallest r of embedding and hidden layers for which all later layers can still be stable.

    A change n^-r in the input of a layer reaches its output as n^-(a + b + r - omega) through the initial weights,
    whatever the learning rates. Going back from the logits, this bounds every r from below.
    """
    *hidden, readout = alignment.layers(len(parameterization.hidden))
    least = [max(Fraction(0), readout.omega - parameterization.readout.total)]
    for layer, align in zip(reversed(parameterization.hidden), reversed(hidden), strict=True):
        least.append(max(Fraction(0), least[-1] + align.omega - layer.total))
    return least[::-1]
