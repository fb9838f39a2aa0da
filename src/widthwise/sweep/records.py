"""What goes into the store of a study and what comes out of it, in plain values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from numpy.typing import ArrayLike

Ended: TypeAlias = Literal["finished", "diverged", "failed"]
Status: TypeAlias = Literal["waiting", "running", "finished", "diverged", "failed"]
"""Failed is not final: what went wrong was outside the run, which may be claimed again."""
Horizon: TypeAlias = Literal["fixed", "compute_optimal"]
"""How long a run trains: for a number of steps that is given, or that follows from the model's size."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A specification, and the run that it comes down to.

    Attributes:
        spec: What was asked for, by name.
        run: The run's id.
        identity: Everything that decides what the run computes.
    """

    spec: dict[str, Any]
    run: str
    identity: dict[str, Any]

    def __post_init__(self) -> None:
        check_name(self.run)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        run: The run's id.
        status: Finished, diverged or failed.
        results: Its numbers, by name.
        curves: Steps and values, by name; kept without loss as int64 and float64.
        provenance: Where the numbers come from: versions, device, data, time.
    """

    run: str
    status: Ended
    results: dict[str, Any] = field(default_factory=dict)
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in get_args(Ended):
            raise ValueError(f"status of run {self.run!r} is {self.status!r}: expected {', '.join(get_args(Ended))}")


@dataclass(frozen=True, slots=True)
class Row:
    """A request and what came of it.

    Attributes:
        spec: What was asked for.
        run: The id of the run it comes down to.
        status: Where that run stands.
        results: Its numbers; empty until it ended.
    """

    spec: dict[str, Any]
    run: str
    status: Status
    results: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Details:
    """What is known of a run beyond its results.

    Attributes:
        identity: Everything that decides what it computes.
        provenance: Where its numbers come from; empty until it ended.
    """

    identity: dict[str, Any]
    provenance: dict[str, Any]


def check_name(name: str) -> None:
    """Refuse an id that could not be the name of a folder."""
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} cannot be the name of a run: expected letters, digits, - and _")
