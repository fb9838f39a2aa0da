"""Tables for a page, for programs (CSV) and for papers (LaTeX with booktabs).

The paper's values stand in columns of their own, which say so in their heading and are set in italics.
"""

import csv
import io
import re
from dataclasses import dataclass

from widthwise.experiments.exhibits import Table

_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+-]?\d+)?( \?)?|[–-]|\[.*\]|unknown|[+−-]?[\d.]+ \[.*\]")
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: rf"\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "ε": r"$\varepsilon$",
    "α": r"$\alpha$",
    "ω": r"$\omega$",
    "γ": r"$\gamma$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "×": r"$\times$",
    "√": r"$\surd$",
    "π": r"$\pi$",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell as a page shows it.

    Attributes:
        text: What it says.
        heading: Whether it names its row, or its rows.
        rows: How many rows it spans.
        number: Whether it stands to the right.
        best: Whether it is the best of its kind.
        paper: Whether it is the paper's.
    """

    text: str
    heading: bool = False
    rows: int = 1
    number: bool = False
    best: bool = False
    paper: bool = False

    @property
    def classes(self) -> str:
        """What the page's style knows it by."""
        marks = {"right": self.number, "best": self.best, "paper": self.paper}
        return " ".join(name for name, holds in marks.items() if holds)


def headings(table: Table) -> list[str]:
    """Name the columns, the paper's as such.

    >>> headings(Table(name="", title="", caption="", columns=("loss", "loss"), rows=(), paper=frozenset({1})))
    ['loss', 'loss, paper']
    """
    return [
        f"{heading}, paper" if place in table.paper and "paper" not in heading else heading
        for place, heading in enumerate(table.columns)
    ]


def heading_cells(table: Table) -> list[Cell]:
    """Arrange the headings."""
    right = numbers(table)
    return [
        Cell(text=text, heading=True, number=right[column] and column > 0, paper=column in table.paper)
        for column, text in enumerate(headings(table))
    ]


def cells(table: Table) -> list[list[Cell]]:
    """Arrange the cells; the first column's is given once where it repeats from row to row."""
    right = numbers(table)
    rows: list[list[Cell]] = []
    for row, texts in enumerate(table.rows):
        first = row == 0 or table.rows[row - 1][0] != texts[0]
        span = next((n for n, below in enumerate(table.rows[row:]) if below[0] != texts[0]), len(table.rows) - row)
        rows.append(
            [
                Cell(
                    text=text,
                    heading=column == 0,
                    rows=span if column == 0 else 1,
                    number=right[column] and column > 0,
                    best=(row, column) in table.best,
                    paper=column in table.paper,
                )
                for column, text in enumerate(texts)
                if column > 0 or first
            ]
        )
    return rows


def numbers(table: Table) -> list[bool]:
    """Say which columns hold numbers."""
    return [
        bool(table.rows) and all(_NUMBER.fullmatch(row[column]) for row in table.rows)
        for column in range(len(table.columns))
    ]


def to_csv(table: Table) -> str:
    """Write a table for programs: a minus is a minus, and what is not known is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(headings(table))
    writer.writerows([_plain(text) for text in row] for row in table.rows)
    return file.getvalue()


def to_latex(table: Table) -> str:
    r"""Write a table for a paper; it needs the package booktabs.

    >>> print(to_latex(Table(name="t", title="T", caption="All of 5 %.", columns=("of", "loss", "loss"),
    ...     rows=(("a_b", "−1.5", "2"),), best=frozenset({(0, 1)}), paper=frozenset({2}))))
    % T. All of 5 %.
    \begin{tabular}{lrr}
    \toprule
    of & loss & \textit{loss, paper} \\
    \midrule
    a\_b & \textbf{$-$1.5} & \textit{2} \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    columns = "".join("r" if number and place else "l" for place, number in enumerate(numbers(table)))
    lines = [
        f"% {table.title}. {table.caption}".replace("\n", " "),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _row([_italic(_escaped(heading), place in table.paper) for place, heading in enumerate(headings(table))]),
        r"\midrule",
    ]
    for number, row in enumerate(table.rows):
        escaped = [_escaped(text) for text in row]
        marked = [rf"\textbf{{{text}}}" if (number, i) in table.best else text for i, text in enumerate(escaped)]
        lines.append(_row([_italic(text, place in table.paper) for place, text in enumerate(marked)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _plain(text: str) -> str:
    return "" if text == "–" else text.replace("−", "-")


def _row(texts: list[str]) -> str:
    return " & ".join(texts) + r" \\"


def _italic(text: str, paper: bool) -> str:
    return rf"\textit{{{text}}}" if paper else text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
