"""`widthwise exponents`: the paper's Table 1, any other case, or a verdict on your own exponents."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Annotated, Any, TypeAlias

from widthwise.cli.arguments import count, named, numbers, read_by, unset
from widthwise.cli.depth import tabulate_depth, tabulate_depth_decay
from widthwise.cli.equilibria import HEADINGS, MISSING, decay_rows
from widthwise.cli.output import table
from widthwise.theory import (
    ALIGNED_UPDATES,
    ALIGNMENTS,
    ALL_FAMILIES,
    DECAY_RULES,
    DEPTH_RULES,
    FAMILIES,
    FULL,
    NONE,
    PARAMETERIZATIONS,
    Alignment,
    Assessment,
    Constraint,
    DecayRule,
    DepthRule,
    Family,
    Layer,
    Parameterization,
    assess_depth,
    check,
    decay_to_json,
    depth_to_json,
    equilibria,
    exact,
    limits,
    power_of_n,
    read_depth_rule,
    solve,
    to_json,
)

TRIVIAL = "*"
NO_FEATURES = "°"
UNSTABLE = "!"

Numbers: TypeAlias = tuple[Fraction, ...]
HiddenReadout: TypeAlias = Annotated[Numbers | None, numbers("X or HIDDEN,READOUT", 1, 2)]
OwnLayer: TypeAlias = Annotated[Numbers | None, numbers("A,B or A,B,C", 2, 3), unset("the presets")]


def _read_depth(text: str) -> tuple[DepthRule, ...]:
    return tuple(DEPTH_RULES.values()) if text == "all" else (read_depth_rule(text),)


@dataclass(frozen=True, kw_only=True)
class ExponentsCommand:
    """Print the largest stable learning-rate exponents, and whether they are nontrivial and learn features.

    Without options, this is the paper's Table 1. Every number is an exponent of the width n: -1/2 means n^-1/2. Options
    select some of the cases, or define your own.
    """

    parameterization: Annotated[Parameterization | None, named(PARAMETERIZATIONS), unset("all")] = None
    """The parameterization: initialization and multipliers."""
    optimizer: Annotated[Family | None, named(ALL_FAMILIES), unset("sgd, adam and adafactor")] = None
    """The family of optimizers. Adam with parameter scaling belongs to adafactor. muon has a factor of
    sqrt(max(1,out/in)) on its updates, muon_out_in sqrt(out/in), muon_max sqrt(max(out,in)); with +adam, embedding and
    readout are trained by Adam."""
    alignment: Annotated[Alignment | None, named(ALIGNMENTS), unset("full and none")] = None
    """How much of weights, updates and activations is assumed to be aligned."""
    alpha: Annotated[HiddenReadout, unset("that of --alignment")] = None
    """Alignment of ΔW·z, from 0 to 1: one number for all layers, or hidden,readout. 1/2 is none, 1 is full."""
    omega: Annotated[HiddenReadout, unset("that of --alignment, else 1/2")] = None
    """Alignment of W·Δz, in the same form."""
    u: Annotated[HiddenReadout, unset("that of --alignment, else alpha")] = None
    """Alignment of ΔW·Δz, in the same form."""
    layers: Annotated[int, count("N", most=1000)] = 1
    """Number of hidden layers, at most 1000. Rates can depend on it where omega is not 1/2 in hidden layers."""
    embedding: OwnLayer = None
    """Your own embedding: multiplier n^-A, initial standard deviation n^-B. With C: check learning rate n^-C."""
    hidden: OwnLayer = None
    """Your own hidden layers, in the same form. All three go together."""
    readout: OwnLayer = None
    """Your own readout, in the same form."""
    decay_rule: Annotated[
        tuple[DecayRule, ...] | None,
        named({**{name: (rule,) for name, rule in DECAY_RULES.items()}, "all": tuple(DECAY_RULES.values())}),
        unset("learning rates only"),
    ] = None
    """Show what weight decay leads to under a rule, or under all of them, in place of the learning rates. independent:
    a step removes the same part of every weight at every width. coupled: a constant decay times the scaled learning
    rate. sqrt: sqrt(n) times the scaled learning rate in hidden layers, none elsewhere. inverse: 1/n."""
    depth: Annotated[
        tuple[DepthRule, ...] | None,
        read_by("{" + ",".join((*DEPTH_RULES, "all")) + ",A}", _read_depth),
        unset("width only"),
    ] = None
    """Show exponents of the number L of residual blocks under a rule, or under all of them: after those of the width
    if the other options select one case, else alone. completep: branches are multiplied by 1/L. sqrt: by 1/sqrt(L).
    constant: nothing changes. A number A: branches are multiplied by L^-A. With --decay-rule, show what weight decay
    leads to as depth grows."""
    json: bool = False
    """Print JSON: one object for one case, a list for several."""

    def run(self) -> int:
        """Print the cases that the options select."""
        cases = self.cases()
        solved = len(self.embedding or ()) < 3
        rules = self.decay_rule or ()
        if self.json:
            values = [_to_json(case, rules, self.depth or ()) for case in cases]
            print(json.dumps(values[0] if len(cases) == 1 else values, indent=2))
            return 0
        if len(cases) == 1 or not self.depth:
            print(_tabulate(cases, rules, solved=solved), end="\n\n" if self.depth else "\n")
        if self.optimizer is not None and (mixture := f"{self.optimizer.name}+adam") in ALL_FAMILIES:
            print(
                f"{self.optimizer.name} trains every layer here; in plans and training, Adam trains all but the hidden"
            )
            print(f"matrices: --optimizer {mixture}")
        if self.depth:
            deep = [assess_depth(rule, family) for rule in self.depth for family in self._families()]
            print(tabulate_depth_decay(deep, rules) if rules else tabulate_depth(deep))
        return 0

    def cases(self) -> list[Assessment]:
        """Solve, or check, every case that the options select."""
        networks, rates = self._networks()
        return [
            check(network, rates, family, alignment) if rates else solve(network, family, alignment)
            for network in networks
            for alignment in self._alignments()
            for family in self._families()
        ]

    def _families(self) -> list[Family]:
        return [self.optimizer] if self.optimizer else list(FAMILIES.values())

    def _networks(self) -> tuple[list[Parameterization], Numbers | None]:
        """Return the selected parameterizations and, if they were given, the rates to check."""
        own = {"--embedding": self.embedding, "--hidden": self.hidden, "--readout": self.readout}
        given = {option: value for option, value in own.items() if value is not None}
        if not given:
            chosen = [self.parameterization] if self.parameterization else list(PARAMETERIZATIONS.values())
            return [preset.with_hidden_layers(self.layers) for preset in chosen], None
        if missing := [option for option in own if option not in given]:
            raise ValueError(
                f"{' and '.join(missing)} missing: your own exponents need all of {', '.join(own)}, each A,B or A,B,C"
            )
        if self.parameterization:
            raise ValueError(
                f"--parameterization {self.parameterization.name} and your own exponents exclude each other"
            )
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


def _tabulate(cases: Sequence[Assessment], rules: Sequence[DecayRule], *, solved: bool) -> str:
    if rules:
        return _tabulate_decay(cases, rules)
    return _tabulate_case(cases[0], solved=solved) if len(cases) == 1 else _tabulate_cases(cases, solved=solved)


def _tabulate_cases(cases: Sequence[Assessment], *, solved: bool) -> str:
    """Return cases side by side: rows for parameterization and layer, columns for alignment and optimizer."""
    columns = [case for case in cases if case.parameterization == cases[0].parameterization]
    headings = ["", "layer", "init\nstd", "multi-\nplier", "gra-\ndient"]
    for _, group in groupby(columns, key=lambda case: case.alignment):
        headings += ["", *(_heading(case.alignment.name, case.family.name) for case in group)]
    rows: list[list[str]] = []
    for network, group in groupby(cases, key=lambda case: case.parameterization):
        same_network = list(group)
        layers = _merged([[label, *_exponents(same_network, i)] for i, label in enumerate(network.labels)])
        rows += [[""] * len(headings)] if rows else []
        rows += [["" if position else network.name, *row] for position, row in enumerate(layers)]
    lines = [
        "Exponents of the width n (-1/2 means n^-1/2): initial standard deviation, multiplier,",
        "gradient at initialization; learning rate for each alignment and optimizer.",
        "",
        table(headings, rows, right=range(2, len(headings)), gap=1),
        "",
        *dict.fromkeys(f"Alignment {_describe(case.alignment)}." for case in columns),
    ]
    if solved:
        lines += dict.fromkeys(note for case in columns for note in _depth_note(case))
    found: dict[str, list[Assessment]] = defaultdict(list)
    for case in cases:
        for mark, sentence in _findings(case):
            found[f"{mark} {sentence}"].append(case)
    for sentence, concerned in found.items():
        names = (f"{c.parameterization.name} {c.family.name} {c.alignment.name}" for c in concerned)
        lines.append(f"{sentence}: {'; '.join(names) if len(concerned) < len(cases) else 'all cases'}.")
    return "\n".join(lines)


def _tabulate_case(case: Assessment, *, solved: bool) -> str:
    """Return one case: its exponents, what limits each rate, the verdict, and the constraints that are broken."""
    network, gradients, verdict = case.parameterization, case.gradients, case.verdict
    columns: dict[str, Sequence[Fraction] | None] = {
        "init\nstd": [layer.b for layer in network.layers],
        "multi-\nplier": [layer.a for layer in network.layers],
        "gra-\ndient": gradients.at_init if gradients else None,
    }
    if gradients and gradients.trained != gradients.at_init:
        columns["later\ngra-\ndient"] = gradients.trained
    columns["learning\nrate"] = case.rates
    if case.residuals is not None and case.logit_change is not None:
        columns["output\nchanges"] = (*case.residuals, case.logit_change)
    reasons = limits(case) if verdict.stable else ()
    rows = [[label, *(_exponent(values, i) for values in columns.values())] for i, label in enumerate(network.labels)]
    for row, label, limiting in zip(rows, network.labels, reasons, strict=False):
        row.append(_limited_by(limiting, label))
    headings = ["layer", *columns, *(["rate limited by"] if reasons else [])]
    answers = {
        "stable at initialization": verdict.stable_at_init,
        "stable": verdict.stable,
        "nontrivial": verdict.nontrivial,
        "feature learning": verdict.feature_learning,
    }
    lines = [
        f"{network.name}, {case.family.name}, alignment {_describe(case.alignment)}; exponents of n",
        table(headings, _merged(rows), right=range(1, len(columns) + 1), gap=1),
        "  ".join(f"{question}: {'yes' if yes else 'no'}" for question, yes in answers.items()),
        *(_depth_note(case) if solved else []),
    ]
    if verdict.stable:
        lines += [f"{sentence[0].upper()}{sentence[1:]}." for _, sentence in _findings(case)]
    else:
        lines += [f"Broken: {constraint}." for constraint in case.broken]
    return "\n".join(lines)


def _to_json(case: Assessment, rules: Sequence[DecayRule], depth: Sequence[DepthRule]) -> dict[str, Any]:
    values = to_json(case)
    if rules:
        values["decay"] = [decay_to_json(case, rule) for rule in rules]
    if depth:
        values["depth"] = [depth_to_json(assess_depth(rule, case.family), rules) for rule in depth]
    return values


def _tabulate_decay(cases: Sequence[Assessment], rules: Sequence[DecayRule]) -> str:
    """Return what rules of weight decay lead to: a block for every case, rows for rules and layers."""
    lines = [
        "Exponents of the width n: the part of a weight that a step removes; the steps to",
        "equilibrium; there, the size of weights, the same relative to the initialization, the",
        "part that a step changes (the effective rate), and the alignment α of weights with",
        "activations at which outputs have constant size (1/2 by chance, 1 in full).",
        "On the left, updates are independent from step to step; on the right, they agree.",
    ]
    for case in cases:
        rows = [row for rule in rules for row in _decay_rows(case, rule)]
        lines += [
            "",
            f"{case.parameterization.name}, {case.family.name}, alignment {_describe(case.alignment)}",
            table(HEADINGS, rows, right=range(2, len(HEADINGS)), gap=1),
        ]
    return "\n".join(lines)


def _decay_rows(case: Assessment, rule: DecayRule) -> list[list[str]]:
    if case.rates is None or case.gradients is None:
        return [[rule.name, "unstable at initialization"]]
    both = equilibria(case, rule), equilibria(case, rule, persistence=ALIGNED_UPDATES)
    rows = _merged(decay_rows(case.parameterization.labels, *both))
    return [["" if position else rule.name, *row] for position, row in enumerate(rows)]


def _heading(alignment: str, family: str) -> str:
    return "\n".join((*alignment.split("_"), family.replace("adafactor", "ada-\nfactor")))


def _exponents(cases: Sequence[Assessment], index: int) -> Iterator[str]:
    """Yield the cells of one layer in cases of the same network, with a gap before each alignment."""
    network, gradients = cases[0].parameterization, cases[0].gradients
    yield str(-network.layers[index].b)
    yield str(-network.layers[index].a)
    yield _exponent(gradients.at_init if gradients else None, index)
    is_readout = index == len(network.layers) - 1
    for _, group in groupby(cases, key=lambda case: case.alignment):
        yield ""
        for case in group:
            yield (_marks(case) if is_readout else "") + _exponent(case.rates, index)


def _merged(rows: list[list[str]]) -> list[list[str]]:
    """Show hidden layers once if they do not differ in anything shown."""
    embedding, *hidden, readout = rows
    if hidden and all(row[1:] == hidden[0][1:] for row in hidden):
        hidden = [["hidden", *hidden[0][1:]]]
    return [embedding, *hidden, readout]


def _exponent(negatives: Sequence[Fraction] | None, index: int) -> str:
    return MISSING if negatives is None else str(-negatives[index])


def _describe(alignment: Alignment) -> str:
    def number(name: str) -> str:
        values = [str(getattr(layer, name)) for layer in (*alignment.hidden, alignment.readout)]
        return values[0] if len(set(values)) == 1 else f"{values[0]} (readout {values[-1]})"

    return f"{alignment.name}: α = {number('alpha')}, ω = {number('omega')}, u = {number('u')}"


def _marks(case: Assessment) -> str:
    return "".join(mark for mark, _ in _findings(case) if mark != MISSING)


def _findings(case: Assessment) -> Iterator[tuple[str, str]]:
    """Yield what a reader of the rates must know about a case, each with its mark."""
    verdict = case.verdict
    if not verdict.stable:
        first, *others = (c for c in case.broken if c.name != "nontrivial")
        mark, when = (UNSTABLE, "unstable") if verdict.stable_at_init else (MISSING, "unstable at initialization")
        yield mark, f"{when}, {first}" + (f", and {len(others)} more" if others else "")
        return
    if not verdict.nontrivial and case.logit_change is not None:
        yield TRIVIAL, f"trivial, the logits change only as {power_of_n(-case.logit_change)}, not by a constant"
    if not verdict.feature_learning and verdict.residual is not None:
        yield NO_FEATURES, f"no feature learning, the readout's input changes only as {power_of_n(-verdict.residual)}"


def _depth_note(case: Assessment) -> list[str]:
    count = len(case.parameterization.hidden)
    if all(layer.omega == exact("1/2") for layer in case.alignment.layers(count)[:-1]):
        return []
    return [f"ω is not 1/2 in hidden layers, so rates can depend on their number: here {count} (--layers)."]


def _limited_by(constraints: Sequence[Constraint], own: str) -> str:
    """Name the first limit, preferably one of the layer's own."""
    if not constraints:
        return "nothing: it could be larger"
    first = min(constraints, key=lambda constraint: constraint.layer != own)
    return first.name if first.layer == own else f"{first.name} ({first.layer})"
