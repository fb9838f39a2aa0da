"""What a study says: its rows, group by group, as fits of the optimal learning rate against width.

Two requests belong to one group if they differ in width, learning rate and seed alone; where the horizon is
compute-optimal, also in the steps that follow from the width. A group is named by what the issue of transfer is about
(parameterization, optimizer, setting, constants, horizon), and by whatever else differs between groups of the study.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from widthwise.fit import TOLERANCE, Transfer, Trial, fit_transfer
from widthwise.sweep.records import Row

NAMES = ("parameterization", "optimizer", "setting", "constants", "horizon")
"""What a group is called by."""
TUNING = "tuning"
"""What a request of a search for constants calls its constants: such rows belong to no group."""

_VARIED = {"width", "learning_rate", "seed"}
_NAMED = {*NAMES, "alignment", "embedding_constant", "hidden_constant", "readout_constant"}


@dataclass(frozen=True, kw_only=True)
class GroupFit:
    """One group of a study, read.

    Attributes:
        names: What it is called by.
        where: What else it differs in from other groups of the study.
        transfer: What its runs say.
        spec: What its runs share, as it was asked for.
        trials: Its runs that have ended.
    """

    names: dict[str, str]
    where: dict[str, Any]
    transfer: Transfer
    spec: dict[str, Any]
    trials: tuple[Trial, ...]

    @property
    def title(self) -> str:
        """Its names in a line."""
        *names, constants, horizon = self.names.values()
        where = [f"{name} {value}" for name, value in self.where.items()]
        return ", ".join([*names, f"{constants} constants", f"{horizon.replace('_', '-')} horizon", *where])

    def to_json(self) -> dict[str, Any]:
        """Give everything as values that `json.dumps` takes."""
        return {**self.names, "where": self.where, **self.transfer.to_json()}


def fit_rows(rows: Iterable[Row], *, predict: Sequence[int] = (), tolerance: float = TOLERANCE) -> list[GroupFit]:
    """Fit every group of a study, in the order in which they were first asked for.

    Args:
        rows: The study's rows; those that have not ended, and trials of constants, are left out.
        predict: Widths whose optimal learning rate to predict.
        tolerance: The size of an exponent that does not matter in practice.
    """
    groups: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.status in ("finished", "diverged") and row.spec.get("constants") != TUNING:
            groups.setdefault(_key(row.spec), {})[row.run] = row
    shared = [dict(group) for group in groups]
    differing = {
        name
        for name in {name for values in shared for name in values} - _NAMED
        if len({values.get(name) for values in shared}) > 1
    }
    return [
        GroupFit(
            names=_names(values),
            where={name: values[name] for name in sorted(differing) if values.get(name) is not None},
            transfer=fit_transfer(trials, predict=predict, tolerance=tolerance),
            spec=values,
            trials=trials,
        )
        for values, trials in zip(shared, map(_trials, groups.values()), strict=True)
    ]


def _key(spec: dict[str, Any]) -> tuple[Any, ...]:
    left_out = _VARIED | ({"steps"} if spec.get("horizon") == "compute_optimal" else set())
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in sorted(spec.items())
        if name not in left_out
    )


def _names(values: dict[str, Any]) -> dict[str, str]:
    return {
        "parameterization": values["parameterization"],
        "optimizer": values["optimizer"],
        "setting": values["alignment"] if values.get("rates") is None else "own",
        "constants": values.get("constants", "default"),
        "horizon": values.get("horizon", "fixed"),
    }


def _trials(rows: dict[str, Row]) -> tuple[Trial, ...]:
    return tuple(_trial(row) for row in rows.values())


def _trial(row: Row) -> Trial:
    loss = row.results.get("eval_loss")
    return Trial(
        width=row.spec["width"],
        learning_rate=row.spec["learning_rate"],
        eval_loss=loss if row.status == "finished" and loss is not None else math.nan,
        seed=row.spec["seed"],
        parameters=row.results.get("parameters"),
    )
