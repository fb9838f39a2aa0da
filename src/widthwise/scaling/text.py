"""Tables as text, for consoles and notebooks."""

from collections.abc import Container, Iterable, Sequence


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Container[int] = ()) -> str:
    """Return a table as wide as its cells need; `right` are the numbers of the columns aligned to the right.

    >>> print(text_table(("path", "size"), [("in", "8"), ("out", "16")], right=(1,)))
    path  size
    ──────────
    in       8
    out     16
    """
    lines = [headings, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    text = [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([text[0], "─" * max(map(len, text)), *text[1:]])
