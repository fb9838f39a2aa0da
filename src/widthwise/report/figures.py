"""Figures as files, and as part of a page.

A figure is drawn once and laid out once, then saved as SVG, PNG and PDF. In a page the SVG stands inline: its text is
set in the page's font, its colours follow the page from light to dark, and its ids are its own, since those of two
figures would otherwise cut each other's lines off.
"""

import functools
import hashlib
import io
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from widthwise.experiments.exhibits import AlignmentCurves, AnyExhibit, Heatmaps, Lines, Planes, Transfers
from widthwise.report import heatmaps, lines, planes, sweeps
from widthwise.report.alignment import alignment_figure
from widthwise.report.style import DARK, INK, PAPER, styled

FORMATS = ("svg", "png", "pdf")
DPI = 150


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure, saved.

    Attributes:
        files: The bytes of each format.
        inline: The element that shows it in a page.
    """

    files: dict[str, bytes]
    inline: str


def draw(exhibit: AnyExhibit) -> Figure | None:
    """Draw an exhibit; None for a table, and for a figure that has no panels yet."""
    match exhibit:
        case Transfers() if exhibit.fits:
            return sweeps.draw(exhibit)
        case Lines() if exhibit.panels:
            return lines.draw(exhibit)
        case AlignmentCurves() if exhibit.panels:
            return alignment_figure(exhibit.panels)
        case Heatmaps() if exhibit.maps:
            return heatmaps.draw(exhibit)
        case Planes() if exhibit.planes:
            return planes.draw(exhibit)
        case _:
            return None


def save(exhibit: AnyExhibit, name: str) -> Drawn | None:
    """Draw an exhibit in every format; None where there is nothing to draw.

    Args:
        exhibit: What to draw.
        name: What is before all ids in the inline form; no two figures of a page may share it.
    """
    with styled():
        figure = draw(exhibit)
        if figure is None:
            return None
        files = _save(figure)
    files["svg"] += _seal(exhibit)
    return Drawn(files=files, inline=_inline(files["svg"].decode(), name, exhibit))


def saved(exhibit: AnyExhibit, name: str, folder: Path) -> Drawn | None:
    """Give what was saved in a folder before, if it is of this very exhibit: drawing takes a second for each."""
    paths = {kind: folder / f"{name}.{kind}" for kind in FORMATS}
    if not all(path.exists() for path in paths.values()):
        return None
    files = {kind: path.read_bytes() for kind, path in paths.items()}
    if not files["svg"].endswith(_seal(exhibit)):
        return None
    return Drawn(files=files, inline=_inline(files["svg"].decode(), name, exhibit))


def _seal(exhibit: AnyExhibit) -> bytes:
    """Say in a comment what a figure shows, and which code drew it."""
    return f"<!-- {hashlib.sha256(_code() + repr(exhibit).encode()).hexdigest()} -->\n".encode()


@functools.cache
def _code() -> bytes:
    """Give what figures depend on beside what they show: every module of this package, and Matplotlib."""
    modules = sorted(Path(__file__).parent.glob("*.py"))
    return b"".join(module.read_bytes() for module in modules) + matplotlib.__version__.encode()


def _save(figure: Figure) -> dict[str, bytes]:
    """Save a figure in every format; `Figure.savefig` would lay it out and draw it twice for each of them."""
    figure.dpi = DPI
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    svg, png, pdf = io.BytesIO(), io.BytesIO(), io.BytesIO()
    FigureCanvasAgg(figure).print_png(png)
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})
    FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})
    return {"svg": svg.getvalue(), "png": png.getvalue(), "pdf": pdf.getvalue()}


def _inline(svg: str, name: str, exhibit: AnyExhibit) -> str:
    """Make a saved figure part of a page."""
    body = svg[svg.index("<svg") : svg.rindex("<!--")]
    width, height = (float(number) for number in re.findall(r'(?:width|height)="([\d.]+)pt"', body)[:2])
    body = body[body.index(">") + 1 :]
    for left_out in ("<metadata>.*?</metadata>", "<style.*?</style>", '<g id="paper">.*?</g>'):
        body = re.sub(rf"\s*{left_out}", "", body, flags=re.DOTALL)
    body = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", body).replace("xlink:href", "href")
    for colour in DARK:
        body = body.replace(colour, variable(colour))
    pixels = round(width * 96 / 72)
    return (
        f'<svg role="img" aria-labelledby="{name}-title {name}-caption" viewBox="0 0 {width:g} {height:g}"'
        f' style="--width: {pixels}px"><title id="{name}-title">{escape(exhibit.title)}</title>'
        f'<desc id="{name}-caption">{escape(exhibit.caption)}</desc>{body}'
    )


def variable(colour: str) -> str:
    """Name what the page's style calls a colour that changes from light to dark."""
    return {INK: "currentColor", PAPER: "var(--paper)"}.get(colour, f"var(--c-{colour.lstrip('#')})")
