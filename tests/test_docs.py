"""README and docs/ show what a user sees, link to what exists, and stay short where they must."""

import re
import shlex
from pathlib import Path

import pytest

from widthwise.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONSOLE = re.compile(r"```console\n\$ widthwise (.*)\n((?:.*\n)*?)```")
SHOWN = [(page.name, *shown) for page in PAGES for shown in CONSOLE.findall(page.read_text())]


def test_the_pages_show_commands():
    assert len(SHOWN) >= 3


@pytest.mark.parametrize(("page", "arguments", "output"), SHOWN)
def test_a_command_prints_what_the_page_shows(page: str, arguments: str, output: str, capsys):
    assert main(shlex.split(arguments)) == 0
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == output.splitlines(), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/results.md.j2"], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_begins_with_the_number_that_ends_a_sentence(page: Path):
    """Markdown takes it for the item of a list, and the sentence loses it."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"(?<=[a-z]\n) *\d+\. .*", text) == []


def test_every_page_is_in_the_navigation_of_the_site():
    shown = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert shown == pages | {"contributing.md"}


def test_the_readme_is_an_invitation():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
