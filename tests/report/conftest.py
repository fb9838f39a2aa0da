"""One small report that has everything in it, and a browser to open it with."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.report import studies
from widthwise.experiments.reading import read
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.report.write import WrittenReport, write_report
from widthwise.study import Study

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
OPTIONS = (
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    """Write a report of an experiment, of sweeps and of failures, with every kind of exhibit once."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch, Study.open(studies.small(folder / "study")) as study:
        patch.setitem(EXPERIMENTS, "gallery", studies.GALLERY)
        return write_report(read(study), folder / "report")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the browser that CHROMIUM names, or one that is installed."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and Path(MAC).exists():
        found = MAC
    if found is None:
        missing = "no browser to open the report with: install chromium, or name one in CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield browser
        browser.close()
