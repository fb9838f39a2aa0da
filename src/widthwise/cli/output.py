"""Tables and durations for people.

Tables are never squeezed: a number cut to fit a narrow terminal is a wrong number, so lines run over instead.
"""

from collections.abc import Container, Iterable, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    right: Container[int] = (),
    gap: int = 2,
) -> str:
    """Return a table as wide as its cells need; `right` are the numbers of the columns aligned to the right."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0), show_edge=False)
    for number, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if number in right else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    console = Console(highlight=False, width=10_000)
    with console.capture() as capture:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> duration(3.4), duration(75), duration(7260), duration(200_000), duration(1e9)
    ('3 s', '1:15 min', '2:01 h', '2.3 days', '32 years')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}:{int(seconds % 60):02} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours}:{minutes % 60:02} h"
    years = hours / 24 / 365.25
    return f"{hours / 24:.1f} days" if years < 2 else f"{years:,.0f} years"


def between(least: float, most: float) -> str:
    """Write the bounds of a time, with one unit where one serves both.

    >>> between(12, 75), between(75, 150), between(75, 75.1)
    ('12 s to 1:15 min', '1:15 to 2:30 min', '1:15 min')
    """
    first, last = duration(least), duration(most)
    if first == last:
        return first
    _, _, unit = last.rpartition(" ")
    return f"{first.removesuffix(f' {unit}')} to {last}"
