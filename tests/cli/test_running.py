"""A request to stop waits for what has to be saved, and for nothing else."""

import os
import signal
import subprocess
import sys

import pytest

from widthwise.cli import last_line
from widthwise.cli.running import StoppedAtOnce, stoppable


def ask(wish: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), wish)


@pytest.mark.parametrize("wish", [signal.SIGTERM, signal.SIGINT])
def test_the_first_request_is_polled_and_the_second_one_interrupts(wish: signal.Signals):
    before = signal.getsignal(wish)
    with stoppable() as stop:
        assert not stop()
        ask(wish)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            ask(wish)
    assert signal.getsignal(wish) is before


def test_where_nothing_is_held_the_first_request_interrupts():
    with stoppable(at_once=True) as stop:
        with stop.held():
            pass
        with pytest.raises(StoppedAtOnce):
            ask()


def test_what_is_held_is_completed_and_what_follows_is_not_begun():
    done: list[str] = []

    def work() -> None:
        with stoppable(at_once=True) as stop:
            with stop.held():
                ask()
                done.append("held")
            done.append("what follows")

    with pytest.raises(StoppedAtOnce):
        work()
    assert done == ["held"]


def spoken(*lines: bytes) -> bytes:
    """Return what is left of the standard error of a process with a line to be printed at its end."""
    command = [sys.executable, "-I", "-S", last_line.__file__, "widthwise train: process 0 of 2: another is gone"]
    return subprocess.run(command, input=b"".join(lines), stderr=subprocess.PIPE, check=True).stderr


def test_what_jax_says_when_it_aborts_becomes_one_line():
    abort = (
        b"E coordination_service_agent.cc:289] Polled an error from coordination service\n",
        b"F more\n",
        b"@ 0x7f",
    )
    assert spoken(b"a warning\n", *abort) == b"a warning\nwidthwise train: process 0 of 2: another is gone\n"


def test_of_two_reports_of_the_end_only_the_first_is_printed():
    own = b"widthwise train: process 0 of 2: Connection closed by peer: start all of them again to resume\n"
    assert spoken(own, b"F client.h:80] Terminating process because\n") == own
    assert spoken(b"nothing\n", b"wrong\n") == b"nothing\nwrong\n"
