"""Optimizer families: how the size of an update depends on rate, gradient and parameter (§2.1, appendix).

With learning rate n^-c, gradient n^-g and initialization n^-b, the first update has size n^-d, where
d = c + gradient_power·g + parameter_power·b + size. That is all the theory needs to know about an optimizer, so a new
family is a new value. Sign descent, for example, is `OptimizerFamily(name="sign")`.

Orthogonalized updates (Muon) go beyond the paper. The update of a matrix is O, with all singular values 1, times a
factor that depends on its shape. The entries of O have size 1 / √max(out, in), which is n^-1/2 in every role, and the
factor contributes another power, which differs between roles. A square O keeps the length of whatever it acts on. So
in a hidden layer the size of ΔW·z does not depend on how aligned the two are, and no alignment assumption enters.
docs/theory.md derives this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from widthwise.theory.alignment import LayerAlignment
from widthwise.theory.exact import HALF, Exact, exact
from widthwise.theory.parameterization import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFamily:
    """The powers of gradient and parameter to which updates are proportional.

    Attributes:
        name: The name to print.
        gradient_power: 1 if updates are proportional to the gradient, 0 if the gradient is normalized. Any value from 0
            up is allowed.
        parameter_power: 1 if updates are multiplied by the size of the parameter they change, else 0.
        size: Updates are smaller by n^-size than these two and the learning rate say.
        isometric: Whether updates keep the length of what they act on, up to a factor.
    """

    name: str
    gradient_power: Fraction = Fraction(0)
    parameter_power: int = 0
    size: Fraction = Fraction(0)
    isometric: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "gradient_power", exact(self.gradient_power))
        object.__setattr__(self, "size", exact(self.size))
        if self.gradient_power < 0:
            raise ValueError(f"gradient_power of {self.name!r} is {self.gradient_power}: expected 0 or more")
        if self.parameter_power not in (0, 1):
            raise ValueError(f"parameter_power of {self.name!r} is {self.parameter_power}: expected 0 or 1")

    def at(self, role: Role) -> "OptimizerFamily":
        """Return the family of layers in a role: this one."""
        del role
        return self

    def update(self, *, b: Fraction, c: Fraction, g: Fraction) -> Fraction:
        """Return d; the update has size n^-d."""
        return self.growth(c=c, g=g) + self.parameter_power * b

    def rate(self, *, b: Fraction, d: Fraction, g: Fraction) -> Fraction:
        """Return the c for which the update has size n^-d: the inverse of `update`."""
        return d - self.gradient_power * g - self.parameter_power * b - self.size

    def growth(self, *, c: Fraction, g: Fraction) -> Fraction:
        """Return the exponent of the factor by which parameter scaling multiplies a weight at every step."""
        return c + self.gradient_power * g + self.size

    def aligned(self, alignment: LayerAlignment) -> LayerAlignment:
        """Return the alignment of a layer's updates: that of chance if they are isometric."""
        return LayerAlignment(HALF, alignment.omega, HALF) if self.isometric else alignment

    @property
    def rate_correction(self) -> Fraction:
        """How much c decreases per unit of θ when a layer moves to (a + θ, b − θ) and must train as before.

        The effective update n^-(a + d) must not change. Moving adds θ to a and to g and subtracts θ from b.
        """
        return 1 + self.gradient_power - self.parameter_power


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedFamily:
    """A family for each role: an optimizer for the hidden matrices and another for the rest, for instance.

    >>> mixed = MixedFamily(name="muon + adam", embedding=ADAM, hidden=MUON.hidden, readout=ADAM)
    >>> mixed.at(Role.HIDDEN).isometric
    True
    """

    name: str
    embedding: OptimizerFamily
    hidden: OptimizerFamily
    readout: OptimizerFamily

    @property
    def gradient_power(self) -> Fraction:
        """The largest of those of the roles: above 0 if the size of any gradient matters."""
        return max(each.gradient_power for each in (self.embedding, self.hidden, self.readout))

    def at(self, role: Role) -> OptimizerFamily:
        """Return the family of layers in a role."""
        return {Role.EMBEDDING: self.embedding, Role.HIDDEN: self.hidden, Role.READOUT: self.readout}[role]


Family: TypeAlias = OptimizerFamily | MixedFamily


def orthogonalized(name: str, *, embedding: Exact, hidden: Exact, readout: Exact) -> MixedFamily:
    """Return the family of orthogonalized updates.

    Args:
        name: The name to print.
        embedding: The exponent of n of the factor on O in this role.
        hidden: The same in hidden layers.
        readout: The same in the readout.
    """

    def of(role: Role, factor: Exact) -> OptimizerFamily:
        return OptimizerFamily(name=name, size=HALF - exact(factor), isometric=role is Role.HIDDEN)

    return MixedFamily(
        name=name,
        embedding=of(Role.EMBEDDING, embedding),
        hidden=of(Role.HIDDEN, hidden),
        readout=of(Role.READOUT, readout),
    )


SGD = OptimizerFamily(name="sgd", gradient_power=Fraction(1))
ADAM = OptimizerFamily(name="adam")
ADAFACTOR = OptimizerFamily(name="adafactor", parameter_power=1)

FAMILIES = MappingProxyType({f.name: f for f in (SGD, ADAM, ADAFACTOR)})
"""The paper's families by name. Adam with parameter scaling belongs to Adafactor's."""

MUON_FACTORS: Mapping[str, MixedFamily] = MappingProxyType(
    {
        "sqrt(max(1,out/in))": orthogonalized("muon", embedding="1/2", hidden=0, readout=0),
        "sqrt(out/in)": orthogonalized("muon_out_in", embedding="1/2", hidden=0, readout="-1/2"),
        "sqrt(max(out,in))": orthogonalized("muon_max", embedding="1/2", hidden="1/2", readout="1/2"),
    }
)
"""Muon's families by the formula of the factor on O.

The names that projects give to these formulas contradict each other, so here the formula is the name. Constants such as
the 0.2 of 0.2·√max(out, in) do not change exponents.
"""

MUON = MUON_FACTORS["sqrt(max(1,out/in))"]
MUON_OUT_IN = MUON_FACTORS["sqrt(out/in)"]
MUON_MAX = MUON_FACTORS["sqrt(max(out,in))"]


def with_adam(muon: MixedFamily) -> MixedFamily:
    """Return the usual mixture: orthogonalized updates for hidden matrices, Adam's for embedding and readout.

    >>> with_adam(MUON).name
    'muon+adam'
    """
    return MixedFamily(name=f"{muon.name}+adam", embedding=ADAM, hidden=muon.hidden, readout=ADAM)


ALL_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **FAMILIES,
        **{family.name: family for family in MUON_FACTORS.values()},
        **{mixed.name: mixed for mixed in map(with_adam, MUON_FACTORS.values())},
    }
)
"""All families by name: the paper's, and what goes beyond it."""
