"""One run on several hosts: how its processes find each other, and how all end when one of them does.

A process that is killed, or whose host is gone, leaves the others in the middle of a computation that needs all. JAX
notices within `HEARTBEAT_SECONDS` and aborts them. A process that notices by itself, or fails, must not wait for the
others when it exits either. Whoever started them starts all of them again, and they resume.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from widthwise.cli import last_line
from widthwise.cli.running import FAILED, SavedAndStopped

HEARTBEAT_SECONDS = 30
"""How long JAX waits for a sign of life before it takes a process for dead."""


@contextmanager
def joined(coordinator: str | None, *, processes: int, process: int) -> Iterator[None]:
    """Join the processes of a run, and leave together with them; alone, do nothing.

    Args:
        coordinator: Host and port of the first process; None for a process on its own.
        processes: The number of processes.
        process: The number of this one.
    """
    if coordinator is None:
        yield
        return
    name, again = f"widthwise train: process {process} of {processes}", "start all of them again to resume"
    _print_at_the_end(f"{name}: another process is gone, or did not start: {again}")
    _keep_output_to_results()
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    try:
        jax.distributed.initialize(coordinator, processes, process, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
        try:
            yield
        except SavedAndStopped:
            jax.distributed.shutdown()
            raise
        jax.distributed.shutdown()
    except (SavedAndStopped, OSError, ValueError):
        raise
    except RuntimeError as error:
        _end(f"{name}: {str(error).strip().splitlines()[0][:300]}: {again}")
    except Exception:  # a bug: show it, and do not wait for the others at exit
        traceback.print_exc()
        _end(f"{name}: failed")


def _print_at_the_end(line: str) -> None:
    """Let one line be printed in place of what JAX says at the end; Python's own messages do not take this way."""
    reader, writer = os.pipe()
    subprocess.Popen(
        [sys.executable, "-I", "-S", last_line.__file__, line],
        stdin=reader,
        start_new_session=True,  # Ctrl-C is for the process that it serves
    )
    os.close(reader)
    sys.stderr = open(os.dup(2), "w", buffering=1, errors="replace")  # noqa: SIM115 (open until the process ends)
    os.dup2(writer, 2)
    os.close(writer)


def _keep_output_to_results() -> None:
    """Discard what is not printed by Python: Gloo, which connects CPUs, reports to standard output that it did."""
    sys.stdout.flush()
    sys.stdout = open(os.dup(1), "w", errors="replace")  # noqa: SIM115 (open until the process ends)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _end(line: str) -> None:
    """Exit at once, without the others; the line takes the same way as JAX's, so that there is only one."""
    os.write(2, f"{line}\n".encode())
    os._exit(FAILED)
