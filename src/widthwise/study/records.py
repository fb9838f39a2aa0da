"""What goes into a study and what comes out, as plain values."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from numpy.typing import ArrayLike

Status: TypeAlias = Literal["waiting", "running", "finished", "diverged", "failed"]
"""A failed run may be claimed again: the cause lay outside it."""
ENDED: tuple[Status, ...] = ("finished", "diverged")


class Requested(Protocol):
    """A specification, and the run that it means."""

    @property
    def id(self) -> str:
        """The run's id."""
        ...

    @property
    def request(self) -> dict[str, Any]:
        """The specification, by name."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines what the run computes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Request:
    """A `Requested` made of plain values."""

    id: str
    request: dict[str, Any]
    identity: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        run: The run's id.
        status: Finished, diverged or failed.
        results: Its numbers, by name.
        curves: Steps and values, by name; stored without loss as int64 and float64.
        provenance: Where the numbers come from: versions, device, data, time.
    """

    run: str
    status: Literal["finished", "diverged", "failed"]
    results: dict[str, Any] = field(default_factory=dict)
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in (*ENDED, "failed"):
            raise ValueError(f"status of run {self.run!r} is {self.status!r}: expected {', '.join(ENDED)}, failed")


@dataclass(frozen=True, slots=True)
class Row:
    """A request, and the status and results of its run; the results are empty until it has ended."""

    spec: dict[str, Any]
    run: str
    status: Status
    results: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the run finished or diverged."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class Details:
    """The identity of a run and its provenance, which is empty until it has ended."""

    identity: dict[str, Any]
    provenance: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun:
    """A request and the run behind it, with everything that another study needs of them.

    Where several requests mean one run, only the first has its provenance, its time and its curves.

    Attributes:
        run: The run's id.
        status: Its status; a run that is being computed is waiting, because that ends with the process.
        results: Its numbers; empty until it has ended.
        spec: The specification that was asked for; None if it means another run by now.
        labels: What it was asked for.
        provenance: Where the numbers come from.
        recorded: When they were recorded, in seconds since 1970.
        curves: Those curves of the run that were chosen.
    """

    run: str
    status: Literal["waiting", "finished", "diverged", "failed"]
    results: dict[str, Any]
    spec: dict[str, Any] | None = None
    labels: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    recorded: float | None = None
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a study exports: runs in the order of their requests, and notes by name."""

    runs: Iterable[ExportedRun]
    notes: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """How many of the runs merged into a study added something to it, and how many were known there."""

    new: int
    known: int


def check_name(name: str) -> None:
    """Raise ValueError for an id that could not be the name of a folder."""
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} cannot be the name of a run: expected letters, digits, - and _")
