"""A study as CSV and JSON lines, whole or not at all."""

import csv
import gzip
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.study.requests import asked, outcome
from widthwise.study import export, lines
from widthwise.study.store import Study


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.open(tmp_path / "study") as study:
        study.ask([asked(0, width=64, paths=["a", "b"], steps=10), asked(0, width=64, constants={"hidden": 0.5})])
        study.ask([asked(1, width=128)], label="wide")
        results, curves = {"eval_loss": math.nan, "steps": 3}, {"loss": ([0, 3], [0.1, math.nan])}
        study.record([outcome(0, status="diverged", results=results, curves=curves, provenance={"device": "cpu"})])
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


def test_a_compact_csv_has_no_column_in_which_all_agree_and_the_shortest_numbers(tmp_path: Path):
    with Study.open(tmp_path / "study") as study:
        study.ask([asked(number, seed=number, width=64, rate=2.0**-number / 1000, epsilon=None) for number in range(3)])
        study.record(
            [outcome(n, results={"eval_loss": loss, "flops": 5e20}) for n, loss in enumerate((3.0, 0.1, math.nan))]
        )
        export.to_csv(study, tmp_path / "runs.csv", compact=True)
        assert (tmp_path / "runs.csv").read_bytes().decode() == (
            "run,spec.rate,spec.seed,results.eval_loss\n"
            "run-00000,1e-3,0,3\n"
            "run-00001,5e-4,1,0.1\n"
            "run-00002,2.5e-4,2,nan\n"
        )
        export.to_csv(study, tmp_path / "runs.csv")
    assert (tmp_path / "runs.csv").read_text().splitlines()[0].count(",") == 7


@given(st.floats(allow_nan=False))
def test_the_shortest_form_of_a_number_is_exact(number: float):
    written = export._shortest(number)
    assert math.copysign(1, float(written)) == math.copysign(1, number)
    assert float(written) == number
    assert len(written) <= len(repr(number))


def test_json_lines_have_everything(study: Study, tmp_path: Path):
    study.put("sweep/wide", {"widths": [128], "limit": math.inf})
    study.put("lanes/cpu/program/1", 8)
    export.to_json_lines(study, tmp_path / "runs.jsonl", curves=True)
    first, *others = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert first.pop("recorded") == pytest.approx(time.time(), abs=60)
    assert first == {
        "run": "run-00000",
        "status": "diverged",
        "spec": {"width": 64, "paths": ["a", "b"], "steps": 10},
        "labels": [],
        "results": {"eval_loss": "NaN", "steps": 3},
        "provenance": {"device": "cpu"},
        "curves": {"loss": {"steps": [0, 3], "values": [0.1, "NaN"]}},
    }
    assert others == [
        {
            "run": "run-00000",
            "status": "diverged",
            "spec": {"width": 64, "constants": {"hidden": 0.5}},
            "labels": [],
            "results": {"eval_loss": "NaN", "steps": 3},
        },
        {"run": "run-00001", "status": "waiting", "spec": {"width": 128}, "labels": ["wide"], "results": {}},
        {"note": "sweep/wide", "value": {"widths": [128], "limit": "Infinity"}},
    ]


@pytest.mark.parametrize("name", ["runs.csv", "runs.jsonl"])
def test_a_compressed_file_is_the_same_at_any_time_and_under_any_name(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    write = export.to_csv if name.endswith("csv") else export.to_json_lines
    write(study, tmp_path / name)
    write(study, tmp_path / f"{name}.gz")
    assert gzip.decompress((tmp_path / f"{name}.gz").read_bytes()) == (tmp_path / name).read_bytes()
    monkeypatch.setattr(time, "time", lambda: 2e9)
    write(study, tmp_path / f"other.{name}.gz")
    assert (tmp_path / f"other.{name}.gz").read_bytes() == (tmp_path / f"{name}.gz").read_bytes()


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

    def encode(*_: object, **__: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(lines, "encode", encode)
    with pytest.raises(OSError, match="disk full"):
        export.to_json_lines(study, path)
    assert path.read_text() == "before"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["runs.jsonl", "study"]
