"""A line that says where long work stands: rewritten in place on a terminal, now and then elsewhere."""

import sys
import time

EVERY = 10.0
"""Seconds between lines where they cannot be rewritten."""


class StatusLine:
    """One line on standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet and not self._terminal
        self._last = time.monotonic()
        self._length = 0

    def show(self, text: str) -> None:
        """Show where things stand."""
        if self._terminal:
            sys.stderr.write(f"\r{text.ljust(self._length)}")
            sys.stderr.flush()
            self._length = len(text)
        elif not self._quiet and time.monotonic() - self._last > EVERY:
            self._last = time.monotonic()
            self.say(text)

    def say(self, text: str) -> None:
        """Say something that is to stay."""
        self.clear()
        print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave the line empty."""
        if self._terminal and self._length:
            sys.stderr.write(f"\r{' ' * self._length}\r")
            self._length = 0
