"""The `widthwise` command: reads the arguments, runs the subcommand, and turns errors into one line.

A subcommand is a frozen dataclass, whose fields are its options, with a `run` method. Only the one that is asked for
is imported, so that none has to wait for another's dependencies.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Protocol

import tyro

from widthwise import __version__
from widthwise.cli.arguments import RULES
from widthwise.cli.running import FAILED, INTERRUPTED, WRONG_INPUT, SavedAndStopped

COMMANDS = {
    "exponents": "learning-rate exponents of a parameterization, and whether they are stable",
    "explain": "what a parameterization prescribes for each parameter of a built-in model",
    "train": "train a transformer, at one learning rate or several",
    "check": "check that activations keep their size as the network gets wider",
    "align": "measure alignment during training, and the exponents that it implies",
    "sweep": "search learning rates over widths and settings, and tell whether they transfer",
    "tune": "search the constant factors of the layers' learning rates at the base width",
    "fit": "fit the optimal learning rate against width, from the runs of a study",
    "transfer": "every hyperparameter of a larger model, from those of a tuned one",
    "report": "write the results of a study as a page with figures and tables",
    "export": "write the runs of a study to a file, to read elsewhere or to publish",
    "merge": "add exported files, or other studies, to a study",
    "experiment": "run an experiment of the paper, and tell which of its claims hold here",
    "tokenizer": "train a SentencePiece model on your own text",
    "plan": "parameters, compute-optimal steps and cost of a transformer, without allocating it",
}
"""What each subcommand does. `NAME` is the class `NameCommand` in the module of its name."""

COMPUTING = ("sweep", "tune", "experiment")
"""Subcommands that train many runs, usually in this process."""

USAGE = "\n".join(
    [
        "usage: widthwise COMMAND [OPTIONS]",
        "",
        "How initialization, multipliers, learning rates and epsilons change with a network's width.",
        "",
        *(f"  {name:12}{summary}" for name, summary in COMMANDS.items()),
        "",
        "widthwise COMMAND --help explains a command; widthwise --version prints the version.",
    ]
)


class Command(Protocol):
    """A subcommand with its options."""

    def run(self) -> int:
        """Run it and return the exit code."""
        ...


def command() -> NoReturn:
    """Run the command line of this process and exit.

    After success nothing is freed piece by piece, which takes half a second after training.
    """
    code = main(leave=os._exit)
    if code == 0:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None, *, leave: Callable[[int], object] = lambda _: None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: The words after the command's name; those of this process if None.
        leave: Called with the exit code after an error, or an interrupt for which nothing was saved: the process need
            not wait for its threads to finish compiling, nor for others that train with it, and its one line is the
            last.
    """
    # Fits solve small systems, where threads get into each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000, 50)  # objects of imports and programs stay: searching them for garbage is slow
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its table
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = " ".join(["widthwise", *(word for word in given[:1] if word in COMMANDS)])

    def end(line: str, code: int) -> int:
        print(f"{name}: {line}", file=sys.stderr)
        with contextlib.suppress(OSError):  # whoever reads it may be gone
            sys.stdout.flush()
        leave(code)
        return code

    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except ValueError as error:
        return end(str(error), WRONG_INPUT)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("widthwise"):
            raise
        extra = _extra(given, error.name)
        return end(f"needs {error.name}, which is not installed: pip install 'widthwise[{extra}]'", WRONG_INPUT)
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        return end(str(error), FAILED)
    except SavedAndStopped:
        print(f"{name}: interrupted and saved: run the same command to resume", file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        return end("interrupted", INTERRUPTED)


def _extra(given: Sequence[str], missing: str) -> str:
    """Return the extra that has all that a command line needs, so that nobody installs one only to miss the next."""
    name, *options = given
    if any(option.split("=")[0] == "--ray" for option in options):
        return "ray"
    if name == "report" and missing in ("jinja2", "matplotlib"):
        return "report"
    return "text" if name == "tokenizer" else "lab"


def _discard_output() -> None:
    """Discard what is still buffered, so that the interpreter does not try to write it again when it exits."""
    with contextlib.suppress(io.UnsupportedOperation):  # called from Python, whose output goes nowhere that can fill
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
    _start_device(name, options)
    kind = getattr(importlib.import_module(f"widthwise.cli.{name}"), f"{name.capitalize()}Command")
    config = (tyro.conf.FlagCreatePairsOff,)
    parse = functools.partial(tyro.cli, kind, prog=f"widthwise {name}", args=options, config=config, registry=RULES)
    if "-h" in options or "--help" in options:
        return parse()
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), _wide_terminal():
            return parse()
    except SystemExit:
        raise ValueError(one_line(complaint.getvalue())) from None


def _start_device(name: str, options: Sequence[str]) -> None:
    """Initialize the device while the command is imported, if it will compute here.

    A GPU takes seconds to initialize, mostly outside of Python; importing takes more than a second. Workers, and other
    processes of one large run, must find the device as it is.
    """
    elsewhere = ("--processes", "--ray", "--help", "-h")
    if name in COMPUTING and not any(option.split("=")[0] in elsewhere for option in options):
        with contextlib.suppress(ImportError):  # the command itself says what is missing
            import jax

            threading.Thread(target=_devices, args=(jax,)).start()


def _devices(jax: Any) -> None:
    with contextlib.suppress(Exception):  # raised again in the thread that needs them
        jax.devices()


@contextlib.contextmanager
def _wide_terminal() -> Iterator[None]:
    """Keep tyro from breaking the lines of its messages, which are to become one line."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def one_line(boxed: str) -> str:
    """Read the message, and the options it suggests, from the box that tyro draws around them.

    tyro offers no message without a box: its hook for errors is private, and missing from versions that we support.

    >>> print(one_line('''╭─ Unrecognized options ──╮
    ... │ Unrecognized options: --jso │
    ... │ ─────────────────────────── │
    ... │ Perhaps you meant:          │
    ... │     --json                  │
    ... ╰─────────────────────────────╯'''))
    Unrecognized options: --jso; perhaps you meant --json
    """
    title, *rows = (re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│╭╮╰╯ ") for line in boxed.splitlines())
    sections = re.split(r"^[─-]*$", "\n".join(rows), flags=re.MULTILINE)  # hyphens where there is no UTF-8
    message, *others = (section.split("\n") for section in map(str.strip, sections) if section)
    text = re.sub(r"^Error parsing \w+: ", "", " ".join(message))  # a class, not an option, means nothing here
    if "Unrecognized" not in title:
        return text
    options = [row.split()[0].strip(",") for section in others for row in section if row.startswith("--")]
    text += " ''" if text.endswith(":") else ""  # it was about an empty word
    return f"{text}; perhaps you meant {' or '.join(options)}" if options else text
