"""The contract of executors: each pack submitted is computed somewhere and completes exactly once.

An executor knows neither training nor the store. Completions are iterated over, because the driver acts on them: it
records results and submits what the search proposes next, while other packs are still being computed. Progress is a
callback, because an executor in the driver's own process hears of it from inside the work.
"""

import pickle
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

Tell: TypeAlias = Callable[[Any], bool]
"""Passed to work: tells a value to the driver, and returns whether to stop at the next point where nothing is lost."""
Work: TypeAlias = Callable[[Any, Tell], Any]
"""Computes a result from a payload. To run in another process, it must be a module's function, and values picklable."""
OnTold: TypeAlias = Callable[[str, Any], None]
"""Receives the key of a pack and a value that its work told."""

ATTEMPTS = 3
"""How often a pack is tried if its workers die."""
POLL = 0.2
"""Seconds between calls of `stop`."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A pack that was computed."""

    key: str
    result: Any


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A pack whose work raised an exception, or whose workers died in every attempt; then there is no traceback."""

    key: str
    error: str
    traceback: str = ""

    @classmethod
    def of(cls, key: str, error: Exception) -> Self:
        """Describe an exception in one line.

        >>> Failed.of("a", KeyError("width")).error
        "KeyError: 'width'"
        """
        kind, line = type(error).__name__, str(error).strip().partition("\n")[0]
        where = "".join(traceback.format_exception(error))
        return cls(key=key, error=f"{kind}: {line}" if line else kind, traceback=where)


Completion: TypeAlias = Done | Failed


class Executor(ABC):
    """Computes packs.

    >>> from widthwise.sweeps.executors import Inline
    >>> with Inline() as executor:
    ...     executor.submit("a", lambda payload, tell: payload + 1, 1)
    ...     for completion in executor.results():
    ...         print(completion)
    ...         if completion.result < 3:
    ...             executor.submit("b", lambda payload, tell: payload + 1, completion.result)
    Done(key='a', result=2)
    Done(key='b', result=3)
    """

    @property
    @abstractmethod
    def capacity(self) -> int:
        """The number of packs computed at the same time; submit as many to keep every worker busy."""

    @abstractmethod
    def submit(self, key: str, work: Work, payload: Any) -> None:
        """Queue a pack; packs beyond the capacity wait for a free place."""

    @abstractmethod
    def results(
        self, *, progress: OnTold = lambda _key, _value: None, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Completion]:
        """Yield completions as they come until no pack is left; more can be submitted meanwhile.

        Work that raises an exception has failed and is not tried again. A pack whose worker dies is: its progress
        then starts over, but it completes once.

        Args:
            progress: Receives what work tells, in order.
            stop: Called several times a second, or whenever work tells something. Once it returns true, packs in line
                stay there, and work under way is told to stop; its packs still complete.
        """

    @abstractmethod
    def close(self) -> None:
        """Abort all packs at once and leave no process behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attempt(key: str, work: Work, payload: Any, tell: Tell) -> Completion:
    """Do the work and return its completion; an interruption or an exit passes through."""
    try:
        return Done(key=key, result=work(payload, tell))
    except Exception as error:
        return Failed.of(key, error)


@dataclass
class Submission:
    """A pack on its way to a worker: its work and payload, pickled."""

    key: str
    pickled: bytes
    attempts: int = 0

    def compute(self, tell: Tell) -> bytes:
        """Do the work and return the pickled completion; a value that cannot be unpickled or pickled is a failure."""
        try:
            work, payload = pickle.loads(self.pickled)
            return pickle.dumps(attempt(self.key, work, payload, tell))
        except Exception as error:
            return pickle.dumps(Failed.of(self.key, error))


class WorkerPool(Executor):
    """An executor with workers that may die, whose packs then go to others.

    Args:
        say: Receives a line when a worker died and its pack is tried again.
    """

    def __init__(self, *, say: Callable[[str], None]) -> None:
        self._say = say
        self._line: deque[Submission] = deque()
        self._running: dict[Any, Submission] = {}

    def submit(self, key: str, work: Work, payload: Any) -> None:
        """Start a pack if a worker is free, or put it in line."""
        self._line.append(Submission(key, pickle.dumps((work, payload))))
        self._start_waiting()

    def results(
        self, *, progress: OnTold = lambda _key, _value: None, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Completion]:
        """Yield completions, and start packs that wait in line as workers become free."""
        while True:
            stopping = stop()
            if not stopping:
                self._start_waiting()
            if not self._running:
                return
            yield from filter(None, self._listen(progress, stopping))

    def _start_waiting(self) -> None:
        while self._line and len(self._running) < self.capacity:
            pack = self._line.popleft()
            pack.attempts += 1
            self._running[self._start(pack)] = pack

    @abstractmethod
    def _start(self, pack: Submission) -> Any:
        """Start a pack and return a handle for it."""

    @abstractmethod
    def _listen(self, progress: OnTold, stopping: bool) -> Iterator[Completion | None]:
        """Wait a moment for running packs, pass progress on, and yield completions; None for a pack to be retried."""

    def _retry(self, pack: Submission, how: str) -> Failed | None:
        """Put a pack whose worker died in line again, or return its failure after the last attempt."""
        if pack.attempts == ATTEMPTS:
            return Failed(key=pack.key, error=f"its worker {how}, the last of {ATTEMPTS} that tried")
        self._say(f"{pack.key}: its worker {how}; another one starts it again")
        self._line.appendleft(pack)
        return None


def cpu_environment(threads: int) -> dict[str, str]:
    """Return the variables that keep a worker on its share of the CPU; they must be set before it imports JAX.

    XLA sizes its pool of threads by NPROC: without it, every worker would start one for each core.
    """
    share = str(max(threads, 1))
    return {"JAX_PLATFORMS": "cpu", "NPROC": share, "OMP_NUM_THREADS": share, "OPENBLAS_NUM_THREADS": share}
