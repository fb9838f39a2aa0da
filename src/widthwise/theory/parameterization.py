"""Parameterizations: the multiplier and initialization exponents of every layer (§2.1 and §3.1).

The network of the theory has an embedding, any number of hidden layers and a readout. A preset such as `STANDARD`
defines one hidden layer, and `with_hidden_layers` repeats it: depth is a property of the network, not of the preset.
Learning rates are not stored here; `solve` finds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any, TypeAlias

from widthwise.theory.exact import HALF, Exact, exact

Pair: TypeAlias = tuple[Exact, Exact]


class Role(StrEnum):
    """How a layer grows with width: on its output side, on both sides, or on its input side."""

    EMBEDDING = "embedding"
    HIDDEN = "hidden"
    READOUT = "readout"


@dataclass(frozen=True, slots=True, init=False)
class Layer:
    """The exponents of a layer: initial standard deviation n^-b, multiplier n^-a.

    >>> Layer(0, "1/2")
    Layer(a=Fraction(0, 1), b=Fraction(1, 2))
    """

    a: Fraction
    b: Fraction
    total: Fraction = field(repr=False, compare=False)
    """a + b; the initial weights times the multiplier have size n^-(a + b)."""

    def __init__(self, a: Exact, b: Exact) -> None:
        object.__setattr__(self, "a", exact(a))
        object.__setattr__(self, "b", exact(b))
        object.__setattr__(self, "total", self.a + self.b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameterization:
    """The layers of a network in the order of the forward pass, and a name to print."""

    name: str
    embedding: Layer
    hidden: tuple[Layer, ...]
    readout: Layer

    @classmethod
    def of(
        cls, *, embedding: Pair, hidden: Pair | Sequence[Pair], readout: Pair, name: str = "custom"
    ) -> "Parameterization":
        """Create a parameterization from (a, b) pairs; `hidden` is one pair, or a list with one pair per layer.

        >>> Parameterization.of(embedding=(0, 0), hidden=(0, "1/2"), readout=("1/2", "1/2")).readout
        Layer(a=Fraction(1, 2), b=Fraction(1, 2))
        """
        several = all(isinstance(pair, Sequence) and not isinstance(pair, str) for pair in hidden)
        return cls(
            name=name,
            embedding=_layer(embedding),
            hidden=tuple(_layer(pair) for pair in (hidden if several else [hidden])),
            readout=_layer(readout),
        )

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, embedding first, readout last."""
        return (self.embedding, *self.hidden, self.readout)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The role of each layer."""
        return (Role.EMBEDDING, *(Role.HIDDEN for _ in self.hidden), Role.READOUT)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each layer: its role, numbered if there are several hidden layers."""
        count = len(self.hidden)
        hidden = (Role.HIDDEN.value,) if count == 1 else tuple(f"hidden.{i}" for i in range(1, count + 1))
        return (Role.EMBEDDING.value, *hidden, Role.READOUT.value)

    def per_layer(self, values: Sequence[Exact]) -> tuple[Fraction, ...]:
        """Read one number per layer; raise if their count is wrong."""
        if len(values) != len(self.labels):
            expected = f"one for each of {', '.join(self.labels)}"
            raise ValueError(f"{len(values)} numbers for {len(self.labels)} layers: expected {expected}")
        return tuple(exact(value) for value in values)

    def with_hidden_layers(self, count: int) -> "Parameterization":
        """Return the same parameterization with `count` hidden layers; the present ones must all be alike."""
        if count < 0:
            raise ValueError(f"{count} hidden layers: expected 0 or more")
        if not self.hidden:
            raise ValueError(f"{self.name!r} has no hidden layer to repeat")
        if len(set(self.hidden)) > 1:
            raise ValueError(
                f"{self.name!r} has {len(self.hidden)} hidden layers that are not all alike: "
                "give (a, b) for each hidden layer instead of changing their number"
            )
        return replace(self, hidden=self.hidden[:1] * count)


def _layer(pair: Any) -> Layer:
    if len(pair) != 2:
        raise ValueError(f"{pair!r} is not a pair (a, b) of exponents")
    return Layer(*pair)


STANDARD = Parameterization.of(name="standard", embedding=(0, 0), hidden=(0, HALF), readout=(0, HALF))
NTK = Parameterization.of(name="ntk", embedding=(0, 0), hidden=(HALF, 0), readout=(HALF, 0))
MUP = Parameterization.of(name="mup", embedding=(-HALF, HALF), hidden=(0, HALF), readout=(HALF, HALF))
MEAN_FIELD = Parameterization.of(name="mean_field", embedding=(0, 0), hidden=(HALF, 0), readout=(1, 0))

PARAMETERIZATIONS = MappingProxyType({p.name: p for p in (STANDARD, NTK, MUP, MEAN_FIELD)})
"""The presets by name; `mup` is the variant of Yang & Hu (2021), as in the paper."""
