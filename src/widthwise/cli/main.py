"""The `widthwise` command: reads the arguments, runs the subcommand, and turns what is wrong into one line.

A subcommand is a frozen dataclass, whose fields are its options, with a `run` method. Only the one that is asked for
is imported, so that none has to wait for another's dependencies.
"""

import contextlib
import gc
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Protocol

import tyro

from widthwise import __version__
from widthwise.cli.arguments import RULES

FAILED = 1
WRONG_INPUT = 2
INTERRUPTED = 130

COMMANDS = {
    "exponents": ("Exponents", "learning-rate exponents for a parameterization, and whether they are stable"),
    "explain": ("Explain", "what a parameterization prescribes for every parameter of a built-in model"),
    "train": ("Train", "train a transformer, or one with each of several learning rates"),
    "check": ("Check", "whether activations keep their size as the network gets wider, and what to change"),
    "align": ("Align", "measure alignment in training, and the exponents that it implies"),
    "sweep": ("Sweep", "search learning rates over widths and settings, and say whether they transfer"),
    "tune": ("Tune", "search the constant factors of the layers' learning rates at the base width"),
    "fit": ("Fit", "the optimal learning rate against width, from the runs of a study"),
    "report": ("Report", "what a study says, as a page with figures and tables"),
    "experiment": ("Experiment", "carry out an experiment of the paper, and say which of its claims hold here"),
    "tokenizer": ("Tokenizer", "train a SentencePiece model on text of your own"),
    "plan": ("Plan", "parameters and compute-optimal steps of a transformer, without allocating it"),
}
"""For each subcommand, the class in the module of its name, and what it is for."""

USAGE = "\n".join(
    [
        "usage: widthwise COMMAND [OPTIONS]",
        "",
        "How initialization, multipliers, learning rates and epsilons change with a network's width.",
        "",
        *(f"  {name:12}{summary}" for name, (_, summary) in COMMANDS.items()),
        "",
        "widthwise COMMAND --help explains a command; widthwise --version prints the version.",
    ]
)


class Command(Protocol):
    """What every subcommand is."""

    def run(self) -> int:
        """Do it; return the exit code."""
        ...


def command() -> NoReturn:
    """Be the command: run it and end the process."""
    sys.exit(main(leave=os._exit))


def main(arguments: Sequence[str] | None = None, *, leave: Callable[[int], object] = lambda _: None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: The words after the command's name; those of this process if None.
        leave: Called with the exit code after an interrupt that nothing was saved for: the process need not wait for
            what its threads still compile.
    """
    gc.set_threshold(100_000, 50)  # objects of imports and of programs stay: to look for garbage among them costs much
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its table
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = " ".join(["widthwise", *(word for word in given[:1] if word in COMMANDS)])
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return WRONG_INPUT
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        print(f"{name}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        with contextlib.suppress(OSError):  # whoever reads it may be gone
            sys.stdout.flush()
        leave(INTERRUPTED)
        return INTERRUPTED


def _discard_output() -> None:
    """Send what is still to be written nowhere, so that the interpreter does not try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(given: Sequence[str]) -> int:
    match given:
        case [] | ["-h" | "--help", *_]:
            print(USAGE)
            return 0
        case ["--version", *_]:
            print(f"widthwise {__version__}")
            return 0
        case [name, *options] if name in COMMANDS:
            return _parse(name, options).run()
        case [name, *_]:
            raise ValueError(f"{name!r} is not a command: expected one of {', '.join(COMMANDS)}")
        case _:
            raise AssertionError(given)


def _parse(name: str, options: Sequence[str]) -> Command:
    kind = getattr(importlib.import_module(f"widthwise.cli.{name}"), COMMANDS[name][0])
    complaint = io.StringIO()
    asks_for_help = "-h" in options or "--help" in options
    try:
        with contextlib.redirect_stderr(complaint), contextlib.nullcontext() if asks_for_help else _wide_terminal():
            return tyro.cli(
                kind,
                prog=f"widthwise {name}",
                args=options,
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=RULES,
            )
    except SystemExit as end:
        if end.code:
            raise ValueError(one_line(complaint.getvalue())) from None
        raise


@contextlib.contextmanager
def _wide_terminal() -> Iterator[None]:
    """Keep tyro from breaking the lines of its complaints, which are to become one line."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


_OPTION = re.compile(r"^--[\w-]+(?=$|[ ,])", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def one_line(boxed: str) -> str:
    """Take the message, and the options it suggests, out of the box that tyro draws around them.

    >>> print(one_line('''╭─ Unrecognized options ──╮
    ... │ Unrecognized options: --jso │
    ... │ ─────────────────────────── │
    ... │ Perhaps you meant:          │
    ... │     --json                  │
    ... ╰─────────────────────────────╯'''))
    Unrecognized options: --jso; perhaps you meant --json
    """
    sections: list[list[str]] = [[]]
    for line in boxed.splitlines()[1:]:  # the first line is a title
        row = _COLOUR.sub("", line).strip("│╰╯ ")
        if set(row) <= {"─", "-"}:
            sections.append([])
        else:
            sections[-1].append(row)
    first, *others = (section for section in sections if section)
    message = " ".join(first)
    if message.endswith(":"):  # it was about an empty word
        message += " ''"
    for section in others:
        if section[0].startswith("Perhaps you meant"):
            message += "; perhaps you meant " + " or ".join(_OPTION.findall("\n".join(section)))
    return message
