"""Figures as files: each is drawn and laid out once, then saved as SVG, PNG and PDF."""

import functools
import hashlib
import io
import warnings
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from widthwise.report import heatmaps, lines, planes, sweeps
from widthwise.report.alignment import alignment_figure
from widthwise.report.exhibits import AlignmentCurves, AnyExhibit, Heatmaps, Lines, Planes, Transfers
from widthwise.report.style import FORMATS, styled

DPI = 150


def draw(exhibit: AnyExhibit) -> Figure | None:
    """Draw an exhibit; return None for a table and for a figure without panels."""
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


def draw_files(exhibit: AnyExhibit) -> dict[str, bytes]:
    """Draw an exhibit and return its files by format; none if there is nothing to draw."""
    with styled(), warnings.catch_warnings():
        # A name in another script: a browser finds the signs in other fonts than the one that Matplotlib has.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = draw(exhibit)
        if figure is None:
            return {}
        figure.dpi = DPI  # `Figure.savefig` would lay the figure out, and draw it twice, for each format
        if engine := figure.get_layout_engine():
            engine.execute(figure)
            figure.set_layout_engine("none")
        svg, png, pdf = io.BytesIO(), io.BytesIO(), io.BytesIO()
        FigureCanvasAgg(figure).print_png(png)
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})
        FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})
    return {"svg": svg.getvalue() + _seal(exhibit), "png": png.getvalue(), "pdf": pdf.getvalue()}


def saved_files(exhibit: AnyExhibit, name: str, folder: Path) -> dict[str, bytes]:
    """Return the files of an earlier report if they show this very exhibit, else none: drawing takes a second."""
    paths = {kind: folder / f"{name}.{kind}" for kind in FORMATS}
    if not all(path.exists() for path in paths.values()):
        return {}
    files = {kind: path.read_bytes() for kind, path in paths.items()}
    return files if files["svg"].endswith(_seal(exhibit)) else {}


def _seal(exhibit: AnyExhibit) -> bytes:
    """Return a comment that identifies what a figure shows and the code that drew it."""
    return f"<!-- {hashlib.sha256(_code() + repr(exhibit).encode()).hexdigest()} -->\n".encode()


@functools.cache
def _code() -> bytes:
    modules = sorted(Path(__file__).parent.glob("*.py"))
    return b"".join(module.read_bytes() for module in modules) + matplotlib.__version__.encode()
