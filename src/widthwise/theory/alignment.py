"""Alignment: how much more than by chance the two factors of a matrix product add up (§3.3).

The output of a layer changes through three terms: ΔW·z, W·Δz and ΔW·Δz. Their exponents alpha, omega and u relate the
size of the product to the sizes of its factors: 1/2 for independent factors, 1 for aligned ones. The embedding has
none, because it sums over the dimension of the input, which does not grow.
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
        name: The name to print.
        hidden: One entry for all hidden layers, whatever the depth of the network, or one entry per layer.
        readout: The alignment of the readout.
    """

    name: str = "custom"
    hidden: tuple[LayerAlignment, ...]
    readout: LayerAlignment

    @classmethod
    def of(cls, *, alpha: ByRole, omega: ByRole, u: ByRole, name: str = "custom") -> "Alignment":
        """Create an alignment; each exponent is one number for all layers, or a pair (hidden, readout).

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
        """Return the alignment of each of `hidden_layers` hidden layers, followed by that of the readout."""
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
