"""The page: one file with its style and its figures in it, so that it opens from disk and can be sent to somebody."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from widthwise import __version__
from widthwise.experiments.exhibits import AnyExhibit, Table
from widthwise.experiments.findings import Finding, Verdict
from widthwise.report.figures import variable
from widthwise.report.sections import Contents, Section
from widthwise.report.style import DARK
from widthwise.report.tables import Cell, cells, heading_cells

MARKS = {
    Verdict.HOLDS: ("holds", "✓"),
    Verdict.FAILS: ("fails", "✗"),
    Verdict.UNCLEAR: ("unclear", "?"),
    Verdict.MISSING: ("absent", "–"),
}
"""What the page's style calls each verdict, and a sign for it: colour alone would not do."""

MOST_UNFOLDED = 40
"""With more findings than that, the page opens with claims and their verdicts; numbers unfold."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An exhibit on the page.

    Attributes:
        name: What links to it.
        exhibit: The exhibit.
        files: Where it is kept, relative to the page, by format.
        drawn: The element that shows a figure; empty for a table.
    """

    name: str
    exhibit: AnyExhibit
    files: Mapping[str, str]
    drawn: str = ""

    @property
    def title(self) -> str:
        """Its heading."""
        return self.exhibit.title

    @property
    def caption(self) -> str:
        """What it shows."""
        return self.exhibit.caption

    @property
    def svg(self) -> Markup:
        """The figure, which is markup already."""
        return Markup(self.drawn)

    @property
    def headings(self) -> list[Cell]:
        """The headings of a table."""
        return heading_cells(self.exhibit) if isinstance(self.exhibit, Table) else []

    @property
    def rows(self) -> list[list[Cell]]:
        """The cells of a table."""
        return cells(self.exhibit) if isinstance(self.exhibit, Table) else []


def render(contents: Contents, shown: Mapping[str, Sequence[Shown]], *, written: str) -> str:
    """Write the page.

    Args:
        contents: What the report says.
        shown: The exhibits of each section, by its name.
        written: The date to write on it.
    """
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    here = files("widthwise.report")
    template = environment.from_string(here.joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        contents=contents,
        sections=[{**vars(section), **_added(section), "shown": shown[section.name]} for section in contents.sections],
        css=Markup(here.joinpath("page.css").read_text(encoding="utf-8") + _colours()),
        marks=MARKS,
        unfolded=sum(len(section.findings) for section in contents.sections) <= MOST_UNFOLDED,
        version=__version__,
        written=written,
    )


def _added(section: Section) -> dict[str, object]:
    claims: dict[str, list[Finding]] = {}
    for finding in section.findings:
        claims.setdefault(finding.claim, []).append(finding)
    counted = {claim: Counter(finding.verdict for finding in findings) for claim, findings in claims.items()}
    return {"claims": claims, "counted": counted, "tally": tally(section.findings)}


def tally(findings: Sequence[Finding]) -> str:
    """Count verdicts in words.

    >>> tally([Finding(claim="", of="", verdict=verdict) for verdict in (Verdict.HOLDS, Verdict.HOLDS, Verdict.FAILS)])
    '2 of 3 hold here, 1 does not.'
    """
    counted = Counter(finding.verdict for finding in findings)
    words = {
        Verdict.FAILS: "does not" if counted[Verdict.FAILS] == 1 else "do not",
        Verdict.UNCLEAR: "cannot be told",
        Verdict.MISSING: "not measured",
    }
    holding = counted[Verdict.HOLDS]
    rest = [f"{counted[verdict]} {said}" for verdict, said in words.items() if counted[verdict]]
    return ", ".join([f"{holding} of {len(findings)} {'holds' if holding == 1 else 'hold'} here", *rest]) + "."


def _colours() -> str:
    """Define the colours of figures that change from light to dark."""
    changing = {light: dark for light, dark in DARK.items() if variable(light).startswith("var(--c-")}
    light, dark = (
        " ".join(f"{variable(name)[4:-1]}: {colour};" for name, colour in pairs)
        for pairs in (((name, name) for name in changing), changing.items())
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
