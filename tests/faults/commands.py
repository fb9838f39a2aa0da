"""Commands of Widthwise in processes of their own, whose steps are counted, and which can be struck at any moment."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests import conftest

SECONDS = 240.0
"""The longest that a command may take, or may take to stop."""
COUNTING = Path(__file__).with_name("counting")
ROOT = Path(conftest.__file__).parents[1]
LINES = 4
"""The most lines of standard error that are kept of a failure."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None
    out: str
    err: str

    @property
    def lines(self) -> int:
        """How many lines of standard error were printed."""
        return len(self.err.strip().splitlines())

    @property
    def failure(self) -> str:
        """What was printed last, for a person."""
        return " / ".join(self.err.strip().splitlines()[-LINES:])[-600:]


class Process:
    """A command that runs."""

    def __init__(self, words: Sequence[str], steps: Path, *, log: Path | None = None, **more: str) -> None:
        self._files = [Path(f"{log or steps}.{stream}") for stream in ("out", "err")]
        with self._files[0].open("w") as out, self._files[1].open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "widthwise.cli", *words],
                stdout=out,
                stderr=err,
                env=environment(steps, **more),
                cwd=ROOT,
            )
        self.pid = self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.poll()

    def wait(self, seconds: float = SECONDS) -> Ended | None:
        """Wait for it; return None if it takes longer."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return Ended(code, *(file.read_text(errors="replace") for file in self._files))

    def family(self) -> list[psutil.Process]:
        """Return its workers, and whatever else it started."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def strike(self, wish: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(wish)

    def end(self, wish: signal.Signals) -> Ended:
        """Send it a signal and wait until it has ended; one that hangs is killed and has no exit code."""
        self.strike(wish)
        return self.wait() or self.hung()

    def hung(self) -> Ended:
        """Kill it after it has taken too long; there is no exit code then."""
        self.strike(signal.SIGKILL)
        ended = self.wait()
        assert ended is not None
        return Ended(None, ended.out, ended.err)


def environment(steps: Path, **more: str) -> dict[str, str]:
    """Return the environment of a command that notes its steps in a file; its imports are compiled once."""
    found = [str(COUNTING), *filter(None, [os.environ.get("PYTHONPATH")])]
    added = {
        "PYTHONPATH": os.pathsep.join(found),
        "PYTHONPYCACHEPREFIX": str(ROOT / ".pytest_cache/bytecode"),
        "WIDTHWISE_STEPS": str(steps),
    }
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | added | more


def finish(words: Sequence[str], steps: Path, **more: str) -> Ended:
    """Run a command to its end."""
    process = Process(words, steps, **more)
    return process.wait() or process.hung()


def left_behind(family: Sequence[psutil.Process], seconds: float = 15.0) -> list[str]:
    """Return those processes that are still there after some seconds, and end them."""
    _, alive = psutil.wait_procs(list(family), seconds)
    found = []
    for process in alive:
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
                process.kill()
        except psutil.NoSuchProcess:
            continue
    return found


@dataclass(frozen=True)
class Chunk:
    """Steps that a process began to take."""

    pid: int
    start: int
    steps: int


def chunks(steps: Path) -> list[Chunk]:
    """Return what was noted in a file."""
    lines = steps.read_text().splitlines() if steps.exists() else []
    return [Chunk(*map(int, line.split())) for line in lines]
