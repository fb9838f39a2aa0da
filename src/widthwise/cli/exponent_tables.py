"""Cases as tables for people: many side by side, as in the paper's Table 1, or one with its reasons."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table

from widthwise.theory import Alignment, Assessment, Constraint, limits
from widthwise.theory.exact import HALF, power_of_n

MISSING = "–"
TRIVIAL = "*"
NO_FEATURES = "°"
UNSTABLE = "!"


def show_cases(cases: Sequence[Assessment]) -> None:
    """Print cases side by side: rows for parameterization and layer, columns for alignment and optimizer."""
    columns = [case for case in cases if case.parameterization == cases[0].parameterization]
    headings = ["init\nstd", "multi-\nplier", "gra-\ndient"]
    for _, group in groupby(columns, key=lambda case: case.alignment):
        headings += ["", *(_heading(case.alignment.name, case.family.name) for case in group)]
    table = _table(["", "layer"], headings)

    for network, group in groupby(cases, key=lambda case: case.parameterization):
        same_network = list(group)
        for label, index in _rows(same_network):
            layer, gradients = network.layers[index], same_network[0].gradients
            is_readout = index == len(network.layers) - 1
            table.add_row(
                network.name if index == 0 else "",
                label,
                str(-layer.b),
                str(-layer.a),
                _exponent(gradients.at_init if gradients else None, index),
                *_rates(same_network, index, marked=is_readout),
                end_section=is_readout,
            )
    console = Console(highlight=False)
    _print(
        console,
        "Exponents of the width n (-1/2 means n^-1/2): initial standard deviation, multiplier,",
        "gradient at initialization; learning rate for each alignment and optimizer.\n",
    )
    console.print(table)
    _print(console, "")
    _print(console, *dict.fromkeys(f"Alignment {_describe(case.alignment)}." for case in columns))
    _print(console, *_depth_note(cases[0]))

    found: dict[str, list[Assessment]] = defaultdict(list)
    for case in cases:
        for mark, sentence in _findings(case):
            found[f"{mark} {sentence}"].append(case)
    for sentence, concerned in found.items():
        names = (f"{c.parameterization.name} {c.family.name} {c.alignment.name}" for c in concerned)
        _print(console, f"{sentence}: {'; '.join(names) if len(concerned) < len(cases) else 'all cases'}.")


def show_case(case: Assessment) -> None:
    """Print one case: its exponents, what limits each rate, the verdict, and whatever is broken."""
    network, gradients = case.parameterization, case.gradients
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
    reasons = limits(case) if case.verdict.stable else None

    table = _table(["layer"], columns, ["rate limited by"] if reasons else [])
    for label, index in _rows([case]):
        cells = [label, *(_exponent(values, index) for values in columns.values())]
        table.add_row(*cells, *([_limited_by(reasons[index], network.labels[index])] if reasons else []))

    console = Console(highlight=False)
    _print(console, f"{network.name}, {case.family.name}, alignment {_describe(case.alignment)}; exponents of n")
    console.print(table)
    verdict = case.verdict
    answers = {
        "stable at initialization": verdict.stable_at_init,
        "stable": verdict.stable,
        "nontrivial": verdict.nontrivial,
        "feature learning": verdict.feature_learning,
    }
    _print(console, "  ".join(f"{question}: {'yes' if yes else 'no'}" for question, yes in answers.items()))
    _print(console, *_depth_note(case))
    if verdict.stable:
        _print(console, *(f"{sentence[0].upper()}{sentence[1:]}." for _, sentence in _findings(case)))
    else:
        _print(console, *(f"Broken: {constraint}." for constraint in case.broken))


def _table(names: Sequence[str], numbers: Iterable[str], texts: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    headings = [*names, *numbers, *texts]
    height = max(heading.count("\n") for heading in headings)
    for heading in headings:
        at_the_bottom = "\n" * (height - heading.count("\n")) + heading
        is_number = heading not in (*names, *texts)
        table.add_column(at_the_bottom, justify="right" if is_number else "left", no_wrap=heading in names)
    return table


def _heading(alignment: str, family: str) -> str:
    return "\n".join((*alignment.split("_"), family.replace("adafactor", "ada-\nfactor")))


def _rates(cases: Sequence[Assessment], index: int, *, marked: bool) -> Iterator[str]:
    """Give a row's learning rates, with a gap before each alignment."""
    for _, group in groupby(cases, key=lambda case: case.alignment):
        yield ""
        for case in group:
            yield (_marks(case) if marked else "") + _exponent(case.rates, index)


def _rows(cases: Sequence[Assessment]) -> list[tuple[str, int]]:
    """Give label and index of the layers to show: hidden layers that are alike in all cases only once."""
    labels = cases[0].parameterization.labels
    last = len(labels) - 1
    alike = all(
        len({(case.parameterization.layers[i], case.rates and case.rates[i]) for i in range(1, last)}) <= 1
        for case in cases
    )
    shown = [*range(min(last, 2)), last] if alike else range(last + 1)
    return [("hidden" if alike and 0 < i < last else labels[i], i) for i in shown]


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
        yield (
            TRIVIAL,
            f"trivial, the logits change only as {power_of_n(-case.logit_change)}, not by a constant",
        )
    if not verdict.feature_learning and verdict.residual is not None:
        yield (
            NO_FEATURES,
            f"no feature learning, the readout's input changes only as {power_of_n(-verdict.residual)}",
        )


def _depth_note(case: Assessment) -> list[str]:
    count = len(case.parameterization.hidden)
    if not any(layer.omega > HALF for layer in case.alignment.layers(count)[:-1]):
        return []
    return [f"ω is above 1/2 in hidden layers, so rates depend on their number: here {count} (--layers)."]


def _limited_by(constraints: Sequence[Constraint], own: str) -> str:
    if not constraints:
        return "nothing: it could be larger"
    first, *others = sorted(constraints, key=lambda constraint: constraint.layer != own)
    where = "" if first.layer == own else f" ({first.layer})"
    return first.name + where + (f" +{len(others)}" if others else "")


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
