"""The status line fits any terminal and leaves nothing behind; elsewhere it is a line now and then."""

import fcntl
import os
import re
import select
import struct
import sys
import termios
from collections.abc import Callable, Iterator

import pytest

from widthwise.cli import main
from widthwise.cli.running import StatusLine

LONG = "9 of 20 runs so far  4 running  waiting for 3  2 diverged  best 2.5000 at width 64  1:15 min left"


class Terminal:
    """A pseudo-terminal of some width, and what a person sees on it."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.file = os.fdopen(theirs, "w", encoding="utf-8")
        self._written = ""

    def screen(self) -> list[str]:
        """Return the lines on the screen, as a terminal draws what was written so far."""
        self.file.flush()
        while select.select([self.ours], [], [], 0.1)[0]:
            self._written += os.read(self.ours, 100_000).decode()
        lines, row, column = [""], 0, 0
        for code, char in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|(.)", self._written, flags=re.DOTALL):
            if code == "2K":
                lines[row] = ""
            elif code.endswith("A"):
                row -= int(code[:-1])
            elif char == "\r":
                column = 0
            elif char == "\n" or (char and column == self.columns):
                row, column = row + 1, 0
                lines += [""] * (row == len(lines))
            if char and char not in "\r\n":
                lines[row] = lines[row][:column].ljust(column) + char + lines[row][column + 1 :]
                column += 1
        return [line for line in map(str.rstrip, lines) if line]


@pytest.fixture
def open_terminal(monkeypatch) -> Iterator[Callable[[int], Terminal]]:
    """Return what makes a terminal standard error, to be called in the test: pytest sets its own after the setup."""
    before, opened = os.dup(2), []

    def open_one(columns: int) -> Terminal:
        monkeypatch.delenv("COLUMNS")
        monkeypatch.setenv("TERM", "xterm")
        terminal = Terminal(columns)
        monkeypatch.setattr(sys, "stderr", terminal.file)
        opened.append(terminal)
        os.dup2(terminal.file.fileno(), 2)
        return terminal

    yield open_one
    os.dup2(before, 2)
    os.close(before)
    for terminal in opened:
        terminal.file.close()
        os.close(terminal.ours)


@pytest.mark.parametrize("columns", [60, 80])
def test_a_long_status_is_cut_to_one_line_and_gone_at_the_end(open_terminal, columns: int):
    terminal = open_terminal(columns)
    with StatusLine() as status:
        status.show(LONG)
        (line,) = terminal.screen()
        assert len(line) == columns
        assert line[:-1] == LONG[: columns - 1]
        status.say("1 of width 16 failed")
        status.show("short")
        assert terminal.screen() == ["1 of width 16 failed", "short"]
        status.show(LONG)
    assert terminal.screen() == ["1 of width 16 failed"]


def test_an_error_takes_the_place_of_the_status(open_terminal, monkeypatch):
    terminal = open_terminal(60)

    def fail(spec, *, progress):
        progress(10_000_000)
        raise ValueError("the data is damaged")

    monkeypatch.setattr("widthwise.cli.runs.load_inputs", fail)
    assert main(["train"]) == 2
    assert terminal.screen() == ["widthwise train: the data is damaged"]


def test_the_cursor_is_never_left_hidden(open_terminal):
    terminal = open_terminal(60)
    with StatusLine() as status:
        status.show("step 1")
        terminal.screen()
        assert terminal._written.rindex("\x1b[?25h") > terminal._written.rindex("\x1b[?25l")


def test_without_a_terminal_it_is_a_line_now_and_then_unless_quiet(capsys, monkeypatch):
    times = iter(range(0, 100, 4))
    monkeypatch.setattr("widthwise.cli.running.time.monotonic", lambda: next(times))
    for quiet in (False, True):
        with StatusLine(quiet=quiet) as status:
            for step in range(4):
                status.show(f"step {step}")
            status.say("saved")
    assert capsys.readouterr().err.splitlines() == ["step 2", "saved", "saved"]
