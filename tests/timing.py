"""Timing for tests that promise one."""

import time
from collections.abc import Callable


def least_seconds(function: Callable[[], object], repeats: int = 10) -> float:
    """Give the least time of several calls: what the function takes when nothing else disturbs it."""

    def once() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return min(once() for _ in range(repeats))
