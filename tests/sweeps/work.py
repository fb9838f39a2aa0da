"""Work for executors: functions that a worker can import, quickly."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from widthwise.sweeps.executors import Tell


def double(payload: int, tell: Tell) -> int:
    return 2 * payload


def count(payload: int, tell: Tell) -> int:
    for value in range(payload):
        tell(value)
    return payload


def fail(payload: str, tell: Tell) -> None:
    with Path(payload).open("a") as marker:
        marker.write("tried\n")
    raise ValueError("width is -1: expected 1 or more\nand more that nobody wants to read")


def large(payload: int, tell: Tell) -> str:
    return "x" * payload


def echo(payload: str, tell: Tell) -> str:
    return payload


def unpicklable(payload: None, tell: Tell) -> Any:
    return threading.Lock()


def sleep(payload: float, tell: Tell) -> None:
    tell(os.getpid())
    time.sleep(payload)


def wait_for(payload: str, tell: Tell) -> None:
    end = time.monotonic() + 30
    while not Path(payload).exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{payload} never came")
        time.sleep(0.02)


def die_at_first(payload: str, tell: Tell) -> int:
    """Leave a line in a file at each attempt; be killed at the first."""
    marker = Path(payload)
    with marker.open("a") as file:
        file.write("tried\n")
    attempts = marker.read_text().count("tried")
    tell(attempts)
    if attempts == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return attempts


def always_die(payload: None, tell: Tell) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(payload: int, tell: Tell) -> None:
    os._exit(payload)


def until_stopped(payload: float, tell: Tell) -> str:
    for step in range(int(payload / 0.02)):
        if tell(step):
            return "stopped"
        time.sleep(0.02)
    return "never stopped"


def describe_worker(payload: None, tell: Tell) -> dict[str, Any]:
    names = ("JAX_PLATFORMS", "NPROC", "OMP_NUM_THREADS")
    return {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}}
