"""The executor on this machine: several processes, each with one pack at a time and its share of the cores.

On a CPU, lanes of one program gain nothing, so packs are spread over processes. These are spawned, not forked, because
JAX has threads, and reused, because they hold compiled programs. Each is reached through one pipe:
`ProcessPoolExecutor` loses every pack in flight when one worker dies; here only that worker's pack is tried again.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process, resource_tracker
from typing import Any

from widthwise.sweeps.executors.contract import POLL, Completion, OnTold, Submission, WorkerPool, cpu_environment


class Processes(WorkerPool):
    """Computes packs in several processes on this machine's CPU.

    Args:
        workers: The number of processes; they start when they are first needed.
        say: Receives a line when a worker died and its pack is tried again.
    """

    def __init__(self, workers: int, *, say: Callable[[str], None] = lambda _: None) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}: expected 1 or more")
        super().__init__(say=say)
        self._capacity = workers
        self._idle: list[_Worker] = []

    @property
    def capacity(self) -> int:
        """The number of workers."""
        return self._capacity

    def close(self) -> None:
        """Kill the workers: they hold nothing that only they know, and may be deep in a computation."""
        for worker in (*self._running, *self._idle):
            worker.kill()
        self._running.clear()
        self._idle.clear()
        self._line.clear()

    def _start(self, pack: Submission) -> "_Worker":
        worker = self._idle.pop() if self._idle else _Worker(cpu_environment(cores() // self._capacity))
        worker.start(pack)
        return worker

    def _listen(self, progress: OnTold, stopping: bool) -> Iterator[Completion | None]:
        workers: dict[Any, _Worker] = {worker.pipe: worker for worker in self._running}
        if stopping:
            for worker in workers.values():
                worker.ask_to_stop()
        for pipe in connection.wait(list(workers), POLL):
            yield self._receive(workers[pipe], progress)

    def _receive(self, worker: "_Worker", progress: OnTold) -> Completion | None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):  # the worker died
            return self._retry(self._running.pop(worker), worker.bury())
        if isinstance(message, _Told):
            progress(self._running[worker].key, message.value)
            return None
        del self._running[worker]
        self._idle.append(worker)
        return message


@dataclass(frozen=True)
class _Told:
    value: Any


class _Worker:
    """The driver's end of a worker."""

    def __init__(self, environment: dict[str, str]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._asked_to_stop = False
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _at_birth(environment):
            self._process.start()
        theirs.close()  # or there would be no end of file when the worker dies

    def start(self, pack: Submission) -> None:
        self._asked_to_stop = False
        self._send(pack)

    def ask_to_stop(self) -> None:
        if not self._asked_to_stop:
            self._asked_to_stop = True
            self._send(None)

    def _send(self, message: Any) -> None:
        with suppress(OSError):  # the worker is dead, which is noticed when its pipe is read
            self.pipe.send(message)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self.pipe.close()

    def bury(self) -> str:
        """Remove a dead worker and return how it ended."""
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
    threading.Thread(target=_exit_with_driver, daemon=True).start()

    def tell(value: Any) -> bool:
        pipe.send(_Told(value))
        return pipe.poll()  # during work, the driver sends nothing but the request to stop

    with suppress(EOFError, OSError):
        while True:
            pack: Submission | None = pipe.recv()
            if pack is not None:  # None: a request to stop that came too late
                pipe.send_bytes(pack.compute(tell))


def _exit_with_driver() -> None:
    """Wait until the driver is gone, however it ended, and exit in the middle of any work."""
    driver = parent_process()
    assert driver is not None
    connection.wait([driver.sentinel])
    os._exit(1)


@contextmanager
def _at_birth(environment: dict[str, str]) -> Iterator[None]:
    """Let a process started here have these variables, unless the user set them, and block Ctrl-C in it.

    A terminal sends Ctrl-C to all processes; only the driver decides what it means for workers. Because it is blocked
    from the first instruction, it cannot arrive during imports, as it could if the worker ignored it by itself.
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


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
