"""Parameterizations: the multiplier and initialization exponents of every layer (§2.1 and §3.1).

The network of the theory has an embedding, any number of hidden layers and a readout. A preset such as
`STANDARD` states one hidden layer; `with_hidden_layers` repeats it, so that depth is a property of the
network and not of the preset. Learning rates are not stored here: they are what `solve` finds.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from widthwise.theory.exact import HALF, Exact, exact

Pair: TypeAlias = tuple[Exact, Exact]


class Role(StrEnum):
    """What a layer is to width: how many of its two sides grow, and which."""

    EMBEDDING = "embedding"
    HIDDEN = "hidden"
    READOUT = "readout"


@dataclass(frozen=True, slots=True)
class Layer:
    """The exponents of one layer: its weights start at standard deviation n^-b and act times n^-a."""

    a: Fraction
    b: Fraction
    total: Fraction = field(init=False, repr=False, compare=False)
    """a + b: the weights start out acting with size n^-(a + b)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.a + self.b)

    @classmethod
    def of(cls, a: Exact, b: Exact) -> "Layer":
        """Make a layer from numbers in any exact form, e.g. `Layer.of(0, "1/2")`."""
        return cls(exact(a), exact(b))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameterization:
    """The layers of a network in the order of the forward pass, with a name to print."""

    name: str
    embedding: Layer
    hidden: tuple[Layer, ...]
    readout: Layer

    @classmethod
    def of(
        cls, *, embedding: Pair, hidden: Pair | list[Pair], readout: Pair, name: str = "custom"
    ) -> "Parameterization":
        """Make a parameterization from (a, b) pairs; `hidden` is one pair, or a list with one for each layer.

        >>> Parameterization.of(embedding=(0, 0), hidden=(0, "1/2"), readout=("1/2", "1/2")).readout
        Layer(a=Fraction(1, 2), b=Fraction(1, 2))
        """
        pairs = hidden if isinstance(hidden, list) else [hidden]
        return cls(
            name=name,
            embedding=Layer.of(*embedding),
            hidden=tuple(Layer.of(a, b) for a, b in pairs),
            readout=Layer.of(*readout),
        )

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, embedding first, readout last."""
        return (self.embedding, *self.hidden, self.readout)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each of `layers`: its role, numbered where there are several hidden layers."""
        count = len(self.hidden)
        hidden = (Role.HIDDEN.value,) if count == 1 else tuple(f"hidden.{i}" for i in range(1, count + 1))
        return (Role.EMBEDDING.value, *hidden, Role.READOUT.value)

    def with_hidden_layers(self, count: int) -> "Parameterization":
        """Give the same parameterization for a network with `count` hidden layers, which must all be alike."""
        if count < 0:
            raise ValueError(f"{count} hidden layers: expected 0 or more")
        if len(set(self.hidden)) != 1:
            raise ValueError(
                f"{self.name!r} has {len(self.hidden)} hidden layers that are not all alike: "
                "give (a, b) for each hidden layer instead of changing their number"
            )
        return replace(self, hidden=self.hidden[:1] * count)


_0, _1 = Fraction(0), Fraction(1)

STANDARD = Parameterization(
    name="standard", embedding=Layer(_0, _0), hidden=(Layer(_0, HALF),), readout=Layer(_0, HALF)
)
NTK = Parameterization(name="ntk", embedding=Layer(_0, _0), hidden=(Layer(HALF, _0),), readout=Layer(HALF, _0))
MUP = Parameterization(name="mup", embedding=Layer(-HALF, HALF), hidden=(Layer(_0, HALF),), readout=Layer(HALF, HALF))
MEAN_FIELD = Parameterization(
    name="mean_field", embedding=Layer(_0, _0), hidden=(Layer(HALF, _0),), readout=Layer(_1, _0)
)

PARAMETERIZATIONS = MappingProxyType({p.name: p for p in (STANDARD, NTK, MUP, MEAN_FIELD)})
"""The presets by name; `mup` is the variant of Yang & Hu (2021), as in the paper."""
