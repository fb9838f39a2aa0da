"""Alignment: how much more than by chance two factors of a matrix product add up (§3.3).

For the three terms in which a layer's output changes, ΔW·z, W·Δz and ΔW·Δz, the exponents alpha, omega and u
say how the product's size relates to the sizes of its factors: 1/2 for independent factors, 1 for aligned ones.
The embedding has none, since it sums over the input's dimension, which does not grow.
"""

from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from widthwise.theory.exact import HALF, Exact, exact

ByRole: TypeAlias = Exact | tuple[Exact, Exact]
"""One exponent for all layers, or (hidden, readout)."""


@dataclass(frozen=True, slots=True, init=False)
class LayerAlignment:
    """The alignment exponents of one layer, each from 0 to 1: of ΔW·z, of W·Δz and of ΔW·Δz."""

    alpha: Fraction
    omega: Fraction
    u: Fraction

    def __init__(self, alpha: Exact, omega: Exact, u: Exact) -> None:
        for name, value in (("alpha", exact(alpha)), ("omega", exact(omega)), ("u", exact(u))):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}: expected a number from 0 to 1")
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """An assumption about alignment in every layer but the embedding.

    Attributes:
        name: What to call it.
        hidden: One entry that holds for every hidden layer of a network of any depth, or one for each.
        readout: The readout's.
    """

    name: str = "custom"
    hidden: tuple[LayerAlignment, ...]
    readout: LayerAlignment

    @classmethod
    def of(cls, *, alpha: ByRole, omega: ByRole, u: ByRole, name: str = "custom") -> "Alignment":
        """Make an alignment from one number for all layers, or a pair (hidden, readout), for each exponent.

        >>> Alignment.of(alpha="3/4", omega=("1/2", 1), u="3/4").readout.omega
        Fraction(1, 1)
        """
        pairs = [x if isinstance(x, tuple) else (x, x) for x in (alpha, omega, u)]
        for pair in pairs:
            if len(pair) != 2:
                raise ValueError(f"{pair!r}: expected one number, or a pair (hidden, readout)")
        hidden, readout = (LayerAlignment(*numbers) for numbers in zip(*pairs, strict=True))
        return cls(name=name, hidden=(hidden,), readout=readout)

    def layers(self, hidden_layers: int) -> tuple[LayerAlignment, ...]:
        """Give the alignment of each hidden layer of a network that has this many, then the readout's."""
        if len(self.hidden) == 1:
            return (*self.hidden * hidden_layers, self.readout)
        if len(self.hidden) != hidden_layers:
            raise ValueError(
                f"alignment {self.name!r} is given for {len(self.hidden)} hidden layers "
                f"but the network has {hidden_layers}: give one for each hidden layer, or one for all"
            )
        return (*self.hidden, self.readout)


FULL = Alignment.of(name="full", alpha=1, omega=HALF, u=1)
NONE = Alignment.of(name="none", alpha=HALF, omega=HALF, u=HALF)
TENSOR_PROGRAMS = Alignment.of(name="tensor_programs", alpha=1, omega=(HALF, 1), u=1)

ALIGNMENTS = MappingProxyType({a.name: a for a in (FULL, NONE, TENSOR_PROGRAMS)})
"""The named assumptions. Under `tensor_programs`, u does not matter as long as it is at most alpha = 1."""
