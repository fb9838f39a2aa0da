"""Bytes that are damaged at random places: what reads them refuses them in one line, or finds the same as before."""

import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.campaign import Tally
from tests.faults.commands import Process
from tests.faults.kills import end_of_story, undisturbed
from tests.faults.subjects import Train, contents
from tests.study.requests import asked, outcome
from widthwise.data import Bytes, Text, prepare
from widthwise.study import Study


def damage(folder: Path, chance: random.Random) -> str:
    """Damage one file in a folder; return what was done to it."""
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
    before = path.read_bytes()
    at, kind = chance.randrange(len(before)), chance.choice(("bit", "bit", "bytes", "zeros", "cut"))
    after = bytearray(before)
    if kind == "bit":
        after[at] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del after[at:]
    else:
        size = min(chance.randint(1, 512), len(before) - at)
        after[at : at + size] = chance.randbytes(size) if kind == "bytes" else bytes(size)
    path.write_bytes(after)
    return f"{path.relative_to(folder)}, {kind} at {at} of {len(before)}"


class DamagedCheckpoints:
    """A run that was killed, and one of whose checkpoints is damaged before it resumes."""

    name = "damaged checkpoints"

    def __init__(self, times: int) -> None:
        self.times = times

    def run(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        """Damage copies of one killed run."""
        subject = Train()
        whole, killed = undisturbed(subject, folder), folder / "killed"
        process = Process(subject.words(killed), folder / "killed.steps")
        while process.running and len(subject.checkpoints(killed)) < 3:
            process.wait(0.02)
        process.end(signal.SIGKILL)
        for number in range(self.times):
            here = folder / f"story-{number}"
            shutil.copytree(killed, here)
            shutil.copy(folder / "killed.steps", f"{here}.steps")
            _, chosen = max(subject.checkpoints(here).items(), key=lambda one: int(one[0]))
            done, failures = damage(chosen, chance), len(tally.failures)
            tally.faults += 1
            end_of_story(subject, here, whole, tally)
            tally.refused += bool(list(here.glob("*/checkpoints/unreadable")))
            if len(tally.failures) > failures:
                tally.wrong.append(f"{here}: it was {chosen.name}/{done}")
            else:
                shutil.rmtree(here)


class Damaged:
    """Files that are read in this process; what reads them raises ValueError or OSError, or finds the same.

    Args:
        name: What they are called in the table.
        times: How often they are damaged.
        make: Makes them in a folder, and returns what to damage there.
        read: Reads them from what was returned, or from a copy of it.
    """

    def __init__(self, name: str, times: int, make: Callable[[Path], Path], read: Callable[[Path], Any]) -> None:
        self.name, self.times = name, times
        self._make, self._read = make, read

    def run(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        """Damage copies of the same files."""
        made = self._make(folder)
        expected = self._read(made)
        for number in range(self.times):
            here = folder / f"copy-{number}" / made.name
            shutil.copytree(made, here)
            done = damage(here, chance)
            before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
            tally.faults += 1
            try:
                found = self._read(here)
            except (ValueError, OSError) as error:
                tally.refused += 1
                if "\n" in str(error):
                    tally.wrong.append(f"{here}: {done}: more than a line: {error}")
                if any(not path.exists() or path.read_bytes() != was for path, was in before.items()):
                    tally.lost.append(f"{here}: {done}: changed what it refused: {error}")
            except Exception as error:
                tally.wrong.append(f"{here}: {done}: {type(error).__name__}: {error}")
            else:
                tally.compared += 1
                if found != expected:
                    tally.differs.append(f"{here}: {done}: found something else, without a word")
            shutil.rmtree(here.parent)


RUNS = 40
TEXT = "".join(f"def f{number}(x):\n    return x + {number}\n\n" for number in range(3000))


def make_study(folder: Path) -> Path:
    """Make a study of runs that have ended."""
    with Study.open(folder / "study") as study:
        study.ask(map(asked, range(RUNS)), label="made")
        study.record(map(outcome, range(RUNS)))
        study.put("constants/made", {"embedding": 0.25, "hidden": 4.0, "readout": 1.0})
    return folder / "study"


def make_tokens(folder: Path) -> Path:
    """Tokenize a text; return the folder with the tokens."""
    (folder / "text.txt").write_text(TEXT)
    prepare(Text((str(folder / "text.txt"),)), Bytes(), cache=folder / "cache")
    return folder / "cache"


def read_tokens(cache: Path) -> Any:
    """Open the tokens again, as training does."""
    text = cache.parent / "text.txt" if (cache.parent / "text.txt").exists() else cache.parents[1] / "text.txt"
    corpus = prepare(Text((str(text),)), Bytes(), cache=cache)
    splits = [(split.tokens.tobytes(), np.asarray(split.starts).tobytes()) for split in (corpus.train, corpus.held_out)]
    return splits, corpus.manifest


FILES = (
    Damaged("damaged stores", 300, make_study, contents),
    Damaged("damaged tokens", 200, make_tokens, read_tokens),
)
CASES = (DamagedCheckpoints(30), *FILES)
