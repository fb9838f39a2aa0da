"""Where a driver stands: what it shows, and how it knows how much time is left."""

import math
import time
from dataclasses import dataclass, field


@dataclass
class Standing:
    """Where a command stands, for whoever watches it.

    Attributes:
        wanted: Runs wanted so far.
        done: Those that have ended.
        diverged: Those of them that diverged.
        failed: What went wrong, in a line for each pack.
        trained: Runs that were computed by this command.
        running: Runs in the works here.
        elsewhere: Runs that other commands compute.
        best: The smallest eval loss so far, with the width it belongs to.
        seconds_left: For the runs wanted now; None while unknown.
    """

    wanted: int = 0
    done: int = 0
    diverged: int = 0
    failed: list[str] = field(default_factory=list)
    trained: int = 0
    running: int = 0
    elsewhere: int = 0
    best: tuple[float, int] = (math.inf, 0)
    seconds_left: float | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What became of the runs wanted, in numbers."""
        return {
            "wanted": self.wanted,
            "trained": self.trained,
            "diverged": self.diverged,
            "failed": len(self.failed),
        }


class TimeLeft:
    """How much of the runs wanted now is computed, in FLOPs, and how fast: timed from the first sign of progress on.

    What comes before that is compilation, which says nothing about the rest.
    """

    def __init__(self) -> None:
        self._total = self._ended = 0.0
        self._running: dict[str, tuple[float, float]] = {}
        self._first: tuple[float, float] | None = None

    def begin(self, flops: float) -> None:
        """Start over with so much to do."""
        self._total, self._ended, self._first = flops, 0.0, None

    def start(self, key: str, flops: float) -> None:
        """Note that a pack is in the works."""
        self._running[key] = (flops, 0.0)

    def advance(self, key: str, share: float) -> None:
        """Note how much of a pack is done."""
        self._running[key] = (self._running[key][0], share)
        self._first = self._first or (time.monotonic(), self._done)

    def end(self, key: str, flops: float) -> None:
        """Note that a pack has ended."""
        del self._running[key]
        self._ended += flops

    def drop(self, flops: float) -> None:
        """Note that somebody else does some of it."""
        self._total -= flops

    @property
    def _done(self) -> float:
        return self._ended + sum(flops * share for flops, share in self._running.values())

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this pace; None while that is not known."""
        if self._first is None or self._done <= self._first[1]:
            return None
        began, before = self._first
        return (time.monotonic() - began) / (self._done - before) * max(self._total - self._done, 0.0)
