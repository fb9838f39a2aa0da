"""What a study says: its rows, group by group, as fits of the optimal learning rate against width or another axis.

Two requests belong to one group if they differ in width (or what changes along their axis), learning rate and seed
alone and, where the horizon is compute-optimal, in the steps that follow from the model. A group is known by the names
of its setting, and by whatever else differs between groups of the study. Runs of a training function of one's own have
a dict `settings` in place of a specification, and all that it holds are names.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from widthwise.fit import TOLERANCE, Transfer, Trial, fit_transfer
from widthwise.study.axes import OWN, axis_of, changing, size_of
from widthwise.study.setting import Setting
from widthwise.study.store import Row
from widthwise.theory import read_rates

TUNING = "tuning"
"""The name of the constants in requests of a search for constants: such rows belong to no group."""

_NAMED = {"parameterization", "optimizer", "alignment", "constants", "horizon"} | {
    f"{role}_constant" for role in ("embedding", "hidden", "readout")
}


@dataclass(frozen=True, kw_only=True)
class GroupFit:
    """One group of a study, fitted.

    Attributes:
        names: What its runs share, by name.
        where: What else it differs in from other groups of the study.
        transfer: What its runs say.
        spec: What its runs share, as it was requested.
        runs: The ids of its runs that have ended, by trial.
    """

    names: dict[str, Any]
    where: dict[str, Any]
    transfer: Transfer
    spec: Mapping[str, Any]
    runs: Mapping[Trial, str]

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Its runs that have ended."""
        return tuple(self.runs)

    @property
    def is_own(self) -> bool:
        """Whether its runs are those of a training function of one's own."""
        return OWN in self.spec

    @property
    def setting(self) -> Setting:
        """What its runs share, unless they are of one's own."""
        return Setting.of(self.spec)

    @property
    def title(self) -> str:
        """The group in a line."""
        where = [f"{name} {value}" for name, value in self.where.items()]
        if self.is_own:
            return describe_own(self.names)
        *names, constants, horizon = self.names.values()
        return ", ".join([*names, f"{constants} constants", f"{horizon.replace('_', '-')} horizon", *where])

    def to_json(self) -> dict[str, Any]:
        """Return everything as values that `json.dumps` takes."""
        axis = {} if self.transfer.axis == "width" else {"axis": self.transfer.axis}
        return {**self.names, **axis, "where": self.where, **self.transfer.to_json()}


def describe_own(settings: Mapping[str, Any]) -> str:
    """Describe the settings of a sweep of one's own.

    >>> describe_own({"optimizer": "adamw", "blocks": 4})
    'optimizer: adamw, blocks: 4'
    """
    return ", ".join(f"{name}: {value}" for name, value in settings.items()) or "sweep"


def fit_rows(rows: Iterable[Row], *, predict: Sequence[int] = (), tolerance: float = TOLERANCE) -> list[GroupFit]:
    """Fit every group of a study, in the order in which they were first requested.

    Args:
        rows: The study's rows; those that have not ended, and trials of constants, are left out.
        predict: Widths, or sizes along the axis of the sweep, whose optimal learning rate to predict.
        tolerance: The size of an exponent that does not matter in practice.
    """
    how: dict[str, Any] = {"predict": predict, "tolerance": tolerance}
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.ended and row.spec.get("constants") != TUNING:
            check_row(row)
            groups.setdefault(_shared(row.spec), {})[row.run] = row
    shared = [dict(group) for group in groups]
    ours = [values for values in shared if OWN not in values]
    axes = {axis_of(values).name for values in ours}
    # Groups along other axes share other fields: comparing with them would name whatever they do not share.
    differing = {axis: _differing([values for values in ours if axis_of(values).name == axis]) for axis in axes}
    if len(axes) > 1:
        differing = {axis: names | {"axis"} for axis, names in differing.items()}
    return [
        _fit(values, sorted(differing.get(axis_of(values).name, ())), rows.values(), **how)
        for values, rows in zip(shared, groups.values(), strict=True)
    ]


def alike(rows: Iterable[Row], among: Iterable[Row]) -> list[Row]:
    """Return which of some rows belong to a group of these rows, at a size that the group has.

    They were requested for something else, and tell as much about the group.
    """
    groups: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        groups.setdefault(_shared(row.spec), set()).add(size_of(row.spec))
    return [row for row in among if size_of(row.spec) in groups.get(_shared(row.spec), ())]


def _differing(groups: Sequence[Mapping[str, Any]]) -> set[str]:
    names = {name for values in groups for name in values} - _NAMED
    return {name for name in names if len({values.get(name) for values in groups}) > 1}


def best_losses(fit: GroupFit) -> dict[int, float]:
    """Return the eval loss at the optimum of each width whose optimum lies inside the range that was tried.

    The paper takes the best of the rates tried. Here rates are chosen for the exponent, at different distances from
    the optimum in different settings, so the loss is that of the fit.
    """
    return {optimum.width: optimum.eval_loss for optimum in fit.transfer.optima if optimum.interior}


def _fit(values: dict[str, Any], differing: Sequence[str], rows: Iterable[Row], **how: Any) -> GroupFit:
    runs = {_trial(row): row.run for row in rows}
    return GroupFit(
        names=dict(values[OWN]) if OWN in values else Setting.of(values).names,
        where={name: values[name] for name in differing if values.get(name) is not None},
        transfer=fit_transfer(runs, axis=axis_of(values).name, **how),
        spec=values,
        runs=runs,
    )


def check_row(row: Row) -> None:
    """Raise ValueError if a request lacks what tells its group and its place there."""
    needed = ["learning_rate", "seed"]
    if OWN not in row.spec and row.spec.get("rates") is None:
        needed.append("alignment")
    try:
        size_of(row.spec)
        for name in needed:
            row.spec[name]
    except KeyError as error:
        raise ValueError(f"run {row.run!r} was requested without {error}: expected a whole specification") from None


def _shared(spec: dict[str, Any]) -> tuple[Any, ...]:
    left_out = {"learning_rate", "seed", *changing(spec)}
    if spec.get("horizon") == "compute_optimal":
        left_out.add("steps")
    if spec.get("rates") is not None:  # one rule can be written in several ways: -0.5 and -1/2
        spec = {**spec, "rates": read_rates(spec["rates"]).text}
    return tuple((name, _hashable(value)) for name, value in sorted(spec.items()) if name not in left_out)


def _hashable(value: Any) -> Any:
    match value:
        case list():
            return tuple(value)
        case dict():
            return tuple(sorted(value.items()))
        case _:
            return value


def _trial(row: Row) -> Trial:
    loss, axis = row.results.get("eval_loss"), axis_of(row.spec)
    return Trial(
        width=size_of(row.spec),
        learning_rate=row.spec["learning_rate"],
        eval_loss=loss if row.status == "finished" and loss is not None else math.nan,
        seed=row.spec["seed"],
        parameters=row.results.get("parameters") if axis.grows else None,
    )
