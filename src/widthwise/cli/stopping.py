"""Stopping when asked to, at a moment when nothing is lost."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT or SIGTERM into a wish to stop; a second one stops at once."""
    asked = False

    def ask(*_: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {name: signal.signal(name, ask) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
