"""Figures inside a page, as SVG that is smaller than its file and says more.

Inline, a figure uses the page's font, its ids get a prefix, since equal ids would clip another figure's lines, and the
points of sweeps and lines get their texts: a browser shows them as it shows any title, and the page's script shows them
at once.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape

from widthwise.report import points
from widthwise.report.exhibits import AnyExhibit

HIT = '<circle r="4.5" fill="none" stroke="none" pointer-events="all"/>'
"""What makes a small marker easy to hit, in points."""
_MARKER = re.compile(r"(<use [^>]*)/>")


def inline_svg(svg: str, prefix: str, exhibit: AnyExhibit) -> str:
    """Return the box that shows a saved figure in a page.

    Args:
        svg: The saved figure.
        prefix: The prefix of all ids, unique in the page.
        exhibit: What the figure shows.
    """
    body = svg[svg.index("<svg") : svg.rindex("<!--")]
    width, height = (float(number) for number in re.findall(r'(?:width|height)="([\d.]+)pt"', body)[:2])
    body = _smaller(body[body.index(">") + 1 :])
    if texts := points.texts(exhibit):
        body = _with_texts(body, texts)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body)
    title, pixels = escape(exhibit.title), round(width * 96 / 72)
    return (
        f'<div class="scroll card" tabindex="0" role="region" aria-label="{title}" style="--width: {pixels}px">'
        f'<svg role="img" aria-label="{title}" viewBox="0 0 {width:g} {height:g}">{body.strip()}</div>'
    )


def _smaller(body: str) -> str:
    """Leave out what a page does not need: fonts, hundredths of pixels, and the style of each marker of a line."""
    for left_out in ("<metadata>.*?</metadata>", "<style.*?</style>", '<g id="paper">.*?</g>'):
        body = re.sub(rf"\s*{left_out}", "", body, flags=re.DOTALL)
    body = re.sub(r">\s+<", "><", body).replace("xlink:href", "href")
    body = re.sub(r" font-family: [^;\"]*;?", "", body)
    body = re.sub(r' (?:d|x|y)="[^"]*"', lambda found: _rounded(found[0]), body)
    return re.sub(r'(<g clip-path="[^"]*")>((?:<use [^>]*/>)+)</g>', lambda found: _shared(*found.groups()), body)


def _rounded(attribute: str) -> str:
    return re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", re.sub(r"\s+", " ", attribute))


def _shared(group: str, markers: str) -> str:
    """Write the style of markers once, if it is the same for all."""
    styles = set(re.findall(r' style="[^"]*"', markers))
    if len(styles) != 1:
        return f"{group}>{markers}</g>"
    (style,) = styles
    return f"{group}{style}>{markers.replace(style, '')}</g>"


def _with_texts(body: str, texts: Mapping[str, Sequence[str]]) -> str:
    """Add a title to every marker of the named groups, and an invisible target around it."""
    hit: set[str] = set()

    def titled(group: re.Match[str]) -> str:
        lines = iter(texts[group["name"]])
        hit.update(re.findall(r'<use href="#([^"]*)"', group[0]))
        return _MARKER.sub(lambda use: f"{use[1]}><title>{escape(next(lines))}</title></use>", group[0])

    names = "|".join(map(re.escape, texts))
    body = re.sub(rf'<g id="(?P<name>{names})">.*?</g></g>', titled, body, flags=re.DOTALL)
    marker = rf'<path id="({"|".join(hit)})"([^>]*/>)'
    return re.sub(marker, rf'<g id="\1"><path\2{HIT}</g>', body) if hit else body
