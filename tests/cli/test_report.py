"""`widthwise report` writes a page and says what it found."""

import json
from pathlib import Path

import pytest

from tests.report import studies
from widthwise.cli import main
from widthwise.study import Study, to_json_lines


@pytest.fixture
def study(tmp_path: Path) -> Path:
    with Study.open(tmp_path / "study") as study:
        for setting in ("global", "full"):
            studies.fill(study, studies.sweep("mup", setting, widths=(64, 128), rates=7), "transfer/cpu/rates")
        study.put("experiment/transfer/cpu", {"began": "now", "ended": "later", "missing": ["something"]})
        studies.fill(study, studies.failures(1))
    return tmp_path / "study"


def test_it_prints_findings_with_the_papers_values_labelled_and_where_the_page_is(study: Path, capsys):
    assert main(["report", str(study)]) == 0
    out = capsys.readouterr().out
    assert "Does the learning rate transfer over width? (cpu)" in out
    assert "  exponent near zero for full alignment (muP, Adam): " in out
    assert "; paper: −0.06" in out
    assert "1 run of width 1024 failed: XlaRuntimeError" in out
    assert "(cpu): something" in out
    assert out.endswith(f"1 failed\nreport: {study / 'report' / 'index.html'}\n")
    assert (study / "report" / "index.html").stat().st_size > 10_000


def test_programs_get_json(study: Path, tmp_path: Path, capsys):
    folder = tmp_path / "elsewhere" / "report"
    assert main(["report", str(study), "--out", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == str(folder / "index.html")
    (transfer,) = found["sections"]
    assert (transfer["name"], transfer["scale"], transfer["missing"]) == ("transfer-cpu", "cpu", ["something"])
    first = transfer["findings"][0]
    assert (first["of"], first["paper"]) == ("muP, Adam", "−0.06")
    assert first["verdict"] in ("holds", "does not hold", "cannot tell")
    assert found["counts"]["failed"] == 1
    assert all(Path(path).exists() for path in found["files"])
    assert not (study / "report").exists()


def test_much_that_is_missing_is_cut_short(study: Path, capsys):
    with Study.open(study) as opened:
        lines = [f"line {number}" for number in range(48)]
        opened.put("experiment/transfer/cpu", {"began": "now", "ended": "later", "missing": lines})
    assert main(["report", str(study)]) == 0
    out = capsys.readouterr().out
    assert "(cpu): line 4\n" in out
    assert "line 5" not in out
    assert "(cpu): and 43 more, in the report\n" in out
    page = (study / "report" / "index.html").read_text(encoding="utf-8")
    assert "line 0; and 47 more</summary>" in page
    assert "<li>line 47</li>" in page


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_an_exported_file_gives_the_same_report_beside_it(study: Path, tmp_path: Path, capsys, ending: str):
    with Study.open(study) as opened:
        to_json_lines(opened, tmp_path / f"results.gpu.{ending}", curves=True)
    found = []
    for source in (study, tmp_path / f"results.gpu.{ending}"):
        assert main(["report", str(source), "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[1]["page"] == str(tmp_path / "results.gpu-report" / "index.html")
    assert all(found[1][name] == found[0][name] for name in ("counts", "sections", "missing"))
    assert len(found[1]["files"]) == len(found[0]["files"]) > 0
    page = Path(found[1]["page"]).read_text(encoding="utf-8")
    assert "<h1>results.gpu</h1>" in page


def test_an_exported_file_fills_a_template(study: Path, tmp_path: Path, capsys):
    with Study.open(study) as opened:
        to_json_lines(opened, tmp_path / "gpu.jsonl.gz")
    (tmp_path / "page.md.j2").write_text("{{ counts.failed }} failed: {{ missing('transfer') }}\n")
    options = ["--template", str(tmp_path / "page.md.j2"), "--out", str(tmp_path / "filled.md")]
    assert main(["report", str(tmp_path / "gpu.jsonl.gz"), *options]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'filled.md'}\n"
    assert (tmp_path / "filled.md").read_text().startswith("1 failed: - something\n")


def test_an_empty_study_is_no_error(tmp_path: Path, capsys):
    Study.open(tmp_path).close()
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs yet\nreport: {tmp_path / 'report' / 'index.html'}\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["/nowhere/at/all"], "there is no study in '/nowhere/at/all'"),
        (["/nowhere/at/all.jsonl"], "there is no file '/nowhere/at/all.jsonl': expected an exported study"),
        ([__file__], "is no study: expected its folder, or an exported file"),
        ([], "study"),
    ],
)
def test_nonsense_is_refused_in_one_line(capsys, options: list[str], said: str):
    assert main(["report", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
