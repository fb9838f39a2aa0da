"""What is disturbed: commands, what they have saved so far, and their end, which must be the same to the bit."""

import hashlib
import json
import shlex
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any

from widthwise.study import Study

MODEL = shlex.split(
    "--data synthetic --vocabulary 8 --context 16 --batch 8 --eval-batches 1 --base-width 16 --blocks 1 --head-dim 8"
    " --warmup 4 --chunk 10 --checkpoint-seconds 0 --json"
)


class Subject(ABC):
    """A command that keeps what it computes in a folder."""

    @abstractmethod
    def words(self, folder: Path) -> list[str]:
        """Return the command line."""

    @abstractmethod
    def saved(self, folder: Path) -> Any:
        """Return what is safe from now on."""

    @abstractmethod
    def lost(self, saved: Any, folder: Path, start: int | None) -> list[str]:
        """Return what was saved and is gone, given the step with which the next process began."""

    @abstractmethod
    def end(self, folder: Path) -> Any:
        """Return what must be the same as of an undisturbed run."""


class Train(Subject):
    """`widthwise train`: checkpoints are saved, and the end is all losses and sizes that were recorded."""

    def __init__(self, *more: str, steps: int = 240) -> None:
        self._more = ["--width", "16", "--steps", str(steps), "--evaluate-every", "50", *more]

    def words(self, folder: Path) -> list[str]:
        return ["train", *MODEL, *self._more, "--out", str(folder)]

    def saved(self, folder: Path) -> int:
        return max(map(int, self.checkpoints(folder)), default=0)

    def lost(self, saved: int, folder: Path, start: int | None) -> list[str]:
        return [] if start is None or start >= saved else [f"checkpoint {saved}: resumed from {start}"]

    def checkpoints(self, folder: Path) -> dict[str, Path]:
        """Return the folders of checkpoints that are complete, by step."""
        found = folder.glob("*/checkpoints/[bl]*/*")
        return {path.name: path for path in found if path.name.isdecimal()}

    def end(self, folder: Path) -> Any:
        (path,) = folder.glob("*/results.json")
        (result,) = json.loads(path.read_text())
        newest = max(self.checkpoints(folder).items(), key=lambda one: int(one[0]))[1]
        record = json.loads((newest / "record" / "metadata").read_text())["record"]
        for each in (result, record):
            del each["tokens_per_second"]
        return result, record


class InStudy(Subject):
    """A command with a study: runs that have ended are saved, and the end is all runs with all of their curves."""

    def __init__(self, *words: str, spec: bool = True) -> None:
        self._words = [*words, *(MODEL if spec else MODEL[-5:])]

    def words(self, folder: Path) -> list[str]:
        return [*self._words, "--study", str(folder)]

    def saved(self, folder: Path) -> dict[str, Any]:
        path = folder / "study.sqlite"
        if not path.exists():
            return {}
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            query = "SELECT id, status, results, recorded FROM runs WHERE status IN ('finished', 'diverged')"
            return {row[0]: row[1:] for row in database.execute(query)}

    def lost(self, saved: dict[str, Any], folder: Path, start: int | None) -> list[str]:
        del start
        now = self.saved(folder)
        return [f"run {run}: {one} is now {now.get(run)}" for run, one in saved.items() if now.get(run) != one]

    def end(self, folder: Path) -> Any:
        return contents(folder)


def contents(folder: Path) -> Any:
    """Return everything in a study that must not depend on how it came about."""
    with Study.open(folder, create=False) as study:
        rows = study.runs()
        curves = study.curves(sorted({row.run for row in rows}))
        losses = {
            run: hashlib.sha256(
                b"".join(found[name].steps.tobytes() + found[name].values.tobytes() for name in sorted(found))
            ).hexdigest()
            for run, found in curves.items()
        }
        runs = {
            json.dumps(row.spec, sort_keys=True): (
                row.run,
                row.status,
                {name: repr(value) for name, value in row.results.items() if name != "tokens_per_second"},
                losses[row.run],
            )
            for row in rows
        }
        return runs, study.notes("constants/"), study.notes("sweep/")
