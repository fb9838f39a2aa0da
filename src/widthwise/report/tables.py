"""Tables as CSV for programs, as LaTeX (with booktabs) for papers, and what a page needs to lay them out.

The paper's values have columns of their own, labelled in the heading and set in italics.
"""

import csv
import io
import re
from itertools import groupby

from widthwise.report.exhibits import Table

_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+-]?\d+)?( \?)?|[–-]|\[.*\]|unknown|[+−-]?[\d.]+ \[.*\]")
_LATEX = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--"}
    | {"ε": r"$\varepsilon$", "α": r"$\alpha$", "ω": r"$\omega$", "γ": r"$\gamma$", "π": r"$\pi$"}
    | {"≤": r"$\le$", "≥": r"$\ge$", "×": r"$\times$", "√": r"$\surd$"}
)


def headings(table: Table) -> list[str]:
    """Return the headings of the columns, with the paper's labelled.

    >>> headings(Table(name="", title="", caption="", columns=("loss", "loss"), rows=(), paper=frozenset({1})))
    ['loss', 'loss, paper']
    """
    return [
        f"{heading}, paper" if column in table.paper and "paper" not in heading else heading
        for column, heading in enumerate(table.columns)
    ]


def right_aligned(table: Table) -> list[bool]:
    """Return which columns are aligned to the right: those of numbers, except the first."""
    columns = zip(*table.rows, strict=True) if table.rows else [[""]] * len(table.columns)
    return [number > 0 and all(map(_NUMBER.fullmatch, cells)) for number, cells in enumerate(columns)]


def row_spans(table: Table) -> list[int]:
    """Return how many rows each row's first cell spans; 0 where the row above has the same first cell.

    >>> row_spans(Table(name="", title="", caption="", columns=("of",), rows=(("a",), ("a",), ("b",))))
    [2, 0, 1]
    """
    groups = [len(list(rows)) for _, rows in groupby(table.rows, key=lambda row: row[0])]
    return [span for size in groups for span in (size, *[0] * (size - 1))]


def table_files(table: Table) -> dict[str, bytes]:
    """Return a table's files by format; none if it has no rows."""
    return {"csv": to_csv(table).encode(), "tex": to_latex(table).encode()} if table.rows else {}


def to_csv(table: Table) -> str:
    """Return a table for programs: a minus is a hyphen, and an unknown value is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(headings(table))
    writer.writerows(["" if text == "–" else text.replace("−", "-") for text in row] for row in table.rows)
    return file.getvalue()


def to_latex(table: Table) -> str:
    r"""Return a table for a paper that uses the package booktabs.

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

    def line(row: int, texts: list[str]) -> str:
        cells = [text.translate(_LATEX) for text in texts]
        cells = [rf"\textbf{{{cell}}}" if (row, n) in table.best else cell for n, cell in enumerate(cells)]
        cells = [rf"\textit{{{cell}}}" if n in table.paper else cell for n, cell in enumerate(cells)]
        return " & ".join(cells) + r" \\"

    return "\n".join(
        [
            f"% {table.title}. {table.caption}".replace("\n", " "),
            rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in right_aligned(table))}}}",
            r"\toprule",
            line(-1, headings(table)),
            r"\midrule",
            *(line(row, list(texts)) for row, texts in enumerate(table.rows)),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )
