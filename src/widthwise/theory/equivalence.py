"""Equivalence: different exponents, the same network (§3.2).

A layer acts only through n^-a W. Moving it to (a + θ, b − θ) does not change that product at initialization, and the
product trains as before if c is reduced by the family's correction: 2θ for SGD, θ for Adam, 0 for Adafactor. This holds
in exact arithmetic; in floating point, or with an epsilon, members of a class can differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from widthwise.theory.exact import Exact, exact
from widthwise.theory.families import Family
from widthwise.theory.parameterization import PARAMETERIZATIONS, Layer, Parameterization


def move(parameterization: Parameterization, theta: Sequence[Exact], name: str = "custom") -> Parameterization:
    """Move each layer by its own θ, to (a + θ, b − θ).

    >>> from widthwise.theory import NTK, STANDARD
    >>> move(STANDARD, [0, "1/2", "1/2"], name="ntk") == NTK
    True
    """
    by = parameterization.per_layer(theta)
    embedding, *hidden, readout = (
        Layer(layer.a + t, layer.b - t) for layer, t in zip(parameterization.layers, by, strict=True)
    )
    return replace(parameterization, name=name, embedding=embedding, hidden=tuple(hidden), readout=readout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How two parameterizations of the same depth relate.

    Attributes:
        first: One of them.
        second: The other.
        theta: How far each layer of `first` moves to become that of `second`; None if they differ at
            initialization.
        differing: The labels of the layers whose initial sizes n^-(a + b) differ.
    """

    first: Parameterization
    second: Parameterization
    theta: tuple[Fraction, ...] | None
    differing: tuple[str, ...]

    @property
    def equivalent_at_init(self) -> bool:
        """Whether the two compute the same function before training."""
        return self.theta is not None

    def rates(self, rates: Sequence[Exact], family: Family) -> tuple[Fraction, ...]:
        """Return the rates c with which `second` trains exactly like `first` with `rates`."""
        if self.theta is None:
            raise ValueError(
                f"no learning rates make {self.second.name!r} train as {self.first.name!r}: "
                f"they start at different sizes in {', '.join(self.differing)}"
            )
        given = self.first.per_layer(rates)
        corrections = [family.at(role).rate_correction for role in self.first.roles]
        return tuple(c - correction * t for c, correction, t in zip(given, corrections, self.theta, strict=True))

    def equivalent_in_training(self, rates: Sequence[Exact], second_rates: Sequence[Exact], family: Family) -> bool:
        """Return whether `first` with `rates` trains exactly like `second` with `second_rates`."""
        wanted = self.second.per_layer(second_rates)
        return self.theta is not None and self.rates(rates, family) == wanted


def compare(first: Parameterization, second: Parameterization) -> Comparison:
    """Compare two parameterizations: whether they are equivalent, and by which move.

    >>> from widthwise.theory import ADAM, FULL, NTK, STANDARD, MUP, solve
    >>> compare(STANDARD, MUP).differing
    ('readout',)
    >>> rates = compare(STANDARD, NTK).rates(solve(STANDARD, ADAM, FULL).rates, ADAM)
    >>> rates == solve(NTK, ADAM, FULL).rates
    True
    """
    if first.labels != second.labels:
        raise ValueError(
            f"{first.name!r} has {len(first.hidden)} hidden layers and {second.name!r} has "
            f"{len(second.hidden)}: only networks of the same depth can be compared"
        )
    pairs = list(zip(first.labels, first.layers, second.layers, strict=True))
    differing = tuple(label for label, x, y in pairs if x.total != y.total)
    theta = None if differing else tuple(y.a - x.a for _, x, y in pairs)
    return Comparison(first=first, second=second, theta=theta, differing=differing)


@dataclass(frozen=True, slots=True)
class EquivalenceClass:
    """All parameterizations that compute the same function at initialization.

    Attributes:
        sums: a + b of every layer, which all members share. In the (a, b) plane, the class of a layer is the line of
            constant a + b.
    """

    sums: tuple[Fraction, ...]

    @classmethod
    def of(cls, parameterization: Parameterization) -> "EquivalenceClass":
        """Return the class of a parameterization."""
        return cls(tuple(layer.total for layer in parameterization.layers))

    def __contains__(self, parameterization: Parameterization) -> bool:
        return EquivalenceClass.of(parameterization) == self

    @property
    def presets(self) -> tuple[Parameterization, ...]:
        """The presets in the class, at its depth.

        >>> from widthwise.theory import MUP
        >>> [p.name for p in EquivalenceClass.of(MUP).presets]
        ['mup', 'mean_field']
        """
        all_presets = (p.with_hidden_layers(len(self.sums) - 2) for p in PARAMETERIZATIONS.values())
        return tuple(p for p in all_presets if p in self)

    def member(self, a: Sequence[Exact], name: str = "custom") -> Parameterization:
        """Return the member whose multipliers are n^-a; with zeros, the one that needs no multipliers."""
        if len(a) != len(self.sums):
            raise ValueError(f"{len(a)} multipliers for {len(self.sums)} layers: expected one for each")
        embedding, *hidden, readout = (Layer(x, total - exact(x)) for x, total in zip(a, self.sums, strict=True))
        return Parameterization(name=name, embedding=embedding, hidden=tuple(hidden), readout=readout)
