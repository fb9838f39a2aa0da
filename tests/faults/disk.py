"""A disk of a few megabytes that fills up at random moments: one line says so, and with room again nothing is lost."""

import os
import random
import subprocess
from pathlib import Path

from tests.faults.campaign import SkippedError, Tally
from tests.faults.commands import finish
from tests.faults.kills import complaints, end_of_story, undisturbed
from tests.faults.subjects import Subject

SIZE = 4 << 20
FULL = ("No space left on device", "database or disk is full", "perhaps because of a full disk")


class FullDisk:
    """A command on a disk with little room, which gets more room after it has failed.

    Args:
        name: What it is called in the table.
        subject: The command.
        times: How often it is run on a full disk.
        room: The most bytes that are left, with which the command just succeeds.
    """

    def __init__(self, name: str, subject: Subject, times: int, *, room: int) -> None:
        self.name, self.times = name, times
        self._subject, self._room = subject, room

    def run(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        """Mount a disk, fill it, run, make room, and run again."""
        whole, disk = undisturbed(self._subject, folder), folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(disk)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            raise SkippedError("mounting a small disk needs root")
        try:
            for number in range(self.times):
                steps = folder / f"story-{number}.steps"
                self._fill(disk, steps, chance, tally)
                end_of_story(self._subject, disk / "story", whole, tally, steps=steps)
                subprocess.run(["rm", "-rf", *disk.iterdir()], check=True)
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)

    def _fill(self, disk: Path, steps: Path, chance: random.Random, tally: Tally) -> None:
        """Run with some room left, once or twice; then make room."""
        for _ in range(chance.randint(1, 2)):
            ballast, here = disk / "ballast", disk / "story"
            saved, free = self._subject.saved(here), os.statvfs(disk)
            left = chance.randrange(self._room)
            ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - left)))
            ended = finish(self._subject.words(here), steps)
            if ended.code != 0:
                tally.faults += 1
                tally.wrong += complaints(steps, ended, (1,))
                if not any(reason in ended.err for reason in FULL):
                    tally.wrong.append(f"{steps}: expected that it tells of a full disk: {ended.failure}")
            ballast.unlink()
            tally.lost += [f"{steps}: {line}" for line in self._subject.lost(saved, here, None)]
