"""All that names the version, or the versions of Python, agrees."""

import re
import tomllib
from pathlib import Path

import widthwise

ROOT = Path(__file__).parents[1]
TITLES = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_citation_is_of_this_version():
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == widthwise.__version__


def test_the_latest_version_of_the_changelog_is_this_one():
    first, latest, *_ = TITLES
    assert first == "Unreleased"
    assert re.fullmatch(re.escape(widthwise.__version__) + r" - \d{4}-\d\d-\d\d", latest)


def test_no_version_is_in_the_changelog_twice():
    names = [title.partition(" - ")[0] for title in TITLES]
    assert len(set(names)) == len(names)


def test_every_version_of_python_that_is_claimed_is_tested_before_a_release():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = [line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
    (tested,) = re.findall(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert claimed == tested.split()
    assert project["requires-python"] == f">={claimed[0]}"
