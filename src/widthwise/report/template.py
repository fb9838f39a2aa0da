"""Fill a page of one's own with what a study says, so that no number in it is typed by hand.

The page is a Jinja template, usually of Markdown. What it can name:

    claims("transfer")                          all claims of the paper, with verdicts, numbers and the paper's;
                                                those of some experiments first
    findings("transfer")                        the findings of an experiment, one by one
    table("transfer", "grid")                   one of its tables
    figure("transfer", "sweeps-full")           one of its figures, saved as SVG beside the page
    measured("transfer", "near zero", "muP")    the number of one finding, chosen by words of its claim and of what it
                                                is about
    missing("transfer")                         what is missing of an experiment, in a line each
    counts, runs("transfer")                    how many runs ended, by status; how many an experiment has

An experiment at several scales is named with its scale: "transfer-gpu".
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined, TemplateError

from widthwise.report import tables
from widthwise.report.exhibits import AnyExhibit, Table
from widthwise.report.figures import draw_files
from widthwise.report.findings import Finding, Judgement
from widthwise.report.sections import Contents, Section
from widthwise.report.showing import called
from widthwise.study.export import write_whole

COLUMNS = tuple(map(called, ("standard", "ntk", "mup", "mean_field")))
SIGNS = {Judgement.HOLDS: "✓", Judgement.FAILS: "✗", Judgement.UNCLEAR: "?", Judgement.MISSING: "–"}
"""How verdicts are written in a table."""


def fill_template(template: Path, page: Path, contents: Contents) -> list[Path]:
    """Write the page of a template and the figures that it names; return all files written.

    Args:
        template: The template.
        page: The page to write. Figures go into a folder beside it that has its name.
        contents: What the study says.

    Raises:
        ValueError: If the template names something that the study does not have, or is no template.
    """
    filling = _Filling(contents, page)
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    names = ("claims", "findings", "table", "figure", "measured", "missing", "runs")
    try:
        text = environment.from_string(_read(template)).render(
            counts=contents.counts, **{name: getattr(filling, name) for name in names}
        )
    except (TemplateError, TypeError, LookupError, ArithmeticError) as error:
        line = getattr(error, "lineno", None)
        raise ValueError(f"{template}{f', line {line}' if line else ''}: {error}") from None
    write_whole(page, text.encode())
    return [page, *filling.figures]


def _read(template: Path) -> str:
    try:
        return template.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ValueError(f"the template {str(template)!r} cannot be read: {error}") from None


class _Filling:
    """What a template can name.

    Attributes:
        figures: The figures written so far.
    """

    def __init__(self, contents: Contents, page: Path) -> None:
        self._contents, self._page = contents, page
        self.figures: list[Path] = []

    def claims(self, *first: str) -> str:
        """Return all claims with what was measured and the paper's numbers, a column for each parameterization.

        Args:
            first: The experiments to begin with; the others follow.
        """
        sections = [section for section in self._contents.sections if section.of_paper]
        ahead = [self._section(name) for name in first]
        sections = [*ahead, *(section for section in sections if section not in ahead)]
        verdicts = Counter(one.verdict for section in sections for one in section.findings)
        total = ", ".join(
            f"{SIGNS[verdict]} {verdict} ({verdicts[verdict]})" for verdict in Judgement if verdicts[verdict]
        )
        by_name: list[Sequence[str]] = []
        others: list[Sequence[str]] = []
        for section in sections:
            link = f"**[{section.title}](#{_anchor(section.title)})**"
            for rows, width, new in ((by_name, len(COLUMNS), _by_name(section)), (others, 1, _others(section))):
                rows += [(link, *[""] * width), *new] if new else []
        return "\n".join(
            [
                f"{total}. In brackets after a number: its 95 % interval, and then the paper's number.\n",
                _markdown(("the paper's claim", *COLUMNS), by_name),
                _markdown(("the paper's other claims", "here"), others),
            ]
        )

    def findings(self, experiment: str) -> str:
        """Return a table of the findings of an experiment."""
        section = self._section(experiment)
        rows = [
            (claim if place == 0 else "", one.of, one.measured or "–", one.paper or "–", str(one.verdict))
            for claim, findings in section.claims.items()
            for place, one in enumerate(findings)
        ]
        headings = ("claim", "of", "here", "paper", "verdict")
        if section.of_paper:
            return _markdown(headings, rows)
        return _markdown((*headings[:3], headings[4]), [(*row[:3], row[4]) for row in rows])

    def table(self, experiment: str, name: str) -> str:
        """Return one of an experiment's tables, with its caption."""
        table = self._exhibit(experiment, name)
        if not isinstance(table, Table):
            raise ValueError(f"{name!r} of {experiment} is a figure: expected a table")
        rows = [
            [f"**{cell}**" if (i, j) in table.best else cell for j, cell in enumerate(row)]
            for i, row in enumerate(table.rows)
        ]
        return f"{_markdown(tables.headings(table), rows, tables.right_aligned(table))}\n{table.caption}"

    def figure(self, experiment: str, name: str) -> str:
        """Save one of an experiment's figures, and return what shows it, with its caption."""
        exhibit = self._exhibit(experiment, name)
        path = self._page.parent / self._page.stem / f"{self._section(experiment).name}-{name}.svg"
        files = draw_files(exhibit)
        if not files:
            raise ValueError(f"{name!r} of {experiment} is a table: expected a figure")
        write_whole(path, files["svg"])
        self.figures.append(path)
        return f"![{exhibit.title}]({path.relative_to(self._page.parent)})\n\n{exhibit.caption}"

    def measured(self, experiment: str, claim: str, of: str) -> str:
        """Return the number of a finding with its interval."""
        found = [one for one in self._section(experiment).findings if claim in one.claim and of in one.of]
        if len(found) != 1:
            raise ValueError(f"{len(found)} findings of {experiment} have {claim!r} and {of!r}: expected one")
        return _brief(found[0].measured) or "not measured"

    def missing(self, experiment: str) -> str:
        """Return what is missing of an experiment as a list; "nothing" if it is complete."""
        return "\n".join(f"- {line}" for line in self._section(experiment).missing) or "nothing"

    def runs(self, experiment: str) -> int:
        """Return how many runs an experiment has."""
        return self._section(experiment).runs

    def _section(self, experiment: str) -> Section:
        sections = {section.name: section for section in self._contents.sections}
        named = [section for name, section in sections.items() if experiment in (name, name.rpartition("-")[0])]
        if len(named) != 1:
            raise ValueError(f"{len(named)} sections are called {experiment!r}: expected one of {', '.join(sections)}")
        return named[0]

    def _exhibit(self, experiment: str, name: str) -> AnyExhibit:
        exhibits = {exhibit.name: exhibit for exhibit in self._section(experiment).exhibits}
        if name not in exhibits:
            raise ValueError(f"{experiment} shows no {name!r}: expected one of {', '.join(exhibits)}")
        return exhibits[name]


def _by_name(section: Section) -> list[Sequence[str]]:
    """Return the rows of claims that are about parameterizations one by one."""
    rows: dict[str, dict[str, str]] = {}
    for one in section.findings:
        if (column := _column(one)) is not None:
            more = [part for part in one.of.split(", ") if part != column]
            claim = f"{one.claim} ({', '.join(more)})" if more else one.claim
            rows.setdefault(claim, {})[column] = _cell(one)
    return [(claim, *(cells.get(column, "") for column in COLUMNS)) for claim, cells in rows.items()]


def _others(section: Section) -> list[Sequence[str]]:
    """Return the rows of all other claims."""
    others = [one for one in section.findings if _column(one) is None]
    return [(f"{one.claim} ({one.of})", _cell(one)) for one in others]


def _column(finding: Finding) -> str | None:
    """Return the parameterization that a claim is about; None if it is about several, or about none in particular."""
    named = [part for part in finding.of.split(", ") if part in COLUMNS]
    return named[0] if len(named) == 1 else None


def _cell(finding: Finding) -> str:
    theirs = "" if finding.paper is None or finding.paper in finding.claim else f" ({_brief(finding.paper)})"
    return f"{SIGNS[finding.verdict]} {_brief(finding.measured)}{theirs}"


def _brief(measured: str) -> str:
    """Return the first number of what was measured, with its interval, and how far it is from another.

    >>> _brief("−0.95 [−1.20, −0.71], apart by −1.02 [−1.38, −0.67]"), _brief("−1.87 %, from 2.625 to 2.576")
    ('−0.95 [−1.20, −0.71], apart by −1.02 [−1.38, −0.67]', '−1.87 %')
    >>> _brief("0.71 at width 1024 (0.74 at 256)")
    '0.71 at width 1024'
    """
    number = re.match(r"[^,\[]*\[[^\]]*\](, apart by [^\]]*\])?|[+−\d.]+ %|.+(?= \()", measured)
    return number[0] if number else measured


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """Write a table.

    >>> print(_markdown(("of", "loss"), [("all", "2.5")], (False, True)), end="")
    | of | loss |
    |---|--:|
    | all | 2.5 |
    """
    lines = [headings, *rows]
    rule = "|".join("--:" if number < len(right) and right[number] else "---" for number in range(len(headings)))
    written = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
    return "\n".join([written[0], f"|{rule}|", *written[1:]]) + "\n"


def _anchor(heading: str) -> str:
    """Return the anchor that Markdown gives a heading.

    >>> _anchor("Does the learning rate transfer over width?")
    'does-the-learning-rate-transfer-over-width'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
