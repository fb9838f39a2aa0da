"""The executor on a Ray cluster: a pack is a task, with the CPUs and GPUs it asks for, on whichever machine has them.

Ray could retry tasks by itself. It is told not to: a task whose worker or machine is lost is submitted again from here,
so that it counts and is reported as with other executors, and each pack has one task whose result is asked for.
Progress, and the wish to stop, go through one small actor.
"""

import logging
import os
import pickle
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from widthwise.sweep.executors.contract import ATTEMPTS, Executor, Failed, Outcome, Work, attempt_pickled
from widthwise.sweep.executors.environment import on_cpu, on_gpu

POLL = 0.2
"""Seconds between looks at progress and questions whether to stop."""


class RayCluster(Executor):
    """Computes packs on a Ray cluster.

    A connection that this process already has is used, and kept; otherwise one is made, and ended by `close`.

    Args:
        address: Where the cluster is: auto, for the one this machine belongs to; local, to start one here;
            or host:port.
        cpus: CPUs for each pack.
        gpus: GPUs for each pack; a fraction lets packs share one, 0 keeps them on the CPU.
        say: Told, in a line, when a worker died and its pack is given to another.
    """

    def __init__(
        self,
        *,
        address: str = "auto",
        cpus: float = 1.0,
        gpus: float = 0.0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not cpus > 0:
            raise ValueError(f"cpus is {cpus}: expected a number above 0")
        if gpus < 0:
            raise ValueError(f"gpus is {gpus}: expected 0 or more")
        try:
            import ray
        except ImportError:
            raise ValueError("running on Ray needs Ray: pip install 'widthwise[ray]'") from None
        self._ray: Any = ray
        self._say = say
        self._needs = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
        self._line: deque[_Pack] = deque()
        self._tasks: dict[Any, _Pack] = {}
        self._ours = not ray.is_initialized()
        if self._ours:
            self._connect(address)
        if not self._room():
            self._disconnect()
            raise ValueError(f"cpus is {cpus:g} and gpus is {gpus:g}: no machine of the Ray cluster has as many")
        # A checkout is found by workers that see the same files; elsewhere Python skips folders that do not exist.
        paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
        device = on_gpu(gpus) if gpus else on_cpu(int(cpus))
        environment = {"env_vars": {"PYTHONPATH": paths, **device}}
        actor = self._ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, runtime_env=environment)
        task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, runtime_env=environment)
        self._wire, self._compute = actor(_Wire).remote(), task(_compute)

    @property
    def capacity(self) -> int:
        """How many packs the machines now in the cluster have room for."""
        return max(self._room(), 1)

    def submit(self, key: str, work: Work, payload: Any) -> None:
        """Make a pack a task if the cluster has room for it, or put it in line."""
        self._line.append(_Pack(key, pickle.dumps((work, payload))))
        self._hand_out()

    def results(
        self,
        *,
        progress: Callable[[str, Any], None] = lambda _key, _value: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Outcome]:
        """Wait for tasks, and pass on what they tell."""
        while True:
            stopping = stop()
            if not stopping:
                self._hand_out()
            if not self._tasks:
                self._ray.get(self._wire.listen.remote(False))  # or the next packs would still be told to stop
                return
            ended, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=POLL)
            for key, value in self._ray.get(self._wire.listen.remote(stopping)):
                progress(key, value)
            for task in ended:
                outcome = self._outcome(task)
                if outcome is not None:
                    yield outcome

    def close(self) -> None:
        """Cancel what is still computed; end the connection if it was made here."""
        if not self._ray.is_initialized():
            return
        for task in self._tasks:
            self._ray.cancel(task, force=True)
        self._tasks.clear()
        self._line.clear()
        self._ray.kill(self._wire)
        self._disconnect()

    def _connect(self, address: str) -> None:
        if address not in ("auto", "local"):
            _knock(address)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            quiet["include_dashboard"] = False
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(f"address is {address!r}: no Ray cluster there ({reason})") from None

    def _disconnect(self) -> None:
        if self._ours:
            self._ray.shutdown()

    def _room(self) -> int:
        """Count packs machine by machine: one cannot have its CPU here and its GPU there."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        needs = self._needs.items()
        return sum(min(int(machine.get(name, 0) / amount) for name, amount in needs) for machine in machines)

    def _hand_out(self) -> None:
        while self._line and len(self._tasks) < self.capacity:
            pack = self._line.popleft()
            pack.attempts += 1
            self._tasks[self._compute.remote(pack.key, pack.task, self._wire)] = pack

    def _outcome(self, task: Any) -> Outcome | None:
        """Give what came of a task; None where it is to be done again."""
        pack, failures = self._tasks.pop(task), self._ray.exceptions
        try:
            return pickle.loads(self._ray.get(task))
        except (
            failures.WorkerCrashedError,
            failures.OutOfMemoryError,
            failures.NodeDiedError,
            failures.ObjectLostError,
        ) as error:
            how = f"its worker was lost ({type(error).__name__})"
        except failures.RayTaskError as error:
            return Failed.of(pack.key, error.cause)
        except failures.RayError as error:
            return Failed.of(pack.key, error)
        if pack.attempts == ATTEMPTS:
            return Failed(key=pack.key, error=f"{how}, the last of {ATTEMPTS} that tried")
        self._say(f"{pack.key}: {how}; another one starts it again")
        self._line.appendleft(pack)
        return None


def _knock(address: str) -> None:
    """Refuse an address where nobody answers: Ray itself would go on trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"address is {address!r}: expected auto, local or host:port")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"address is {address!r}: no Ray cluster there ({error})") from None


@dataclass
class _Pack:
    key: str
    task: bytes
    attempts: int = 0


class _Wire:
    """An actor between work, wherever it runs, and the driver."""

    def __init__(self) -> None:
        self._told: list[tuple[str, Any]] = []
        self._stop = False

    def tell(self, key: str, value: Any) -> bool:
        """Keep a value for the driver; answer whether to stop."""
        self._told.append((key, value))
        return self._stop

    def listen(self, stop: bool) -> list[tuple[str, Any]]:
        """Take what was told since the last time."""
        told, self._told, self._stop = self._told, [], stop
        return told


def _compute(key: str, task: bytes, wire: Any) -> bytes:
    """Do the work, in a worker. What it tells has arrived before it goes on, so progress never follows the outcome."""
    import ray

    return attempt_pickled(key, task, lambda value: ray.get(wire.tell.remote(key, value)))
