"""Factors: what changes for a parameter when the model is wider than at the base width (§3, relative to the base).

The paper's powers of n are absolute. Here every factor is a power of growth since the base width, so at the base width
all factors are 1 and the plan *is* the plain model. Let r be the growth of a parameter's fan-in (of its outputs, for an
embedding), and s the growth of its outputs, over which its gradient spreads. With multipliers all 1:

- initialization r^-b, and learning rate r^-(d - parameter_power·b) · s^(gradient_power·g), where n^-d is the size of an
  update and n^-g that of a gradient;
- epsilon s^-g, and the floor of parameter scaling r^-b, as the initialization: a layer that starts at zero is to be
  updated as one that starts at its usual size. (With the paper's constant floor, its update would grow with width.)

A matrix whose updates are orthogonalized has the rate that its optimizer leaves to set; see `scaling/orthogonal.py`.
There epsilon is added to the norm of the gradient, so it follows that norm.

Weight decay is a factor on the part of a weight that a step removes: 1, unless another rule is asked for.

Splitting the rate into a part of the fan-in and a part of the outputs makes no difference if everything grows alike.
Otherwise it keeps activations and their changes constant, layer by layer.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from widthwise.scaling.decay import decay_factor
from widthwise.scaling.orthogonal import Sides, by_axes, family_of, is_beside_muon, remaining_rate
from widthwise.scaling.parameters import Parameter, Part
from widthwise.theory import (
    INDEPENDENT,
    Assessment,
    DecayRule,
    OptimizerFamily,
    Role,
    check,
    solve,
    without_multipliers,
)
from widthwise.theory.exact import HALF


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The factors of one parameter, relative to the base width.

    Attributes:
        init: On the initial size.
        multiplier: On the stored parameter when it acts.
        learning_rate: On the learning rate.
        epsilon: On epsilon.
        floor: On the smallest size that parameter scaling uses.
        decay: On the part of the parameter that a step removes.
    """

    init: float = 1.0
    multiplier: float = 1.0
    learning_rate: float = 1.0
    epsilon: float = 1.0
    floor: float = 1.0
    decay: float = 1.0

    def moved(self, growth: Fraction, theta: Fraction, family: OptimizerFamily) -> "Factors":
        """Return the factors of the same parameter stored as growth^θ times itself."""
        if theta == 0:
            return self
        factor = float(growth) ** float(theta)
        return Factors(
            init=self.init * factor,
            multiplier=self.multiplier / factor,
            learning_rate=self.learning_rate * float(growth) ** float(family.rate_correction * theta),
            epsilon=self.epsilon / factor,
            floor=self.floor * factor,
        )


def for_tied(case: Assessment) -> Assessment:
    """Return the exponents of a model whose embedding is the readout too.

    The embedding's entries have constant size, and so have their updates. As a readout it therefore needs a factor of
    n^-max(a + b, alpha) on the logits: the first keeps them from being larger than the readout's at the start, the
    second from growing with the updates. The other exponents follow as for any readout that starts at this size.
    """
    readout = case.parameterization.readout
    size = max(readout.total, case.alignment.readout.alpha)
    if size == readout.total:
        return case
    smaller = replace(case.parameterization, readout=type(readout)(readout.a, size - readout.a))
    if case.rates != solve(case.parameterization, case.family, case.alignment).rates:
        return check(smaller, case.rates or (), case.family, case.alignment)  # rates of one's own
    return solve(smaller, case.family, case.alignment)


def find_factors(
    parameters: tuple[Parameter, ...],
    case: Assessment,
    *,
    decay_rule: DecayRule = INDEPENDENT,
    multipliers: bool = False,
    sides: Sides = by_axes,
) -> dict[str, Factors]:
    """Return the factors of every parameter.

    Args:
        parameters: The parameters.
        case: The exponents.
        decay_rule: How weight decay changes with width.
        multipliers: Whether to keep the multipliers of the parameterization, relative to the base width, instead of
            storing parameters as they act.
        sides: What optimizers that orthogonalize updates take for the two sides of a matrix.
    """
    tied = any(parameter.part is Part.TIED for parameter in parameters)
    if tied:
        case = for_tied(case)
    stored = without_multipliers(case)
    logits = stored.parameterization.readout.b
    by_role = {role: _of(case, stored, role) for role in {p.role or Role.EMBEDDING for p in parameters}}
    beside = _hidden_beside_muon(case) if any(is_beside_muon(p, case.family) for p in parameters) else None
    alpha = max(max(each.alpha, each.u) for each in case.alignment.hidden)
    found: dict[str, Factors] = {}
    for parameter in parameters:
        if parameter.role is None and parameter.gain_of is None and parameter.grows_head == 1:
            found[parameter.path] = Factors()
            continue
        e = (is_beside_muon(parameter, case.family) and beside) or by_role[parameter.role or Role.EMBEDDING]
        r = parameter.grows_out if parameter.role is Role.EMBEDDING else parameter.grows_in
        s = parameter.grows_out
        family = family_of(parameter, case.family)
        own = e.d - family.parameter_power * e.b - family.size  # what gradient and learning rate contribute
        rate = float(r) ** float(-own) * float(s) ** float(family.gradient_power * e.g)
        epsilon = float(s) ** float(-e.g)
        if family.isometric:
            rate = float(r) ** float(HALF - e.d) * remaining_rate(parameter, case.family, alpha, sides)
            epsilon *= float(r * s) ** 0.5
        factors = Factors(
            init=float(r) ** float(-e.b),
            learning_rate=rate,
            epsilon=epsilon,
            floor=float(r) ** float(-e.b),
        )
        if multipliers and parameter.linear and parameter.part is not Part.TIED:
            factors = factors.moved(r, e.a, family)
        if parameter.gain_of is not None:
            factors = replace(factors, multiplier=factors.multiplier * float(r) ** float(-logits))
            factors = factors.moved(r, -logits, family)
        if parameter.grows_head != 1:  # the multiplier that attention needs, in the initial size
            missing = -Fraction(1, 2)
            factors = replace(factors, multiplier=factors.multiplier * float(parameter.grows_head) ** float(missing))
            factors = factors.moved(parameter.grows_head, missing, family)
        decay = decay_factor(decay_rule, parameter.role, rate=factors.learning_rate, growth=float(r))
        found[parameter.path] = replace(factors, decay=decay)
    return found


def _hidden_beside_muon(case: Assessment) -> "_Exponents":
    """Return the exponents of hidden parameters that the optimizer beside Muon trains."""
    alone = solve(case.parameterization, case.family.at(Role.EMBEDDING), case.alignment)
    return _of(alone, without_multipliers(alone), Role.HIDDEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exponents:
    a: Fraction
    b: Fraction
    d: Fraction
    g: Fraction


def _of(case: Assessment, stored: Assessment, role: Role) -> _Exponents:
    rates, gradients = stored.rates, stored.gradients
    assert rates is not None
    assert gradients is not None
    layers = stored.parameterization.layers
    indices = {Role.EMBEDDING: [0], Role.HIDDEN: range(1, len(layers) - 1), Role.READOUT: [len(layers) - 1]}[role]
    found = {
        _Exponents(
            a=case.parameterization.layers[i].a,
            b=layers[i].b,
            d=stored.family.at(role).update(b=layers[i].b, c=rates[i], g=gradients.at_init[i]),
            g=gradients.at_init[i],
        )
        for i in indices
    }
    if len(found) != 1:
        raise ValueError(
            f"the exponents are for {len(indices)} hidden layers that {'differ' if found else 'do not exist'}, "
            "but the model has hidden parameters: expected one set of exponents for all of them"
        )
    return found.pop()
