"""`widthwise exponents`: the paper's Table 1, any other case, or a verdict on exponents one brings."""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, TypeAlias

from widthwise.cli import exponent_tables
from widthwise.cli.arguments import count, named, numbers, unset
from widthwise.theory import (
    ALIGNMENTS,
    FAMILIES,
    FULL,
    NONE,
    PARAMETERIZATIONS,
    Alignment,
    Assessment,
    Layer,
    OptimizerFamily,
    Parameterization,
    check,
    exact,
    solve,
    to_json,
)

Numbers: TypeAlias = tuple[Fraction, ...]
ByRole: TypeAlias = Annotated[Numbers | None, numbers("X or HIDDEN,READOUT", 1, 2)]
OwnLayer: TypeAlias = Annotated[Numbers | None, numbers("A,B or A,B,C", 2, 3), unset("the presets")]


@dataclass(frozen=True, kw_only=True)
class Exponents:
    """Largest stable learning-rate exponents, and whether they are stable, nontrivial and learn features.

    Without options: the paper's Table 1. Every number printed is an exponent of the width n: -1/2 means
    n^-1/2. Options narrow the table down to some cases, or define a case of your own.
    """

    parameterization: Annotated[Parameterization | None, named(PARAMETERIZATIONS), unset("all")] = None
    """Which initialization and multipliers."""
    optimizer: Annotated[OptimizerFamily | None, named(FAMILIES), unset("all")] = None
    """Which family of optimizers. Adam with parameter scaling belongs to adafactor."""
    alignment: Annotated[Alignment | None, named(ALIGNMENTS), unset("full and none")] = None
    """How much of weights, updates and activations is assumed to be aligned."""
    alpha: Annotated[ByRole, unset("that of --alignment")] = None
    """Alignment of ΔW·z, from 0 to 1: one number for all layers, or hidden,readout. 1/2 is none, 1 is full."""
    omega: Annotated[ByRole, unset("that of --alignment, else 1/2")] = None
    """Alignment of W·Δz, likewise."""
    u: Annotated[ByRole, unset("that of --alignment, else alpha")] = None
    """Alignment of ΔW·Δz, likewise."""
    layers: Annotated[int, count("N", most=1000)] = 1
    """Number of hidden layers, at most 1000. Rates can depend on it where omega is not 1/2 in hidden layers."""
    embedding: OwnLayer = None
    """Your own embedding: multiplier n^-A, initial standard deviation n^-B. With C: check learning rate n^-C."""
    hidden: OwnLayer = None
    """Your own hidden layers, likewise. All three go together."""
    readout: OwnLayer = None
    """Your own readout, likewise."""
    json: bool = False
    """Print JSON: one object for one case, a list for several."""

    def run(self) -> int:
        """Print the cases that the options select."""
        cases = self.cases()
        solved = len(self.embedding or ()) < 3
        if self.json:
            values = [to_json(case) for case in cases]
            print(json.dumps(values[0] if len(cases) == 1 else values, indent=2))
        elif len(cases) == 1:
            exponent_tables.show_case(cases[0], solved=solved)
        else:
            exponent_tables.show_cases(cases, solved=solved)
        return 0

    def cases(self) -> list[Assessment]:
        """Solve, or check, every case that the options select."""
        networks, rates = self._networks()
        families = [self.optimizer] if self.optimizer else list(FAMILIES.values())
        return [
            check(network, rates, family, alignment) if rates else solve(network, family, alignment)
            for network in networks
            for alignment in self._alignments()
            for family in families
        ]

    def _networks(self) -> tuple[list[Parameterization], Numbers | None]:
        """Give the parameterizations asked for and, where they were given, the rates to check."""
        own = {"--embedding": self.embedding, "--hidden": self.hidden, "--readout": self.readout}
        given = {option: value for option, value in own.items() if value is not None}
        if not given:
            chosen = [self.parameterization] if self.parameterization else list(PARAMETERIZATIONS.values())
            return [preset.with_hidden_layers(self.layers) for preset in chosen], None
        if missing := [option for option in own if option not in given]:
            raise ValueError(
                f"{' and '.join(missing)} missing: own exponents need all of {', '.join(own)}, each A,B or A,B,C"
            )
        if self.parameterization:
            raise ValueError(f"--parameterization {self.parameterization.name} and own exponents exclude each other")
        if len({len(value) for value in given.values()}) > 1:
            written = ", ".join(f"{option} {','.join(map(str, value))}" for option, value in given.items())
            raise ValueError(f"{written}: give C for every layer (to check) or for none (to solve)")

        embedding, hidden, readout = given.values()
        network = Parameterization(
            name="custom",
            embedding=Layer(*embedding[:2]),
            hidden=(Layer(*hidden[:2]),),
            readout=Layer(*readout[:2]),
        ).with_hidden_layers(self.layers)
        rates = (*embedding[2:], *hidden[2:] * self.layers, *readout[2:])
        return [network], rates or None

    def _alignments(self) -> list[Alignment]:
        if self.alpha is None and self.omega is None and self.u is None:
            return [self.alignment] if self.alignment else [FULL, NONE]
        base = self.alignment
        if self.alpha is None and base is None:
            raise ValueError("--alpha missing: give it, or name an --alignment whose numbers --omega and --u replace")

        def pair(given: Numbers | None, name: str, otherwise: Numbers | None) -> tuple[Fraction, Fraction]:
            if given is None and base is not None:
                return getattr(base.hidden[0], name), getattr(base.readout, name)
            value = given or otherwise or (exact("1/2"),)
            return value[0], value[-1]

        return [
            Alignment.of(
                alpha=pair(self.alpha, "alpha", None),
                omega=pair(self.omega, "omega", None),
                u=pair(self.u, "u", self.alpha),
            )
        ]
