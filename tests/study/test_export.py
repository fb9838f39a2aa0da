"""A study as CSV and JSON lines, whole or not at all."""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.requests import asked, outcome
from widthwise.study import export
from widthwise.study.store import Study


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.open(tmp_path / "study") as study:
        study.ask([asked(0, width=64, paths=["a", "b"], steps=10), asked(0, width=64, constants={"hidden": 0.5})])
        study.ask([asked(1, width=128)], label="wide")
        results = {"eval_loss": math.nan, "steps": 3}
        study.record([outcome(0, status="diverged", results=results, curves={"loss": ([0, 3], [1.5, math.nan])})])
        yield study


def test_csv_has_a_line_for_each_request_and_a_column_for_each_name(study: Study, tmp_path: Path):
    export.to_csv(study, tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="") as file:
        first, second, third = csv.DictReader(file)
    assert first == {
        "run": "run-00000",
        "status": "diverged",
        "spec.width": "64",
        "spec.paths": '["a","b"]',
        "spec.steps": "10",
        "spec.constants.hidden": "",
        "results.eval_loss": "nan",
        "results.steps": "3",
    }
    assert (second["run"], second["spec.constants.hidden"], second["spec.paths"]) == ("run-00000", "0.5", "")
    assert (third["run"], third["status"], third["results.steps"]) == ("run-00001", "waiting", "")


def test_json_lines_have_everything(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(export, "_BATCH", 2)
    export.to_json_lines(study, tmp_path / "runs.jsonl", curves=True)
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "run": "run-00000",
        "status": "diverged",
        "spec": {"width": 64, "paths": ["a", "b"], "steps": 10},
        "results": {"eval_loss": "NaN", "steps": 3},
        "curves": {"loss": {"steps": [0, 3], "values": [1.5, "NaN"]}},
    }
    assert [line["curves"] != {} for line in lines] == [True, True, False]


def test_a_label_picks_what_is_written(study: Study, tmp_path: Path):
    export.to_json_lines(study, tmp_path / "wide.jsonl", label="wide")
    export.to_csv(study, tmp_path / "wide.csv", label="wide")
    assert json.loads((tmp_path / "wide.jsonl").read_text())["spec"] == {"width": 128}
    assert (tmp_path / "wide.csv").read_text().splitlines() == ["run,status,spec.width", "run-00001,waiting,128"]


def test_a_study_without_requests_has_a_heading_only(tmp_path: Path):
    with Study.open(tmp_path) as study:
        export.to_csv(study, tmp_path / "runs.csv")
    assert (tmp_path / "runs.csv").read_text().splitlines() == ["run,status"]


def test_a_file_is_replaced_whole_or_not_at_all(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "runs.jsonl"
    path.write_text("before")
    with path.open() as reader:
        export.to_csv(study, path)
        assert reader.read() == "before"
    path.write_text("before")

    def encode(_: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(export, "encode", encode)
    with pytest.raises(OSError, match="disk full"):
        export.to_json_lines(study, path)
    assert path.read_text() == "before"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["runs.jsonl", "study"]
