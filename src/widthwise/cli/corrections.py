"""What sweeps in studies measured along the axes that grow, with which `widthwise transfer` corrects learning rates.

An exponent is what a sweep found to be left after its rules. So it may only be added to the same rules, and a sweep
counts if it has those that `transfer` was given. Other options of a sweep, such as the rules of axes along which it
does not grow, only decide between several of them. A sweep in which everything grew together counts for a target that
grows alike, and stands for all axes then.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widthwise.scaling.hyperparameters import MeasuredExponent
from widthwise.scaling.request import FAMILY_OF
from widthwise.study import Row, Setting, Study
from widthwise.study.axes import OWN, TOGETHER, WIDTH
from widthwise.theory import read_batch_rule, read_depth_rule, read_token_rule

if TYPE_CHECKING:
    from widthwise.study.fits import GroupFit

RULE_OF = {"depth": "--depth-rule", "batch": "--batch-rule", "tokens": "--token-rule"}
"""The option with the rule of an axis."""
READ = {"--depth-rule": read_depth_rule, "--batch-rule": read_batch_rule, "--token-rule": read_token_rule}
"""How the rules of options are read."""


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """The exponents that sweeps found, by axis, and what a user should know about them."""

    exponents: Mapping[str, MeasuredExponent]
    notes: tuple[str, ...]


def read_corrections(folders: Sequence[Path], ratios: Mapping[str, float], options: Mapping[str, str]) -> Corrections:
    """Return what studies say about the axes that grow; raise where it is not clear.

    Args:
        folders: The studies.
        ratios: How many times as large the target is along each axis. Sweeps along axes that stay are not looked at.
        options: The options of `transfer` that a sweep has too, with their values.
    """
    rows = {folder: _rows(folder) for folder in folders}
    swept = {_axis(row) for each in rows.values() for row in each}
    axes = [axis for axis, ratio in ratios.items() if ratio != 1]
    together = [row for each in rows.values() for row in each if _axis(row) == TOGETHER.name]
    fits = any(_agrees(row, _needed(TOGETHER.name, options)) for row in together)
    if _grow_together(ratios) and (fits or swept == {TOGETHER.name}):
        axes = [TOGETHER.name]
    elif swept == {TOGETHER.name}:
        raise ValueError(
            "a sweep over all axes together is for a target that grows alike: batch and tokens as the width, and depth "
            "as its power 2/3; expected that, or sweeps along single axes"
        )
    exponents: dict[str, MeasuredExponent] = {}
    notes: list[str] = []
    for axis in axes:
        along = {folder: found for folder, each in rows.items() if (found := [r for r in each if _axis(r) == axis])}
        if along:
            folder, fit = _only_fit(axis, along, options)
            exponent = fit.transfer.law.exponent
            if not exponent.half_width < math.inf:
                raise ValueError(f"the exponent in {axis} is not known in {str(folder)!r}: expected two optima")
            exponents[axis] = MeasuredExponent(value=exponent.value, low=exponent.low, high=exponent.high)
            if fit.is_own:
                notes += _notes_on_own(axis, f"the sweep over {axis} in {str(folder)!r} ({fit.title})", options)
    if folders and not exponents:
        missing = f"there is no sweep over {' or '.join(axes)}" if axes else "the target is not larger"
        notes.append(f"--study corrects nothing: {missing}")
    return Corrections(exponents=exponents, notes=tuple(notes))


def has_rule(option: str, rule: str) -> bool:
    """Return whether a rule changes anything."""
    return _meaning(option, rule) != _meaning(option, "constant")


def _grow_together(ratios: Mapping[str, float]) -> bool:
    """Return whether all axes grow as in sweeps of all of them, where blocks and batches are whole numbers."""
    width = ratios["width"]
    powers = {"depth": width ** (2 / 3), "batch": width, "tokens": width}
    return width != 1 and all(math.isclose(ratios[axis], power, rel_tol=0.15) for axis, power in powers.items())


def _needed(axis: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a sweep along an axis must have."""
    theory = ("--parameterization", "--alignment")
    of_axis = {**{name: (rule,) for name, rule in RULE_OF.items()}, TOGETHER.name: (*theory, *RULE_OF.values())}
    return {name: options[name] for name in ("--optimizer", *of_axis.get(axis, theory))}


def _rows(folder: Path) -> list[Row]:
    from widthwise.study.fits import TUNING  # fits take half a second to import, and most commands do without

    with Study.open(folder, create=False) as study:
        return [row for row in study.runs() if row.ended and row.spec.get("constants") != TUNING]


def _axis(row: Row) -> str:
    return row.spec.get("axis", WIDTH.name)


def _only_fit(axis: str, rows: Mapping[Path, list[Row]], options: Mapping[str, str]) -> "tuple[Path, GroupFit]":
    """Return the sweep along an axis that has the rules of these options; raise unless there is exactly one."""
    from widthwise.study.fits import check_row, fit_rows

    for row in (row for each in rows.values() for row in each):
        check_row(row)
    needed = _needed(axis, options)
    places = " and ".join(repr(str(folder)) for folder in rows)
    matching = {folder: [row for row in each if _agrees(row, needed)] for folder, each in rows.items()}
    if not any(matching.values()):
        found = [_options(row) for each in rows.values() for row in each]
        differing = [name for name in needed if any(not _same(name, each[name], needed[name]) for each in found)]
        has = dict.fromkeys(_write(each, differing) for each in found)
        raise ValueError(f"no sweep over {axis} in {places} has {_write(needed, differing)}: found {'; '.join(has)}")
    for name, value in options.items():
        closer = {folder: [row for row in each if _agrees(row, {name: value})] for folder, each in matching.items()}
        if any(OWN not in row.spec for each in closer.values() for row in each):
            matching = closer
    fits = [(folder, fit) for folder, each in matching.items() for fit in fit_rows(each)]
    if len(fits) > 1:
        titles = "; ".join(f"{fit.title} in {str(folder)!r}" for folder, fit in fits)
        raise ValueError(f"{len(fits)} sweeps over {axis} match: expected one; found {titles}")
    return fits[0]


def _agrees(row: Row, options: Mapping[str, str]) -> bool:
    """Return whether a row has the rules of these options. What rules a function of one's own has is not known."""
    if OWN in row.spec:
        return True
    found = _options(row)
    return all(_same(name, found[name], value) for name, value in options.items())


def _options(row: Row) -> dict[str, str]:
    """Return the options of `transfer` for the setting of a row."""
    setting = Setting.of(row.spec)
    family = FAMILY_OF.get(setting.optimizer)
    return {
        "--parameterization": setting.parameterization,
        "--alignment": setting.rates.name,
        "--optimizer": setting.optimizer if family is None else family.name,
        "--decay-rule": setting.decay_rule if setting.weight_decay else "none",
        "--depth-rule": setting.depth_rule,
        "--batch-rule": setting.batch_rule,
        "--token-rule": setting.token_rule,
    }


def _same(option: str, one: str, other: str) -> bool:
    return _meaning(option, one) == _meaning(option, other)


def _meaning(option: str, value: str) -> Any:
    """Return what a rule changes, however it is called: 1/2 and 0.5 are one rule."""
    try:
        rule = asdict(READ[option](value))
    except (KeyError, ValueError):  # no rule, or one of a newer version
        return value
    return {name: power for name, power in rule.items() if not isinstance(power, str)}


def _write(options: Mapping[str, str], names: Iterable[str]) -> str:
    return " ".join(f"{name} {options[name]}" for name in names)


def _notes_on_own(axis: str, sweep: str, options: Mapping[str, str]) -> list[str]:
    if axis == TOGETHER.name:
        return [f"{sweep} is of your own function: its batch and tokens must have grown as the width, with these rules"]
    if axis not in RULE_OF:
        theory = f"{options['--parameterization']}, {options['--optimizer']}, {options['--alignment']} alignment"
        return [
            f"{sweep} is of your own function, so its rates are not known: the measured exponent is added to those of "
            f"theory ({theory}), which is right only if its model had them, as with a plan"
        ]
    option = RULE_OF[axis]
    if not has_rule(option, rule := options[option]):
        return []
    return [
        f"{sweep} is of your own function, so its rule is not known: the measured exponent is added to that of "
        f"{option} {rule}; if the sweep was made without a rule, pass {option} constant"
    ]
