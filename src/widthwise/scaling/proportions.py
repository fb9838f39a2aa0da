"""Which parameters' common factor is a factor of an array: where a multiplier of the array could go instead.

A product with a weight is proportional to it; with a bias added, to both together. Moving elements, multiplying by what
does not depend on them (rotary positions, a temperature), and adding what is proportional to the same parameters keep
this. Everything else spends the parameters: multiplying them would change more than a factor.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING

from widthwise.scaling.uses import Meeting

if TYPE_CHECKING:
    from widthwise.scaling.found import Value
    from widthwise.scaling.operations import Operation

Paths = frozenset[str]
NOTHING: Paths = frozenset()

PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general")
_ADD_TO = ("index_add", "scatter_add", "scatter-add")
_SUMS = ("add", "sub", "add_any", "concatenate", "complex")
SAME = frozenset(
    {
        "convert_element_type",
        "copy",
        "copy_p",
        "reduce_precision",
        "sharding_constraint",
        "mesh_cast",
        "rev",
        "optimization_barrier",
        "name",
        "pvary",
    }
)
"""Operations that change no values of an array, only its type, its place in memory or the order of its elements."""

MOVES = frozenset(
    {"transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "dynamic_slice", "split"}
)
"""Operations that move elements, or drop some."""

_LINEAR = MOVES | SAME | {"gather", "reduce_sum", "neg", "real", "imag", "view_as_real", "view_as_complex"}


def carried(operation: "Operation") -> Paths:
    """Return the parameters that the results of an operation are proportional to.

    Parameters that it spends are noted. A product of two activations is noted by itself, since it can be multiplied
    through either of them.
    """
    if operation.name == "dot_general" and not _weights(operation) and all(v.dynamic for v in operation.given[:2]):
        left, right = (_unspent(operation, value) for value in operation.given[:2])
        operation.found.meetings[operation.key] = Meeting(left=left, right=right, terms=_terms(operation))
        return NOTHING if left and right else left | right
    given = [_unspent(operation, value) for value in operation.given]
    kept = _kept(operation, given)
    operation.found.spent.update(_union(given) - kept)
    return kept


def _terms(operation: "Operation") -> int:
    """Return the number of terms of the sums of a product."""
    axes: Sequence[int] = operation.params["dimension_numbers"][0][0]
    return prod(operation.shape(0)[axis] for axis in axes)


def _unspent(operation: "Operation", value: "Value") -> Paths:
    """Return what an array is proportional to; nothing if a factor on it would have other effects anyway."""
    return NOTHING if value.proportional & operation.found.spent else value.proportional


def _kept(operation: "Operation", given: list[Paths]) -> Paths:
    name, values = operation.name, operation.given
    if name in PRODUCTS:
        weights = _weights(operation)
        return linear_in(values[weights[0]]) if len(weights) == 1 else NOTHING
    if name in _LINEAR:
        return given[0]
    if name in _SUMS:  # of which every part must be proportional; and so must arrays side by side
        parts = [paths if value.dynamic else linear_in(value) for paths, value in zip(given, values, strict=True)]
        return _union(parts) if any(given) and all(parts) else NOTHING
    if name == "select_n":  # of which the other cases are zero, as in dropout, or proportional too
        chosen = [paths for paths, value in zip(given, values, strict=True) if value.flow.acted]
        return _union(chosen) if all(chosen) else NOTHING
    if name in _ADD_TO:  # what is constant before the first addition is zero
        before, added = given[0], given[-1]
        return (before | added if before and added else NOTHING) if values[0].dynamic else added
    if name == "mul":
        factors = [paths for paths in given if paths] or [linear_in(value) for value in values if value.is_weight]
        return factors[0] if len(factors) == 1 else NOTHING
    if name == "div" and not any(given[1:]):
        return given[0]
    return NOTHING


def _weights(operation: "Operation") -> list[int]:
    """Return which of two operands of a product are weights, or matrices that were looked up."""
    return [
        i
        for i, value in enumerate(operation.given[:2])
        if value.is_weight or any(len(view.all_axes) > 1 for view in value.views)
    ]


def linear_in(value: "Value") -> Paths:
    """Return the parameters that an array is made of, if a factor on all of them is a factor on the array."""
    if any(view.passed or not view.linear for view in value.views):
        return NOTHING
    return frozenset(view.path for view in value.views)


def _union(sets: Iterable[Paths]) -> Paths:
    return NOTHING.union(*sets)
