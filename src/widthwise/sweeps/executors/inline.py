"""The executor in this process: one pack at a time, with nothing between the work and a debugger or a profiler."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from widthwise.sweeps.executors.contract import Completion, Executor, OnTold, Work, attempt


class Inline(Executor):
    """Computes packs in this process while their results are iterated over."""

    def __init__(self) -> None:
        self._line: deque[tuple[str, Work, Any]] = deque()

    @property
    def capacity(self) -> int:
        """One."""
        return 1

    def submit(self, key: str, work: Work, payload: Any) -> None:
        """Put a pack in line."""
        self._line.append((key, work, payload))

    def results(
        self, *, progress: OnTold = lambda _key, _value: None, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Completion]:
        """Compute one pack after the other."""
        while self._line and not stop():
            key, work, payload = self._line.popleft()

            def tell(value: Any, key: str = key) -> bool:
                progress(key, value)
                return stop()

            yield attempt(key, work, payload, tell)

    def close(self) -> None:
        """Drop the packs in line."""
        self._line.clear()
