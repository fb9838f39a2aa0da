"""A report of any study: what it says, which files it writes, and that it never breaks an earlier report."""

import csv
import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.report import studies
from widthwise.experiments.carry_out import NOTE
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.reading import read
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.report import figures, write
from widthwise.report.exhibits import Table, Transfers
from widthwise.report.findings import Finding, Judgement
from widthwise.report.sections import Contents, Section, read_sweeps
from widthwise.report.write import WrittenReport, write_report
from widthwise.study import Outcome, Request, Study
from widthwise.train import Spec


def text_of(report: WrittenReport) -> str:
    return report.page.read_text(encoding="utf-8")


def section(contents: Contents, name: str) -> Section:
    (found,) = (each for each in contents.sections if each.name == name)
    return found


def test_the_page_says_findings_first_and_labels_the_papers_values(report: WrittenReport):
    page = text_of(report)
    places = [page.index(words) for words in ('id="contents"', 'id="findings"', 'id="missing"', "The paper claims:")]
    assert places == sorted(places)
    assert "falls &amp; falls" in page
    assert "stays &lt; 1" in page
    assert page.count("paper: −0.95") >= 4
    for verdict in ("✓</span> holds", "✗</span> does not hold", "?</span> cannot tell", "–</span> not measured"):
        assert verdict in page
    (summary,) = re.findall('<p class="sum">(.*)</p>', page)
    assert re.sub("<.*?>", "", summary).strip() == "✓ holds ✗ does not hold ? cannot tell – not measured"
    assert "Everything here is made up." in page


def test_the_page_needs_nothing_from_outside(report: WrittenReport):
    page = text_of(report)
    assert not re.search(r'(?:src|href)="(?!#|data:|figures/|tables/)|url\((?!#)|@import|<script .', page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    assert '<html lang="en">' in page
    assert 'name="viewport"' in page


def test_every_exhibit_is_kept_in_files_and_an_empty_one_is_left_out(report: WrittenReport):
    folder = report.page.parent
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {"index.html", *(path.relative_to(folder).as_posix() for path in report.files)}
    assert {f"figures/gallery-smoke-planes.{kind}" for kind in ("svg", "png", "pdf")} <= names
    assert "tables/gallery-smoke-losses.csv" in names
    assert not any("empty" in name for name in names)
    assert "Nothing yet" not in text_of(report)


def test_tables_are_written_for_programs_and_for_papers(report: WrittenReport):
    rows = list(csv.reader((report.page.parent / "tables/gallery-smoke-losses.csv").read_text().splitlines()))
    assert rows[0][2:4] == ["global + default", "global + default, paper"]
    assert rows[1][:3] == ["adam", "standard", "3.025"]
    exponents = (report.page.parent / "tables/sweeps-exponents.csv").read_text()
    assert "−" not in exponents
    latex = (report.page.parent / "tables/gallery-smoke-losses.tex").read_text()
    assert r"\textbf{2.992}" in latex
    assert r"\textit{2.625}" in latex
    assert r"mean\_field" in latex
    page = text_of(report)
    assert '<td class="right best">2.992</td><td class="right paper">2.592</td>' in page
    assert '<th scope="rowgroup" rowspan="4">adam</th>' in page


def test_what_is_missing_is_said(report: WrittenReport):
    contents = report.contents
    assert contents.counts["failed"] == 3
    (reason,) = contents.missing
    assert reason.startswith("3 runs of width 1024 failed: XlaRuntimeError")
    ended, edge = section(contents, "gallery-smoke").missing
    assert ended == "not finished: still running, or interrupted; the same command resumes it"
    assert edge == "ntk, adam: no edge found"
    page = text_of(report)
    assert "out of memory &lt;while&gt; trying to allocate 3 &amp; more bytes" in page
    assert f"{ended}; and 1 more" in page
    assert page.count("ntk, adam: no edge found") == 1


def test_experiments_come_in_the_papers_order_and_other_runs_last(tmp_path: Path):
    with Study.open(studies.mixed(tmp_path, widths=(64, 128), rates=5)) as study:
        contents = read(study)
    transfer, sweeps = contents.sections
    assert (transfer.name, transfer.scale, transfer.title) == ("transfer-cpu", "cpu", EXPERIMENTS["transfer"].title)
    assert len(transfer.findings) == 12
    names = [exhibit.name for exhibit in sweeps.exhibits]
    assert names == ["rates-1", "rates-2", "exponents", "loss-against-size", "sensitivity", "alignment", "constants"]
    assert [exhibit.title for exhibit in sweeps.exhibits][:2] == [
        "Adam, full alignment, alignment measured, weight decay 0",
        "Adam, full alignment, weight decay 0.0001",
    ]
    constants = sweeps.exhibits[-1]
    assert isinstance(constants, Table)
    assert constants.rows == (("mine", "Adam", "muP", "5.4", "1.1", "2.6", "3.0100", "readout"),)


def test_runs_that_an_experiment_and_a_sweep_asked_for_are_shown_under_both(tmp_path: Path):
    with Study.open(tmp_path) as study:
        studies.transfer(study, widths=(64, 128), rates=5)
        assert [section.name for section in read(study).sections] == ["transfer-cpu"]
        studies.fill(study, studies.sweep("mup", "full", widths=(64, 128), rates=5), "a-sweep")
        (first, *_) = section(read(study), "sweeps").exhibits
    assert isinstance(first, Transfers)
    assert first.panels == ("muP",)


def test_sweeps_of_one_parameterization_are_panels_of_what_else_differs(tmp_path: Path):
    with Study.open(tmp_path) as study:
        for setting in studies.EXPONENTS:
            studies.fill(study, studies.sweep("ntk", setting, widths=(64, 128), rates=5))
        for decay in (0.1, 0.2, 0.3, 0.4, 0.5):
            studies.fill(study, studies.sweep("ntk", "full", widths=(64, 128), rates=5, weight_decay=decay))
        exhibits = [each for each in read(study).sections[0].exhibits if isinstance(each, Transfers)]
    assert exhibits[0].panels == ("global rate", "full alignment", "no alignment")
    assert len(exhibits) == 6


@pytest.mark.parametrize("asked", [0, 3])
def test_a_study_where_nothing_has_ended_has_a_report(tmp_path: Path, asked: int):
    with Study.open(tmp_path / "study") as study:
        pairs = list(studies.sweep(rates=1))[:asked]
        study.ask([one for one, _ in pairs])
        study.claim([one.id for one, _ in pairs[:1]], seconds=60)
        report = write_report(read(study), tmp_path / "report")
    assert report.files == ()
    assert report.contents.counts["waiting"] == max(asked - 1, 0)
    assert report.contents.counts["running"] == min(asked, 1)
    assert "No run of this study has ended yet" in text_of(report)


def test_an_experiment_that_has_only_begun_has_a_section(tmp_path: Path):
    with Study.open(tmp_path) as study:
        study.put(f"{NOTE}transfer/cpu", {"began": "now", "ended": None, "missing": []})
        study.put(f"{NOTE}of-the-future/gpu", {"began": "now", "ended": "later", "missing": []})
        contents = read(study)
    (only,) = contents.sections
    assert (only.findings, only.exhibits) == ((), ())
    assert only.missing[0].startswith("not finished")
    assert contents.missing == ("of-the-future, gpu: this version has no experiment of that name",)


def test_one_experiment_that_cannot_be_read_does_not_take_the_others_with_it(tmp_path: Path, monkeypatch):
    def refuse(results):
        raise ValueError("width 64 has learning rate 0.1 twice")

    monkeypatch.setitem(EXPERIMENTS, "transfer", replace(EXPERIMENTS["transfer"], read=refuse))
    with Study.open(studies.mixed(tmp_path, widths=(64,), rates=3)) as study:
        contents = read(study)
    assert section(contents, "transfer-cpu").missing[-1] == "cannot be read: width 64 has learning rate 0.1 twice"
    assert section(contents, "sweeps").exhibits


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Draw blank figures, which is fast, and list the names of those drawn."""
    names: list[str] = []
    monkeypatch.setattr(figures, "draw", lambda exhibit: names.append(exhibit.name) or Figure(figsize=(1, 1)))
    return names


@pytest.mark.usefixtures("drawn")
def test_a_report_that_breaks_off_leaves_the_one_before(tmp_path: Path, monkeypatch):
    with Study.open(tmp_path / "study") as study:
        studies.fill(study, studies.sweep(widths=(64,), rates=3))
        before = text_of(write_report(read(study), tmp_path / "report"))
        monkeypatch.setattr(write, "render", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_report(read(study), tmp_path / "report")
    assert (tmp_path / "report/index.html").read_text(encoding="utf-8") == before
    assert not list(tmp_path.rglob("*.partial"))


def test_only_figures_that_changed_are_drawn_again(tmp_path: Path, drawn: list[str]):
    with Study.open(tmp_path / "study") as study:
        studies.fill(study, studies.sweep(widths=(64,), rates=3))
        studies.fill(study, studies.sweep(widths=(64,), rates=6, probe=True))
        first = write_report(read(study), tmp_path / "report")
        assert drawn == ["rates-1", "rates-2", "loss-against-size", "alignment"]
        before = {path: path.read_bytes() for path in first.files}
        assert write_report(read(study), tmp_path / "report").files == first.files
        assert {path: path.read_bytes() for path in first.files} == before
        assert len(drawn) == 4
        studies.fill(study, studies.sweep(widths=(64,), rates=5))
        (tmp_path / "report/figures/sweeps-alignment.pdf").unlink()
        write_report(read(study), tmp_path / "report")
    assert {"rates-1", "alignment"} <= set(drawn[4:])
    assert "rates-2" not in drawn[4:]


def test_many_findings_are_folded_under_their_claims(tmp_path: Path, monkeypatch):
    def gallery(count: int) -> Experiment:
        found = Finding(claim="it holds", of="all", verdict=Judgement.HOLDS, measured="1.5")
        return replace(studies.GALLERY, read=lambda _: Reading(findings=(found,) * count, exhibits=()))

    with Study.open(tmp_path / "study") as study:
        study.put(f"{NOTE}gallery/cpu", {"began": "now", "ended": "later", "missing": []})
        for count, opened in ((2, True), (60, False)):
            monkeypatch.setitem(EXPERIMENTS, "gallery", gallery(count))
            page = text_of(write_report(read(study), tmp_path / "report"))
            assert ('<details open>\n<summary><span class="claim">' in page) == opened
            assert f"holds ×{count}" in page


def test_only_curves_that_are_drawn_are_read(tmp_path: Path, monkeypatch):
    curves = {"train_loss": ([0, 1], [2.0, 1.0])}
    with Study.open(tmp_path) as study:
        for name in studies.PARAMETERIZATIONS:
            studies.fill(study, studies.sweep(name, widths=(64, 128), rates=6, curves=curves))
        studies.fill(study, studies.sweep(probe=True, widths=(64, 128), rates=6))
        asked_for: list[str] = []
        original = study.curves

        def watched(ids):
            asked_for.extend(ids)
            return original(ids)

        monkeypatch.setattr(study, "curves", watched)
        contents = read(study)
    assert sum(contents.counts.values()) == 4 * 2 * 6 + 12
    assert len(asked_for) == 2


def test_sweeps_along_different_axes_are_shown_apart_and_named_after_their_axis(tmp_path: Path):
    with Study.open(tmp_path / "study") as study:
        for axis, field in (("depth", "blocks"), ("tokens", "steps")):
            for size, octave in itertools.product((1, 2, 4), range(-9, -3)):
                spec = {**Spec(batch=4, context=8).to_json(), field: size, "learning_rate": 2.0**octave, "axis": axis}
                spec |= {"constants": "default", "horizon": "fixed"}
                run = f"{axis}{size}{octave}"
                study.ask([Request(id=run, request=spec, identity=spec)])
                results = {"eval_loss": 3 + 0.01 * (octave + 6 + size / 4) ** 2, "parameters": 1000 * size}
                study.record([Outcome(run=run, status="finished", results=results)])
        written = write_report(read_sweeps(study), tmp_path / "report")
    exhibits = {exhibit.name: exhibit for exhibit in section(written.contents, "sweeps").exhibits}
    assert {"rates-1-depth", "exponents-depth", "rates-1-tokens", "sensitivity-tokens"} <= exhibits.keys()
    assert "against depth" in exhibits["exponents-depth"].caption
    assert exhibits["sensitivity-tokens"].columns[1] == "tokens"
    assert [row[1] for row in exhibits["sensitivity-tokens"].rows] == ["32", "64", "128"]
    assert exhibits["loss-against-size-depth"].x_label == "parameters"
    assert exhibits["loss-against-size-tokens"].x_label == "number of tokens"
    assert "width" not in exhibits["rates-1-tokens"].caption
