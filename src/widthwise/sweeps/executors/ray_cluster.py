"""The executor on a Ray cluster: a pack is a Ray task that requests CPUs and GPUs on any machine that has them.

Ray's own retries are off: a task whose worker or machine is lost is submitted again from here, so that it is counted
and reported as by other executors. Progress and the request to stop pass through one small actor.
"""

import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

from widthwise.sweeps.executors.contract import (
    POLL,
    Completion,
    Failed,
    OnTold,
    Submission,
    WorkerPool,
    cpu_environment,
)


class RayCluster(WorkerPool):
    """Computes packs on a Ray cluster.

    An existing connection of this process is used and kept; otherwise one is made, and ended by `close`.

    Args:
        address: Where the cluster is: auto, for the one this machine belongs to; local, to start one here;
            or host:port.
        cpus: CPUs for each pack.
        gpus: GPUs for each pack; a fraction lets packs share one, 0 keeps them on the CPU.
        say: Receives a line when a worker died and its pack is tried again.
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
        super().__init__(say=say)
        self._ray: Any = ray
        self._needs = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            self._connect(address)
        if not self._room():
            self._disconnect()
            raise ValueError(f"cpus is {cpus:g} and gpus is {gpus:g}: no machine of the Ray cluster has as many")
        # A checkout is found by workers that see the same files; elsewhere Python skips folders that do not exist.
        paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
        device = gpu_environment(gpus) if gpus else cpu_environment(int(cpus))
        environment = {"env_vars": {"PYTHONPATH": paths, **device}}
        actor = self._ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, runtime_env=environment)
        task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, runtime_env=environment)
        self._wire, self._compute = actor(_Wire).remote(), task(_compute)

    @property
    def capacity(self) -> int:
        """The number of packs that the machines now in the cluster have room for."""
        return max(self._room(), 1)

    def close(self) -> None:
        """Cancel all packs, and end the connection if it was made here."""
        if not self._ray.is_initialized():
            return
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
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
        if self._connected_here:
            self._ray.shutdown()

    def _room(self) -> int:
        """Count packs machine by machine: the CPU and the GPU of a pack must be in the same one."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        needs = self._needs.items()
        return sum(min(int(machine.get(name, 0) / amount) for name, amount in needs) for machine in machines)

    def _start(self, pack: Submission) -> Any:
        return self._compute.remote(pack, self._wire)

    def _listen(self, progress: OnTold, stopping: bool) -> Iterator[Completion | None]:
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=POLL)
        for key, value in self._ray.get(self._wire.listen.remote(stopping)):
            progress(key, value)
        for reference in ended:
            yield self._completion(reference)
        if stopping and not self._running:
            self._ray.get(self._wire.listen.remote(False))  # or the next packs would still be told to stop

    def _completion(self, reference: Any) -> Completion | None:
        pack, failures = self._running.pop(reference), self._ray.exceptions
        try:
            return pickle.loads(self._ray.get(reference))
        except (
            failures.WorkerCrashedError,
            failures.OutOfMemoryError,
            failures.NodeDiedError,
            failures.ObjectLostError,
        ) as error:
            return self._retry(pack, f"was lost ({type(error).__name__})")
        except failures.RayTaskError as error:
            return Failed.of(pack.key, error.cause)
        except failures.RayError as error:
            return Failed.of(pack.key, error)


def gpu_environment(share: float) -> dict[str, str]:
    """Return the variables that let several workers share a GPU, of which JAX else takes three quarters of the memory.

    >>> gpu_environment(0.5), gpu_environment(1.0)
    ({'XLA_CLIENT_MEM_FRACTION': '0.45'}, {})
    """
    return {"XLA_CLIENT_MEM_FRACTION": f"{0.9 * share:.2f}"} if share < 1 else {}


def _knock(address: str) -> None:
    """Raise ValueError for an address where nothing answers: Ray itself would keep trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"address is {address!r}: expected auto, local or host:port")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"address is {address!r}: no Ray cluster there ({error})") from None


class _Wire:
    """An actor between the driver and work on any machine."""

    def __init__(self) -> None:
        self._told: list[tuple[str, Any]] = []
        self._stop = False

    def tell(self, key: str, value: Any) -> bool:
        """Keep a value for the driver and return whether to stop."""
        self._told.append((key, value))
        return self._stop

    def listen(self, stop: bool) -> list[tuple[str, Any]]:
        """Return what was told since the last call."""
        told, self._told, self._stop = self._told, [], stop
        return told


def _compute(pack: Submission, wire: Any) -> bytes:
    """Do the work in a worker. Each value told has arrived before work continues, so no progress follows completion."""
    import ray

    return pack.compute(lambda value: ray.get(wire.tell.remote(pack.key, value)))
