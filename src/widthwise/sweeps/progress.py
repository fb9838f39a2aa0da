"""How far a sweep has come, and how much time is left."""

import time
from dataclasses import dataclass, field


@dataclass
class SweepProgress:
    """How far a command has come.

    Attributes:
        wanted: Runs requested so far.
        done: Those that have ended.
        diverged: Those of them that diverged.
        failed: What went wrong, one line per pack.
        trained: Runs that this command computed.
        running: Runs that this command is computing.
        elsewhere: Runs that other commands are computing.
        best: The smallest eval loss so far, and the size it was reached at, such as "width 64"; None before the first.
        seconds_left: For the runs requested now; None while unknown.
    """

    wanted: int = 0
    done: int = 0
    diverged: int = 0
    failed: list[str] = field(default_factory=list)
    trained: int = 0
    running: int = 0
    elsewhere: int = 0
    best: tuple[float, str] | None = None
    seconds_left: float | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The number of runs requested, trained now, diverged and failed."""
        return {"wanted": self.wanted, "trained": self.trained, "diverged": self.diverged, "failed": len(self.failed)}


class TimeLeft:
    """Extrapolates from the FLOPs done, timed from the first sign of progress: what comes before is compilation."""

    def __init__(self) -> None:
        self._total = self._ended = 0.0
        self._running: dict[str, tuple[float, float]] = {}
        self._first: tuple[float, float] | None = None

    def begin(self, flops: float) -> None:
        """Start over with this much to do."""
        self._total, self._ended, self._first = flops, 0.0, None

    def start(self, key: str, flops: float) -> None:
        """Note that a pack is being computed."""
        self._running[key] = (flops, 0.0)

    def advance(self, key: str, share: float) -> None:
        """Note how much of a pack is done."""
        self._running[key] = (self._running[key][0], share)
        self._first = self._first or (time.monotonic(), self._done)

    def end(self, key: str, *, computed: bool = True) -> None:
        """Note that a pack has ended; if it was not computed, it will be started again."""
        flops, _ = self._running.pop(key)
        self._ended += flops if computed else 0.0

    def drop(self, flops: float) -> None:
        """Note that another command computes some of it."""
        self._total -= flops

    @property
    def _done(self) -> float:
        return self._ended + sum(flops * share for flops, share in self._running.values())

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest takes at this pace; None while unknown."""
        if self._first is None or self._done <= self._first[1]:
            return None
        began, before = self._first
        return (time.monotonic() - began) / (self._done - before) * max(self._total - self._done, 0.0)
