"""What a command prints for people: composed first, then written in one go.

Writing once means that a reader who stops reading, or a disk that is full, is met in one place (`main`). Tables are
never squeezed: a number cut to fit a narrow terminal is a wrong number, so lines run over instead.
"""

import sys

from rich import box
from rich.console import Console
from rich.table import Table


class Output:
    """Lines and tables to be printed."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, width=10_000)
        self._text: list[str] = []

    def lines(self, *lines: str) -> None:
        """Add lines as they are."""
        self._text += [f"{line}\n" for line in lines]

    def table(self, table: Table) -> None:
        """Add a table at the width it needs."""
        with self._console.capture() as capture:
            self._console.print(table)
        self._text.append("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))

    def write(self) -> None:
        """Print everything."""
        sys.stdout.write("".join(self._text))


def plain_table(*headings: str) -> Table:
    """Make a table with a line under its headings and no other."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table
