"""How the learning rate of each layer follows from the base rate: three variants of one value.

The paper compares rates per layer that assume an alignment with one global rate; users may also bring exponents.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from widthwise.theory.alignment import ALIGNMENTS, FULL
from widthwise.theory.checker import Assessment, check
from widthwise.theory.exact import exact
from widthwise.theory.families import Family
from widthwise.theory.parameterization import Parameterization
from widthwise.theory.solver import solve


@dataclass(frozen=True)
class Aligned:
    """The largest stable rates under a named alignment assumption."""

    alignment: str = "full"

    def __post_init__(self) -> None:
        if self.alignment not in ALIGNMENTS:
            raise ValueError(f"alignment is {self.alignment!r}: expected one of {', '.join(RATE_RULES)}")

    @property
    def name(self) -> str:
        """The name of the assumption."""
        return self.alignment

    @property
    def text(self) -> str:
        """The rule as it is written on the command line."""
        return self.alignment

    @property
    def title(self) -> str:
        """The rule in words."""
        return f"{self.alignment} alignment"

    def exponents(self, network: Parameterization, family: Family) -> Assessment:
        """Return the exponents of every layer with the theory's verdict."""
        return solve(network, family, ALIGNMENTS[self.alignment])


@dataclass(frozen=True)
class Global:
    """The same rate for every parameter at every width."""

    name = text = "global"
    title = "one global learning rate"

    def exponents(self, network: Parameterization, family: Family) -> Assessment:
        """Return the exponents of every layer with the theory's verdict."""
        return check(network, [0] * len(network.layers), family, FULL)


@dataclass(frozen=True)
class Own:
    """Exponents of the user's own for embedding, hidden and readout."""

    exponents_of_n: tuple[Fraction, Fraction, Fraction]

    name = "own"
    title = "learning rates of your own"

    @property
    def text(self) -> str:
        """The rule as it is written on the command line."""
        return ",".join(map(str, self.exponents_of_n))

    def exponents(self, network: Parameterization, family: Family) -> Assessment:
        """Return the exponents of every layer with the theory's verdict."""
        return check(network, [-exponent for exponent in self.exponents_of_n], family, FULL)


RateRule: TypeAlias = Aligned | Global | Own

FULL_ALIGNMENT = Aligned("full")
"""The default rule."""

RATE_RULES = (*ALIGNMENTS, Global.name)
"""The rules that have a name of their own."""


def read_rates(text: str) -> RateRule:
    """Return the rule for a name, or for three exponents.

    >>> read_rates("global"), read_rates("none").title, read_rates("0,-1,-1/2").text
    (Global(), 'none alignment', '0,-1,-1/2')
    """
    if text == Global.name:
        return Global()
    return read_exponents(text) if "," in text else Aligned(text)


def read_exponents(text: str) -> Own:
    """Return the rule for the exponents of embedding, hidden and readout, joined by commas."""
    match tuple(exact(part) for part in text.split(",")):
        case (embedding, hidden, readout):
            return Own((embedding, hidden, readout))
        case _:
            raise ValueError(f"rates are {text!r}: expected three, for embedding, hidden and readout: 0,-1,-1")
