"""The fault campaign: commands are killed, their files damaged and their disks filled, and nothing may be lost.

`make test-faults` runs all of it; `make test-faults FAULTS="--only train --times 0.1"` a part. A case disturbs one kind
of command as often as it says. At the end of every story, what was computed is compared with an undisturbed run, to the
bit. Places and delays come from a seed; what they hit depends on the machine, so that a failure names its folder, and
all folders are kept.
"""

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

AT_A_TIME = 3
"""Cases at the same time: on two cores, since much of a command's life is waiting."""


class SkippedError(Exception):
    """Raised by a case that this machine cannot try."""


@dataclass
class Tally:
    """What became of a case.

    Attributes:
        faults: How often a command or its files were disturbed.
        compared: How many ends were compared with the undisturbed one.
        refused: How many damaged files were refused, in one line.
        needed: The steps that the undisturbed runs of all stories take.
        begun: The steps that were begun in fact.
        lost: What was saved and is gone.
        differs: What ended otherwise than undisturbed.
        wrong: What else must not happen: a traceback, an exit code that means something else, a process left behind.
    """

    name: str
    faults: int = 0
    compared: int = 0
    refused: int = 0
    needed: int = 0
    begun: int = 0
    seconds: float = 0.0
    skipped: str = ""
    lost: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """Everything that must not happen."""
        return [*self.lost, *self.differs, *self.wrong]

    def __str__(self) -> str:
        if self.skipped:
            return f"| {self.name} | 0 | skipped: {self.skipped} | | | | | |"
        twice = f"{self.begun - self.needed:,} of {self.needed:,} steps" if self.needed else "–"
        equal = f"{'no' if self.differs else 'yes'}, {self.compared} times" if self.compared else "–"
        counts = (self.faults, self.refused, len(self.lost), len(self.wrong), twice, equal)
        return f"| {' | '.join([self.name, *map(str, counts), f'{self.seconds / 60:.1f}'])} |"


HEADER = """| what | faults | refused | lost | wrong | computed twice | equal to the bit | minutes |
|---|---|---|---|---|---|---|---|"""


class Case(Protocol):
    """One kind of command, and one way to disturb it."""

    name: str
    times: int

    def run(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        """Disturb it as often as `times` says, and tell how it ended."""
        ...


def main(cases: Sequence[Case]) -> int:
    """Run cases as the command line asks; print the table, and then what must not happen."""
    parser = argparse.ArgumentParser(
        prog="make test-faults", description="Disturb commands, and compare what they compute."
    )
    parser.add_argument("--seed", default="0", help="where and when to strike")
    parser.add_argument("--times", type=float, default=1.0, help="how much of the campaign: 0.1 is a tenth")
    parser.add_argument("--only", nargs="+", default=[case.name for case in cases], metavar="CASE")
    given = parser.parse_args()
    if unknown := set(given.only) - {case.name for case in cases}:
        parser.error(f"no case {', '.join(unknown)}: expected some of {', '.join(case.name for case in cases)}")
    folder = Path(tempfile.mkdtemp(prefix="widthwise-faults-"))
    chosen = [case for case in cases if case.name in given.only]
    for case in chosen:
        case.times = max(1, round(case.times * given.times))
    print(f"seed {given.seed}; {sum(case.times for case in chosen)} faults in {len(chosen)} cases, in {folder}")
    tallies = [Tally(case.name) for case in chosen]
    done = threading.Event()
    threading.Thread(target=_report, args=(chosen, tallies, done), daemon=True).start()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(_run, chosen, tallies, [folder] * len(chosen), [given.seed] * len(chosen)))
    done.set()
    print("\n".join(["", HEADER, *map(str, tallies)]))
    for tally in tallies:
        for line in tally.failures:
            print(f"{tally.name}: {line}", file=sys.stderr)
    failed = any(tally.failures for tally in tallies)
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


def _run(case: Case, tally: Tally, folder: Path, seed: str) -> None:
    began, here = time.monotonic(), folder / case.name.replace(" ", "-")
    here.mkdir()
    try:
        case.run(here, random.Random(f"{seed}/{case.name}"), tally)
    except SkippedError as reason:
        tally.skipped = str(reason)
    except Exception as error:
        tally.wrong.append(f"the case itself failed, {type(error).__name__}: {error}")
    tally.seconds = time.monotonic() - began
    print(f"ended: {tally}", flush=True)


def _report(cases: Sequence[Case], tallies: Sequence[Tally], done: threading.Event) -> None:
    began = time.monotonic()
    while not done.wait(20):
        now = [
            f"{tally.name} {tally.faults} of {case.times}"
            for case, tally in zip(cases, tallies, strict=True)
            if tally.faults and not tally.seconds
        ]
        failures = sum(len(tally.failures) for tally in tallies)
        print(f"{(time.monotonic() - began) / 60:.1f} min: {', '.join(now)}; {failures} failures", flush=True)
