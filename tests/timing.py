"""Timing for tests that promise one."""

import gc
import time
from collections.abc import Callable


def least_seconds(function: Callable[[], object], repeats: int = 10) -> float:
    """Give the least time of several calls: what the function takes when nothing else disturbs it.

    It is the time of this thread alone, and without the collection of garbage that other tests left behind.
    """

    def once() -> float:
        start = time.thread_time()
        function()
        return time.thread_time() - start

    gc.collect()
    gc.disable()
    try:
        return min(once() for _ in range(repeats))
    finally:
        gc.enable()
