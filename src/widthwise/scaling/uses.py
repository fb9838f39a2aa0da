"""How a parameter is used in the forward pass: what its role is derived from, whatever framework traced it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from widthwise.scaling.axes import Axes

Kind: TypeAlias = Literal["product", "lookup", "elementwise"]
"""A sum over inputs, a selection of entries, or an operation on every element, such as adding a bias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One use of a parameter.

    Attributes:
        path: The parameter.
        kind: How it is used.
        axes: Which of its axes are summed over (or selected from), produced, or enumerate layers.
        fan_in: The number of terms in the sum; 1 for a lookup and for an elementwise use.
        fan_out: The number of elements produced, per layer.
        inner: Whether the result reaches another product, with a parameter or an activation.
        linear: Whether the result is linear in the parameter.
        meets_parameter: Whether what it sums over is another parameter, not an activation.
        gains: Vectors that set the size of what a product acts on, and are used for nothing else: the scale and bias
            of a final norm, for instance.
    """

    path: str
    kind: Kind
    axes: Axes
    fan_in: int
    fan_out: int
    inner: bool = False
    linear: bool = True
    meets_parameter: bool = False
    gains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A product of two activations, such as that of queries and keys.

    Attributes:
        left: Parameters whose common factor is a factor of the left activation.
        right: Parameters whose common factor is a factor of the right activation.
        terms: The number of terms of the sum; for queries and keys, the size of a head.
    """

    left: frozenset[str]
    right: frozenset[str]
    terms: int
