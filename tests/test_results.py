"""The pages of results say what the studies beside them say."""

import re
from pathlib import Path

import pytest

from widthwise.experiments.reading import read
from widthwise.report import template
from widthwise.report.showing import with_interval
from widthwise.study import Setting
from widthwise.study.export import reading
from widthwise.study.fits import alike, fit_rows

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_has_the_numbers_of_the_study_that_is_published():
    page, setting = (DOCS / "results.md").read_text(), Setting(parameterization="mup")
    with reading(DOCS / "results" / "paper-gpu.jsonl.gz") as study:
        ended = study.counts()["finished"] + study.counts()["diverged"]
        asked = [row for row in study.runs(label="transfer/gpu/rates") if Setting.of(row.spec) == setting]
        rows = alike(asked, study.runs())
        measured = study.notes("experiment/")
    (fit,) = fit_rows(rows)
    assert f"These are {ended} runs" in page
    assert max(optimum.width for optimum in fit.transfer.optima) == 2048
    (exponent,) = re.findall(r"^\| Adam \| muP \| [^|]* \| ([^|]*) \|", page, re.MULTILINE)[:1]
    assert exponent == with_interval(fit.transfer.law.exponent)
    for note in measured:
        assert f"`widthwise experiment {note.split('/')[1]} --scale gpu`" in page


def test_the_page_beyond_the_paper_is_what_its_template_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(template, "draw_files", lambda _: {"svg": b""})  # drawing is slow
    with reading(DOCS / "results" / "beyond-gpu.jsonl.gz") as study:
        template.fill_template(DOCS / "beyond.md.j2", tmp_path / "beyond.md", read(study))
    assert (tmp_path / "beyond.md").read_text() == (DOCS / "beyond.md").read_text()
