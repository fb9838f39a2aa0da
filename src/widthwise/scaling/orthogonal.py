"""Muon under a plan: which parameters it trains, and the rate that is left to set after its own factor.

Muon trains hidden matrices. Embeddings, readouts, inner readouts and vectors are trained by the other optimizer of the
mixture, usually Adam, with the exponents of that family; so are hidden matrices that a rule takes from Muon.

An orthogonalized update O of a matrix with `out` rows has entries of size 1 / √max(out, in). Let z have entries of size
1. If out ≥ in, O keeps the length of every z, and the entries of O·z have size √(in/out). If out < in, O keeps the part
of z in the space of its rows. If z lies there (full alignment), the entries again have size √(in/out); if z is drawn at
random, they have size 1. So a layer changes by as much at every width if O is multiplied by

    √(out/in) if out ≥ in, and (out/in)^(alpha - 1/2) otherwise.

If both sides grow alike, this is constant, and alignment drops out. Otherwise it is not, and neither is the factor that
the optimizer applies by itself. That factor has kinks where out = in, so both are computed from actual shapes, and the
factor on the learning rate is the growth of one divided by the growth of the other.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from widthwise.scaling.parameters import Parameter, Shape
from widthwise.theory import MUON_FACTORS, Family, MixedFamily, OptimizerFamily, Role
from widthwise.theory.exact import HALF

SHAPE_FACTORS: Mapping[str, Callable[[int, int], float]] = MappingProxyType(
    {
        "sqrt(max(1,out/in))": lambda out, into: math.sqrt(max(1, out / into)),
        "sqrt(out/in)": lambda out, into: math.sqrt(out / into),
        "sqrt(max(out,in))": lambda out, into: math.sqrt(max(out, into)),
    }
)
"""Muon's factors on O by their formula, as functions of `out` and `in`."""

MUON_RATES = {"sqrt(max(1,out/in))": 0.02, "sqrt(max(out,in))": 1e-2}
"""The learning rates of a coordinate check by the factor, of those that Optax and PyTorch have: large enough to see
changes of most models."""

Sides: TypeAlias = Callable[[Parameter, Shape], tuple[int, int]]
"""What an optimizer takes for `out` and `in` of a parameter of a shape."""


def by_axes(parameter: Parameter, shape: Shape) -> tuple[int, int]:
    """Return the number of outputs and of inputs of a parameter."""
    return math.prod(shape[at] for at in parameter.axes.outputs), math.prod(shape[at] for at in parameter.axes.inputs)


def as_stored(parameter: Parameter, shape: Shape) -> tuple[int, int]:
    """Return the last two axes, which optimizers of PyTorch take for `out` and `in`, whatever they are."""
    del parameter
    return shape[-2], shape[-1]


def has_muon(family: Family) -> bool:
    """Return whether hidden matrices have orthogonalized updates."""
    return family.at(Role.HIDDEN).isometric


def formula_of(family: Family) -> str:
    """Return the formula of the factor that is applied to orthogonalized updates; raise if it is not known."""
    for formula, muon in MUON_FACTORS.items():
        if family.at(Role.HIDDEN) == muon.hidden:
            return formula
    known = ", ".join(MUON_FACTORS)
    raise ValueError(f"{family.name!r} multiplies updates by a factor that plans do not know: expected one of {known}")


def is_beside_muon(parameter: Parameter, family: Family) -> bool:
    """Return whether a parameter is scaled as hidden matrices are, but is not trained as they are."""
    return parameter.role is Role.HIDDEN and has_muon(family) and not parameter.muon


def family_of(parameter: Parameter, family: Family) -> OptimizerFamily:
    """Return the family of the optimizer that trains a parameter."""
    if parameter.role is None or is_beside_muon(parameter, family):
        return family.at(Role.EMBEDDING)
    return family.at(parameter.role)


def remaining_rate(parameter: Parameter, family: Family, alpha: Fraction, sides: Sides) -> float:
    """Return the factor on the learning rate of a matrix whose updates are orthogonalized.

    Args:
        parameter: The matrix.
        family: The mixture that trains the model.
        alpha: The alignment of its updates.
        sides: What the optimizer takes for `out` and `in`.
    """
    factor = SHAPE_FACTORS[formula_of(family)]

    def left_to_set(shape: Shape) -> float:
        out, into = by_axes(parameter, shape)
        power = HALF if out >= into else alpha - HALF
        return (out / into) ** float(power) / factor(*sides(parameter, shape))

    return left_to_set(parameter.shape) / left_to_set(parameter.base_shape)


def refuse_muon_alone(family: Family) -> None:
    """Raise if the updates of embeddings and readouts, or of everything, are to be orthogonalized."""
    if not has_muon(family):
        return
    if not isinstance(family, MixedFamily) or family in MUON_FACTORS.values():
        raise ValueError(
            f"{family.name!r} orthogonalizes every update, which is impossible for vectors: expected a mixture, such "
            "as with_adam(family), or its name, optimizer='muon'"
        )
    formula_of(family)
