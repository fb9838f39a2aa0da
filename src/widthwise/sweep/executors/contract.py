"""What an executor is: it computes packs somewhere and gives back what came of each, once.

It knows neither training nor the store: the driver alone writes there. Results are iterated over, because the driver
acts on them: it records them and submits what the search asks for next, while others are still computed. Progress is
a callback, because an executor in the driver's own process hears of it from inside the work.
"""

import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

Tell: TypeAlias = Callable[[Any], bool]
"""Given to work: tells a value to the driver, and answers whether to stop as soon as nothing is lost by it."""

Work: TypeAlias = Callable[[Any, Tell], Any]
"""Makes a result of a payload. To run elsewhere it has to be a function of a module, and all values picklable."""

ATTEMPTS = 3
"""How often a pack is computed when its workers die under it."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A pack that was computed.

    Attributes:
        key: What it was submitted as.
        result: What the work returned.
    """

    key: str
    result: Any


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A pack whose work raised an exception, or whose workers died as often as they may.

    Attributes:
        key: What it was submitted as.
        error: What went wrong, in one line.
        traceback: Where; empty when a worker died.
    """

    key: str
    error: str
    traceback: str = ""

    @classmethod
    def of(cls, key: str, error: Exception) -> "Failed":
        """Describe an exception.

        >>> Failed.of("a", KeyError("width")).error
        "KeyError: 'width'"
        """
        line = str(error).strip().partition("\n")[0]
        kind = type(error).__name__
        return cls(
            key=key,
            error=f"{kind}: {line}" if line else kind,
            traceback="".join(traceback.format_exception(error)),
        )


Outcome: TypeAlias = Done | Failed


class Executor(ABC):
    """Computes packs.

    >>> from widthwise.sweep.executors import Inline
    >>> with Inline() as executor:
    ...     executor.submit("a", lambda payload, tell: payload + 1, 1)
    ...     for outcome in executor.results():
    ...         print(outcome)
    ...         if outcome.result < 3:
    ...             executor.submit("b", lambda payload, tell: payload + 1, outcome.result)
    Done(key='a', result=2)
    Done(key='b', result=3)
    """

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many packs are computed at the same time: submit so many to keep everything busy."""

    @abstractmethod
    def submit(self, key: str, work: Work, payload: Any) -> None:
        """Have a pack computed; more than there is room for wait in line."""

    @abstractmethod
    def results(
        self,
        *,
        progress: Callable[[str, Any], None] = lambda _key, _value: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Outcome]:
        """Give what comes of every pack, as it comes, until there is none left; more can be submitted meanwhile.

        An exception in the work is an outcome, and the pack is not tried again. A pack whose worker dies is: its
        progress then starts over, but there is one outcome.

        Args:
            progress: Gets the key of a pack and what its work tells, in order.
            stop: Asked several times a second, or whenever work tells something. Once it says yes, packs in line are
                left there, and work under way is told to stop; what it then returns is given as ever.
        """

    @abstractmethod
    def close(self) -> None:
        """End at once what is still computed, and leave no process behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attempt(key: str, work: Work, payload: Any, tell: Tell) -> Outcome:
    """Do the work, and make what happens an outcome.

    Only exceptions are: an interruption or an exit passes through.
    """
    try:
        return Done(key=key, result=work(payload, tell))
    except Exception as error:
        return Failed.of(key, error)


def attempt_pickled(key: str, task: bytes, tell: Tell) -> bytes:
    """Do pickled work on a pickled payload; give the pickled outcome.

    In a worker, what cannot be imported or pickled is an error of the work like any other.
    """
    try:
        work, payload = pickle.loads(task)
        return pickle.dumps(attempt(key, work, payload, tell))
    except Exception as error:
        return pickle.dumps(Failed.of(key, error))
