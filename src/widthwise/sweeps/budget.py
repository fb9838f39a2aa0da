"""What a sweep may use: time, runs or FLOPs."""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that a sweep may use; no limit where infinite.

    Runs and FLOPs count all that the sweep asks for, known or not, so that a sweep that was stopped and resumed ends
    where one that ran through does. Time counts anew in each command.
    """

    seconds: float = math.inf
    runs: float = math.inf
    flops: float = math.inf

    @classmethod
    def read(cls, text: str) -> "Budget":
        """Read a budget: a time, a number of runs, or of FLOPs.

        >>> Budget.read("20m").seconds, Budget.read("300 runs").runs, Budget.read("2e18 flops").flops
        (1200.0, 300.0, 2e+18)
        """
        found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(s|m|h|runs?|flops?)\s*", text.lower())
        try:
            number = float(found[1]) if found else 0.0
        except ValueError:
            number = 0.0
        if found is None or not 0 < number < math.inf:
            raise ValueError(
                f"budget is {text!r}: expected a time, runs or FLOPs, such as 20m, '300 runs' or '2e18 flops'"
            )
        unit = found[2].rstrip("s") or "s"
        if unit in UNITS:
            return cls(seconds=number * UNITS[unit])
        return cls(runs=number) if unit == "run" else cls(flops=number)


class Account:
    """A budget, and what was used of it: one for all sweeps of a command, from the moment at which it is opened.

    Attributes:
        until: When its time is up, on the clock of `time.monotonic`.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._asked: dict[str, float] = {}
        self.until = time.monotonic() + self._budget.seconds

    def admit(self, flops: Mapping[str, float]) -> str | None:
        """Note runs with the FLOPs of each, unless they are too much; return what they would use up then."""
        asked = {**self._asked, **flops}
        if len(asked) > self._budget.runs:
            return "runs"
        if sum(asked.values()) > self._budget.flops:
            return "FLOPs"
        self._asked = asked
        return None
