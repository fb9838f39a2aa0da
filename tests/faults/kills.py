"""Commands and their workers, killed at random moments from start-up to the end."""

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.faults.campaign import Tally
from tests.faults.commands import Ended, Process, chunks, finish, left_behind
from tests.faults.subjects import Subject

EXPECTED = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGTERM: (130, -signal.SIGTERM)}
"""How a command ends that was killed, or asked to stop; before it can save anything, SIGTERM kills as well."""
IN_A_STORY = (4, 12)
"""The fewest and the most attempts before a command may run to its end."""
WORKERS = 2
"""How many workers are killed of one command: with the third, a pack has failed."""


@dataclass(frozen=True)
class Whole:
    """An undisturbed run: its end, the steps it takes, and its seconds."""

    end: Any
    needed: int
    seconds: float


def undisturbed(subject: Subject, folder: Path) -> Whole:
    """Run a command twice, so that what it compiles is there, and time it the second time."""
    for name in ("first", "whole"):
        began, steps = time.monotonic(), folder / f"{name}.steps"
        ended = finish(subject.words(folder / name), steps)
        if ended.code != 0:
            raise RuntimeError(f"undisturbed, it ended with {ended.code}: {ended.failure}")
    needed = sum(chunk.steps for chunk in chunks(steps))
    return Whole(subject.end(folder / "whole"), needed, time.monotonic() - began)


def end_of_story(subject: Subject, folder: Path, whole: Whole, tally: Tally, *, steps: Path | None = None) -> None:
    """Let a disturbed command run to its end, and compare it; its steps are noted beside its folder unless named."""
    steps, saved = steps or Path(f"{folder}.steps"), subject.saved(folder)
    ended = finish(subject.words(folder), steps)
    tally.wrong += complaints(folder, ended, (0,))
    tally.needed += whole.needed
    tally.begun += sum(chunk.steps for chunk in chunks(steps))
    if ended.code == 0:
        tally.compared += 1
        tally.lost += [f"{folder}: {line}" for line in subject.lost(saved, folder, None)]
        if subject.end(folder) != whole.end:
            tally.differs.append(f"{folder}: ended otherwise than {folder.with_name('whole')}")


def complaints(folder: Path, ended: Ended, codes: tuple[int, ...]) -> list[str]:
    """Return what is wrong with how a command ended."""
    if ended.code in codes and "Traceback" not in ended.err:
        return []
    how = "hung" if ended.code is None else f"ended with {ended.code}"
    return [f"{folder}: {how}, expected {' or '.join(map(str, codes))}: {ended.failure}"]


class Killed:
    """A command that is killed until it has ended, again and again.

    Args:
        name: What it is called in the table.
        subject: The command.
        times: How often it is killed.
        workers: Whether it has workers, which are killed as well.
    """

    def __init__(self, name: str, subject: Subject, times: int, *, workers: bool = False) -> None:
        self.name, self.times = name, times
        self._subject, self._workers = subject, workers

    def run(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        """Tell stories of kills until there were enough."""
        whole, story = undisturbed(self._subject, folder), 0
        while tally.faults < self.times:
            story += 1
            here = folder / f"story-{story}"
            for _ in range(chance.randint(*IN_A_STORY)):
                if tally.faults >= self.times or self._once(here, chance, tally, whole) == 0:
                    break
            end_of_story(self._subject, here, whole, tally)

    def _once(self, folder: Path, chance: random.Random, tally: Tally, whole: Whole) -> int | None:
        """Start a command and strike it at a random moment; return its exit code."""
        saved = self._subject.saved(folder)
        process = Process(self._subject.words(folder), Path(f"{folder}.steps"))
        left = WORKERS if self._workers else 0
        while left and chance.random() < 0.6 and process.wait(chance.uniform(0, whole.seconds)) is None:
            left -= 1
            tally.faults += _kill_one(process.family(), chance)
        ended, codes = process.wait(chance.uniform(0, whole.seconds)), (0,)
        if ended is None:
            family, wish = process.family(), chance.choice(list(EXPECTED))
            ended, codes = process.end(wish), (0, *EXPECTED[wish])
            tally.faults += 1
            tally.wrong += [f"{folder}: left behind: {line}" for line in left_behind(family)]
        tally.wrong += complaints(folder, ended, codes)
        start = next((chunk.start for chunk in chunks(Path(f"{folder}.steps")) if chunk.pid == process.pid), None)
        tally.lost += [f"{folder}: {line}" for line in self._subject.lost(saved, folder, start)]
        return ended.code


def _kill_one(family: list[psutil.Process], chance: random.Random) -> int:
    """Kill one of a command's workers, if it has any yet; return how many were killed."""
    workers = []
    for process in family:
        try:
            if "spawn_main" in " ".join(process.cmdline()):
                workers.append(process)
        except psutil.NoSuchProcess:
            continue
    if workers:
        chance.choice(workers).kill()
    return bool(workers)
