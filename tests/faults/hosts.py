"""Two processes that train one run: one of them, or both, killed or asked to stop at random moments."""

import os
import random
import signal
import socket
import time
from pathlib import Path

from tests.faults.campaign import Tally
from tests.faults.commands import Ended, Process, chunks
from tests.faults.kills import IN_A_STORY, complaints
from tests.faults.subjects import Train

DEVICES = 2
"""Simulated devices of each process."""
SECONDS = 75.0
"""How soon the other process has ended, too: within a minute, and some time for a busy machine."""


class Pairs:
    """Pairs of processes, struck until there were enough."""

    name = "two processes"

    def __init__(self, times: int) -> None:
        self.times = times
        self._subject = Train("--fsdp", str(2 * DEVICES), steps=200)

    def run(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        """Strike one of a pair, or both, and start both again."""
        self._finish(folder / "first", tally)
        began = time.monotonic()
        self._finish(folder / "whole", tally)
        seconds, end, story = time.monotonic() - began, self._subject.end(folder / "whole"), 0
        needed = sum(chunk.steps for chunk in chunks(folder / "whole.steps"))
        while tally.faults < self.times:
            story += 1
            here = folder / f"story-{story}"
            for _ in range(chance.randint(*IN_A_STORY)):
                if tally.faults < self.times and not self._strike(here, chance, tally, seconds):
                    break
            saved = self._subject.saved(here)
            self._finish(here, tally)
            tally.needed += needed
            tally.begun += sum(chunk.steps for chunk in chunks(Path(f"{here}.steps")))
            tally.compared += 1
            tally.lost += [f"{here}: {line}" for line in self._subject.lost(saved, here, None)]
            if self._subject.end(here) != end:
                tally.differs.append(f"{here}: ended otherwise than {folder / 'whole'}")

    def _start(self, folder: Path) -> list[Process]:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={DEVICES}"
        together = ["--coordinator", address, "--processes", "2", "--process"]
        words, steps = self._subject.words(folder), Path(f"{folder}.steps")
        return [
            Process([*words, *together, str(i)], steps, log=Path(f"{folder}.{i}"), XLA_FLAGS=flags) for i in range(2)
        ]

    def _finish(self, folder: Path, tally: Tally) -> None:
        """Let a pair run to its end."""
        for _, ended in _ended(self._start(folder)):
            tally.wrong += complaints(folder, ended, (0,))

    def _strike(self, folder: Path, chance: random.Random, tally: Tally, seconds: float) -> bool:
        """Start a pair and strike it; return whether it has still to be finished."""
        saved, before = self._subject.saved(folder), len(chunks(Path(f"{folder}.steps")))
        pair = self._start(folder)
        pair[0].wait(chance.uniform(0, seconds))
        at_work = len(chunks(Path(f"{folder}.steps"))) > before
        wish = chance.choice((signal.SIGKILL, signal.SIGTERM))
        # While they look for each other, the one that is left waits for five minutes: then both are struck.
        struck = chance.sample(pair, 1 if at_work else 2)
        if all(process.running for process in pair):
            tally.faults += 1
            for process in struck:
                process.strike(wish)
        for process, ended in _ended(pair):
            if at_work and process not in struck and wish == signal.SIGKILL and ended.code != 0:
                tally.wrong += [] if ended.code not in (None, 2) and ended.lines == 1 else complaints(folder, ended, ())
            else:
                tally.wrong += complaints(folder, ended, (0, 130, -wish, *([1, -signal.SIGABRT] * (not at_work))))
        pids = {process.pid for process in pair}
        start = next((one.start for one in chunks(Path(f"{folder}.steps"))[before:] if one.pid in pids), None)
        tally.lost += [f"{folder}: {line}" for line in self._subject.lost(saved, folder, start)]
        return any(process.code != 0 for process in pair)


def _ended(pair: list[Process]) -> list[tuple[Process, Ended]]:
    """Wait for both, the second of which must not take long once the first one has ended."""
    deadline = time.monotonic() + 240
    while all(process.running for process in pair) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [(process, process.wait(SECONDS) or process.hung()) for process in pair]
