"""Prints one line in place of what JAX writes when it aborts a process because another one is gone.

JAX ends the process from a thread of its own, in C++, with pages of output that Python can neither replace nor prevent.
So the process writes its standard error to this program, which passes everything on until the end begins. It is run by
its path and imports nothing, to start within milliseconds.
"""

import sys

END = (b"Polled an error from coordination service", b"Use error polling to propagate", b"Terminating process because")
"""How JAX begins to say that a process is gone."""


def main(line: str) -> None:
    """Copy standard input to standard error; from the end on, print only one line.

    The line is the given one if JAX ends the process, and the process's own if that begins like it.
    """
    own = line.partition(":")[0].encode()
    for written in sys.stdin.buffer:
        if any(sign in written for sign in END):
            written = f"{line}\n".encode()
        elif not written.startswith(own):
            _write(written)
            continue
        _write(written)
        sys.stdin.buffer.read()
        return


def _write(written: bytes) -> None:
    sys.stderr.buffer.write(written)
    sys.stderr.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
