"""The executor on this machine: several processes, each with a pack at a time and its share of the cores.

On a CPU, lanes of one program give nothing, so packs are spread over processes. These are spawned, not forked, because
JAX has threads, and kept, because their compiled programs are warm. A pipe to each is all there is:
`ProcessPoolExecutor` loses every pack in flight when one worker dies; here that worker's pack goes to another.
"""

import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process, resource_tracker
from typing import Any

from widthwise.sweep.executors.contract import ATTEMPTS, Executor, Failed, Outcome, Work, attempt_pickled
from widthwise.sweep.executors.environment import on_cpu

POLL = 0.2
"""Seconds between questions whether to stop."""


class Processes(Executor):
    """Computes packs in several processes on this machine's CPU.

    Args:
        workers: How many processes; they start when they are first needed.
        say: Told, in a line, when a worker died and its pack is given to another.
    """

    def __init__(self, workers: int, *, say: Callable[[str], None] = lambda _: None) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}: expected 1 or more")
        self._capacity, self._say = workers, say
        self._line: deque[_Pack] = deque()
        self._workers: list[_Worker] = []

    @property
    def capacity(self) -> int:
        """The number of workers."""
        return self._capacity

    def submit(self, key: str, work: Work, payload: Any) -> None:
        """Give a pack to a worker that is free, or put it in line."""
        self._line.append(_Pack(key, pickle.dumps((work, payload))))
        self._hand_out()

    def results(
        self,
        *,
        progress: Callable[[str, Any], None] = lambda _key, _value: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Outcome]:
        """Listen to the workers."""
        while True:
            if stop():
                for worker in self._workers:
                    worker.ask_to_stop()
            else:
                self._hand_out()
            busy = {worker.pipe: worker for worker in self._workers if worker.pack is not None}
            if not busy:
                return
            for pipe in connection.wait(list(busy), POLL):
                outcome = self._hear(busy[pipe], progress)  # pyright: ignore[reportArgumentType]
                if outcome is not None:
                    yield outcome

    def close(self) -> None:
        """Kill the workers: they hold nothing that only they know, and may be deep in a computation."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
        self._line.clear()

    def _hand_out(self) -> None:
        while self._line:
            worker = next((worker for worker in self._workers if worker.pack is None), None)
            if worker is None:
                if len(self._workers) == self._capacity:
                    return
                worker = _Worker(on_cpu(_cores() // self._capacity))
                self._workers.append(worker)
            worker.give(self._line.popleft())

    def _hear(self, worker: "_Worker", progress: Callable[[str, Any], None]) -> Outcome | None:
        """Take one message of a worker with a pack; a worker that died has left an end of file."""
        pack = worker.pack
        assert pack is not None
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            return self._lost(pack, worker.bury())
        if isinstance(message, _Told):
            progress(pack.key, message.value)
            return None
        worker.pack = None
        return message

    def _lost(self, pack: "_Pack", how: str) -> Failed | None:
        if pack.attempts == ATTEMPTS:
            return Failed(key=pack.key, error=f"its worker {how}, the last of {ATTEMPTS} that tried")
        self._say(f"{pack.key}: its worker {how}; another one starts it again")
        self._line.appendleft(pack)
        return None


@dataclass
class _Pack:
    key: str
    task: bytes
    attempts: int = 0


@dataclass(frozen=True)
class _Told:
    value: Any


class _Worker:
    """The driver's end of a worker."""

    def __init__(self, environment: dict[str, str]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.pack: _Pack | None = None
        self._asked = False
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _at_birth(environment):
            self._process.start()
        theirs.close()  # or there would be no end of file when the worker dies

    def give(self, pack: _Pack) -> None:
        """Have a pack computed."""
        self.pack, self._asked = pack, False
        pack.attempts += 1
        with suppress(OSError):  # a worker that is dead will be noticed by who listens to it
            self.pipe.send((pack.key, pack.task))

    def ask_to_stop(self) -> None:
        """Let the work under way hear, when next it tells something, that it is to stop."""
        if self.pack is not None and not self._asked:
            self._asked = True
            with suppress(OSError):
                self.pipe.send(None)

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.pipe.close()

    def bury(self) -> str:
        """Say how it ended; leave nothing of it."""
        self._process.join(1.0)  # its pipe closes a moment before it is gone
        code = self._process.exitcode
        self.kill()
        if code is None:
            return "closed its pipe"
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        return f"was killed by {name}" + (" (out of memory, perhaps)" if name == "SIGKILL" else "")


def _serve(pipe: connection.Connection) -> None:
    """Compute packs until the driver closes the pipe or is gone."""
    threading.Thread(target=_end_with_driver, daemon=True).start()

    def tell(value: Any) -> bool:
        pipe.send(_Told(value))
        return pipe.poll()  # during work, the driver sends nothing but the wish to stop

    with suppress(EOFError, OSError):
        while True:
            message = pipe.recv()
            if message is not None:  # a wish to stop that came too late
                key, task = message
                pipe.send_bytes(attempt_pickled(key, task, tell))


def _end_with_driver() -> None:
    """Wait until the driver is gone, however it went, and end this worker in the middle of its work."""
    driver = parent_process()
    assert driver is not None
    connection.wait([driver.sentinel])
    os._exit(1)


@contextmanager
def _at_birth(environment: dict[str, str]) -> Iterator[None]:
    """Let a process that is started here have these variables, unless the user set them, and be deaf to Ctrl-C.

    A terminal sends Ctrl-C to all processes; what it means for workers is for the driver to say. Blocked from before
    the first instruction, it cannot come while a worker imports, as it could if the worker itself ignored it.
    """
    resource_tracker.ensure_running()  # started with the first process, it would unblock Ctrl-C
    added = {name: value for name, value in environment.items() if name not in os.environ}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
