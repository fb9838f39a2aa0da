"""Cases as tables for people: many side by side, as in the paper's Table 1, or one with its reasons."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby

from rich import box
from rich.table import Table

from widthwise.cli.output import Output
from widthwise.theory import Alignment, Assessment, Constraint, exact, limits, power_of_n

MISSING = "–"
TRIVIAL = "*"
NO_FEATURES = "°"
UNSTABLE = "!"


def show_cases(cases: Sequence[Assessment], *, solved: bool) -> None:
    """Print cases side by side: rows for parameterization and layer, columns for alignment and optimizer."""
    columns = [case for case in cases if case.parameterization == cases[0].parameterization]
    headings = ["init\nstd", "multi-\nplier", "gra-\ndient"]
    for _, group in groupby(columns, key=lambda case: case.alignment):
        headings += ["", *(_heading(case.alignment.name, case.family.name) for case in group)]
    table = _table(["", "layer"], headings)
    for network, group in groupby(cases, key=lambda case: case.parameterization):
        same_network = list(group)
        rows = _merged([[label, *_exponents(same_network, i)] for i, label in enumerate(network.labels)])
        for position, row in enumerate(rows):
            table.add_row("" if position else network.name, *row, end_section=position == len(rows) - 1)

    output = Output()
    output.lines(
        "Exponents of the width n (-1/2 means n^-1/2): initial standard deviation, multiplier,",
        "gradient at initialization; learning rate for each alignment and optimizer.",
        "",
    )
    output.table(table)
    output.lines("", *dict.fromkeys(f"Alignment {_describe(case.alignment)}." for case in columns))
    if solved:
        output.lines(*dict.fromkeys(note for case in columns for note in _depth_note(case)))
    found: dict[str, list[Assessment]] = defaultdict(list)
    for case in cases:
        for mark, sentence in _findings(case):
            found[f"{mark} {sentence}"].append(case)
    for sentence, concerned in found.items():
        names = (f"{c.parameterization.name} {c.family.name} {c.alignment.name}" for c in concerned)
        output.lines(f"{sentence}: {'; '.join(names) if len(concerned) < len(cases) else 'all cases'}.")
    output.write()


def show_case(case: Assessment, *, solved: bool) -> None:
    """Print one case: its exponents, what limits each rate, the verdict, and whatever is broken."""
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

    table = _table(["layer"], list(columns), ["rate limited by"] if reasons else [])
    rows = [[label, *(_exponent(values, i) for values in columns.values())] for i, label in enumerate(network.labels)]
    for row, label, limiting in zip(rows, network.labels, reasons, strict=False):
        row.append(_limited_by(limiting, label))
    for row in _merged(rows):
        table.add_row(*row)

    output = Output()
    output.lines(f"{network.name}, {case.family.name}, alignment {_describe(case.alignment)}; exponents of n")
    output.table(table)
    answers = {
        "stable at initialization": verdict.stable_at_init,
        "stable": verdict.stable,
        "nontrivial": verdict.nontrivial,
        "feature learning": verdict.feature_learning,
    }
    output.lines("  ".join(f"{question}: {'yes' if yes else 'no'}" for question, yes in answers.items()))
    if solved:
        output.lines(*_depth_note(case))
    if verdict.stable:
        output.lines(*(f"{sentence[0].upper()}{sentence[1:]}." for _, sentence in _findings(case)))
    else:
        output.lines(*(f"Broken: {constraint}." for constraint in case.broken))
    output.write()


def _table(names: Sequence[str], numbers: Sequence[str], texts: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    headings = [*names, *numbers, *texts]
    height = max(heading.count("\n") for heading in headings)
    for heading in headings:
        at_the_bottom = "\n" * (height - heading.count("\n")) + heading
        is_number = heading not in (*names, *texts)
        table.add_column(at_the_bottom, justify="right" if is_number else "left", no_wrap=True)
    return table


def _heading(alignment: str, family: str) -> str:
    return "\n".join((*alignment.split("_"), family.replace("adafactor", "ada-\nfactor")))


def _exponents(cases: Sequence[Assessment], index: int) -> Iterator[str]:
    """Give the cells of one layer in cases of the same network, with a gap before each alignment."""
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
    """Give what a reader of the rates must know about a case, each with its mark."""
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
    """Name the first limit, one of the layer's own if it has any."""
    if not constraints:
        return "nothing: it could be larger"
    first = min(constraints, key=lambda constraint: constraint.layer != own)
    return first.name if first.layer == own else f"{first.name} ({first.layer})"
