"""A command while it runs: the line that shows how far it has come, how it is stopped, and its exit codes.

The line is redrawn in place on a terminal and printed now and then elsewhere.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

FAILED = 1
WRONG_INPUT = 2
INTERRUPTED = 130
EVERY = 10.0
"""Seconds between lines where they cannot be redrawn."""


class SavedAndStopped(Exception):  # noqa: N818 (being asked to stop is no error)
    """Raised by a command that was asked to stop and has saved everything."""


class StatusLine:
    """A line on standard error, cut to the width of the terminal, and gone when the work ends.

    >>> with StatusLine() as status:
    ...     status.show("step 1 of 2")
    """

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._redraws = sys.stderr.isatty() and not console.is_dumb_terminal
        self._quiet = quiet
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, text: str) -> None:
        """Show where the work stands now."""
        if self._redraws:
            if not self._live.is_started:
                self._live.start()
                self._live.console.show_cursor()  # Rich hides it: a command that is killed would leave it hidden
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif not self._quiet and time.monotonic() - self._last > EVERY:
            self._last = time.monotonic()
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._live.is_started:  # above the live line, in one piece
            self._live.console.print(Text(text), soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)


class StoppedAtOnce(KeyboardInterrupt):
    """Raised where a command is when it is asked to stop and has nothing to save."""


class Stopping:
    """Whether a command was asked to stop, by SIGINT or SIGTERM; a second request interrupts it in any case."""

    def __init__(self, *, at_once: bool) -> None:
        self._asked, self._at_once = False, at_once

    def __call__(self) -> bool:
        """Return whether the command was asked to stop."""
        return self._asked

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do not interrupt the body, which polls and saves; but interrupt what follows it."""
        before, self._at_once = self._at_once, False
        try:
            yield
        finally:
            self._at_once = before
        if before and self._asked:
            raise StoppedAtOnce

    def ask(self, *_: Any) -> None:
        """Handle a signal."""
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        if self._at_once:
            raise StoppedAtOnce


@contextmanager
def stoppable(*, at_once: bool = False) -> Iterator[Stopping]:
    """Turn the first SIGINT or SIGTERM into a request to stop, which the caller polls; a second one stops at once.

    With `at_once`, the first one raises `StoppedAtOnce` where nothing is `held`: in minutes of fits, nobody polls.
    """
    stopping = Stopping(at_once=at_once)
    before = {name: signal.signal(name, stopping.ask) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
