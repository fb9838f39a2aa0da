"""The page in a real browser: nothing fails to load, figures are there, links lead somewhere, nothing runs over."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlparse

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from tests.report import studies
from widthwise.report.write import WrittenReport

LAPTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)


@pytest.fixture(scope="module")
def opened(browser: Browser, report: WrittenReport) -> Iterator[Page]:
    """Open the page once for all tests; after the last, fail if anything went wrong on it."""
    wrong: list[str] = []
    context = browser.new_context(viewport=LAPTOP)
    page = context.new_page()
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("requestfailed", lambda failed: wrong.append(f"failed: {failed.url}"))
    page.on("request", lambda asked: wrong.extend([asked.url] if not asked.url.startswith(("file:", "data:")) else []))
    page.goto(report.page.as_uri())
    yield page
    context.close()
    assert wrong == []


def test_every_figure_is_there_and_has_a_size(opened: Page):
    figures = opened.locator("figure svg")
    assert figures.count() == 5
    for index in range(figures.count()):
        box = figures.nth(index).bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 150
        assert figures.nth(index).locator("path").count() > 10
        assert figures.nth(index).get_attribute("aria-label")


def test_anchors_lead_to_their_places_and_files_exist(opened: Page, report: WrittenReport):
    addresses = opened.locator("a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    inside = [address for address in addresses if address.startswith("#")]
    files = [address for address in addresses if not address.startswith("#")]
    assert len(set(inside)) == 13
    for address in dict.fromkeys(inside):
        opened.evaluate("window.scrollTo(0, 0)")
        opened.locator(f'a[href="{address}"]').first.evaluate("link => link.click()")
        assert opened.url.endswith(address)
        top = opened.locator(address).evaluate("target => target.getBoundingClientRect().top")
        end = opened.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 2")
        assert -1 <= top <= 60 or end
    assert {Path(address).suffix for address in files} == {".svg", ".png", ".pdf", ".csv", ".tex"}
    assert {report.page.parent / address for address in files} == set(report.files)
    assert all((report.page.parent / address).stat().st_size > 0 for address in files)


def test_a_figure_opens_by_itself(opened: Page):
    opened.locator("figure a", has_text="SVG").first.click()
    assert unquote(urlparse(opened.url).path).endswith(".svg")
    assert opened.locator("svg").first.bounding_box()
    opened.go_back()


@pytest.mark.parametrize("viewport", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_the_page_never_scrolls_sideways(opened: Page, viewport: ViewportSize):
    opened.set_viewport_size(viewport)
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    outside = opened.evaluate(
        """[...document.querySelectorAll('body *')].filter(part => !part.closest('.scroll')
           && part.getBoundingClientRect().right > innerWidth + 1).map(part => part.outerHTML.slice(0, 80))"""
    )
    assert outside == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(opened: Page, scheme: Literal["light", "dark"]):
    opened.emulate_media(color_scheme=scheme)
    found = opened.evaluate(
        """[...document.querySelectorAll('h1, h2, h3, p, li, td, th, a, figcaption, dt, dd, footer, .badge, .paper')]
           .map(part => {
             let behind = part;
             while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
             return [part.textContent.slice(0, 40), getComputedStyle(part).color,
                     getComputedStyle(behind).backgroundColor];
           })"""
    )
    assert len(found) > 100
    assert [(text, ink, paper) for text, ink, paper in found if contrast(ink, paper) < 4.5] == []
    paper = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(paper) < 0.1) == (scheme == "dark")
    cards = opened.locator(".card").evaluate_all("cards => cards.map(card => getComputedStyle(card).backgroundColor)")
    assert set(cards) == {"rgb(255, 255, 255)"}  # figures are drawn for paper


def test_the_table_of_contents_follows_and_marks_where_the_reader_is(opened: Page):
    opened.set_viewport_size(LAPTOP)
    opened.evaluate("scrollTo(0, 0)")
    current = opened.locator("nav a[aria-current]")
    targets = opened.locator("nav a").evaluate_all("links => links.map(link => link.hash)")
    for target in ("#gallery-smoke", "#gallery-smoke-planes", "#sweeps-rates-1", targets[-1]):
        opened.evaluate("hash => { location.hash = hash }", target)
        opened.wait_for_function("hash => document.querySelector('nav a[aria-current]')?.hash === hash", arg=target)
        assert current.count() == 1
        box = current.bounding_box()
        assert box is not None
        assert 0 <= box["y"] <= LAPTOP["height"]
    opened.set_viewport_size(PHONE)
    opened.wait_for_function("!document.querySelector('nav details').open")
    opened.locator("nav summary").click()
    assert opened.locator("nav li a").last.is_visible()
    opened.set_viewport_size(LAPTOP)
    opened.wait_for_function("document.querySelector('nav details').open")


def test_the_page_is_complete_without_its_script(browser: Browser, report: WrittenReport):
    context = browser.new_context(viewport=LAPTOP, java_script_enabled=False)
    page = context.new_page()
    page.goto(report.page.as_uri())
    links = page.locator("nav a")
    assert links.count() == 13
    assert all(links.nth(place).is_visible() for place in range(13))
    titles = page.locator("figure use > title").all_text_contents()
    aligned = [title for title in titles if "log alignment ratio" in title]
    assert len(aligned) == 2 * len(studies.LAYERS) * 11 + 2 * 11  # hidden layers and the readout, in two figures
    assert len(titles) - len(aligned) == 18  # 16 points of sweeps, 2 of a line
    context.close()


@pytest.mark.parametrize(
    ("group", "starts", "says"),
    [
        ("means", "width 64, seed 0\n", ("learning rate ", "eval loss ")),
        ("optimum", "optimum at width 64\nlearning rate ", ("[", "eval loss ")),
        ("rate", "optimum at width 64\nlearning rate ", ("[", "]")),
    ],
)
def test_a_point_under_the_pointer_says_what_it_is(opened: Page, group: str, starts: str, says: tuple[str, ...]):
    opened.set_viewport_size(LAPTOP)
    point = opened.locator(f'#sweeps-rates-1 g[id*="-{group}-0-64"] use').first
    point.scroll_into_view_if_needed()
    opened.wait_for_timeout(100)
    box = point.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    opened.mouse.move(x + 2, y + 2)
    tip = opened.locator(".tip")
    (shown,) = [text for text in tip.inner_text().split("\n\n") if text.startswith(starts)]
    assert all(word in shown for word in says)
    opened.mouse.move(x, 2)
    assert not tip.is_visible()


def test_figures_and_tables_use_the_width_and_text_stays_readable(opened: Page):
    opened.set_viewport_size(LAPTOP)
    boxes = opened.locator("main > section").evaluate_all("parts => parts.map(part => part.getBoundingClientRect())")
    column = max(each["width"] for each in boxes)
    assert column > 0.7 * LAPTOP["width"]
    figures = opened.locator("figure svg").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert min(figures) > 0.55 * column
    assert max(figures) > 0.9 * column
    characters = opened.locator("main p, figcaption").evaluate_all(
        """all => all.map(one => {
             const canvas = document.createElement('canvas').getContext('2d'), style = getComputedStyle(one);
             canvas.font = style.font;
             const text = one.textContent.trim();
             return parseFloat(style.width) / (canvas.measureText(text).width / text.length);
           })"""
    )
    assert len(characters) > 5
    assert max(characters) < 77


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours as the accessibility guidelines define it."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
