"""Lines of an exported study: curves are exact, and what is no whole study is refused in one line."""

import gzip
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.study.requests import asked, outcome
from widthwise.study.encoding import encode
from widthwise.study.export import from_json_lines, to_json_lines
from widthwise.study.lines import read_json_lines, write_lines
from widthwise.study.records import Exported, ExportedRun
from widthwise.study.store import Study

RUN = {"run": "a", "status": "finished", "results": {}}
CURVE = {"steps": [1, 2], "values": [0.5, "NaN"]}
NUMBERS = st.floats(allow_nan=False) | st.just(math.nan)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), NUMBERS), max_size=5), st.booleans())
def test_curves_come_back_to_the_bit(points: list[tuple[int, float]], from_float32: bool):
    values = np.array([value for _, value in points])
    with np.errstate(over="ignore"):
        values = values.astype(np.float32).astype(np.float64) if from_float32 else values
    steps = np.array([step for step, _ in points], np.int64)
    run = ExportedRun(run="a", status="finished", results={}, curves={"loss": (steps, values)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "study.jsonl")
        path.write_text("".join(write_lines(Exported(runs=[run], notes={}))))
        (found,) = read_json_lines(path).runs
    assert [array.tobytes() for array in found.curves["loss"]] == [steps.tobytes(), values.tobytes()]


def test_curves_from_a_device_are_written_in_few_digits():
    def length(values: np.ndarray) -> int:
        curves = {"loss": (np.arange(100), values)}
        run = ExportedRun(run="a", status="finished", results={}, curves=curves)
        return sum(map(len, write_lines(Exported(runs=[run], notes={}))))

    exact = np.random.default_rng(0).normal(size=100)
    assert length(exact.astype(np.float32)) < 0.7 * length(exact)


@pytest.fixture
def study(tmp_path: Path):
    with Study.open(tmp_path / "study") as study:
        study.ask([asked(0)])
        yield study


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"run,status,spec.width", "is no JSON at character 0: expected an object on one line"),
        (b'{"run":"a","sta', "is no JSON at character 15: expected an object on one line"),
        (b"", "is no JSON at character 1: expected an object on one line"),
        (b'{"note":"\xff"', "byte 9 is no text: expected a JSON object"),
        (b"[" * 100_000, "recursion"),
        ([RUN], r"the run is \[\{.*: expected an object"),
        ({}, "the run has no 'run': expected text"),
        ({"name": "a", "value": 1}, "the run has a field 'name': expected run, status, spec"),
        ({"note": "a"}, "the note has no 'value': expected a value"),
        ({"note": 1, "value": 1}, "note of the note is 1: expected text"),
        ({"note": "\ud800", "value": 1}, "note of the note is .*: expected text"),
        ({**RUN, "run": "a/b"}, "'a/b' cannot be the name of a run"),
        ({**RUN, "status": "running"}, "status of the run is 'running': expected waiting, finished, diverged, failed"),
        ({**RUN, "status": []}, "status of the run is \\[\\]: expected waiting"),
        ({**RUN, "results": [1]}, r"results of the run is \[1\]: expected an object"),
        ({**RUN, "spec": "x" * 100}, r"spec of the run is 'x{36}\.\.\.: expected an object"),
        ({**RUN, "labels": "wide"}, "labels of the run is 'wide': expected a list of texts"),
        ({**RUN, "recorded": "NaN"}, "recorded of the run is nan: expected seconds since 1970"),
        ({**RUN, "curves": {"x": [1]}}, r"curve 'x' is \[1\]: expected an object"),
        ({**RUN, "curves": {"x": {"steps": []}}}, "curve 'x' has no 'values': expected a list of numbers"),
        ({**RUN, "curves": {"x": {**CURVE, "steps": [1]}}}, "curve 'x' has 1 steps and 2 values"),
        ({**RUN, "curves": {"x": {**CURVE, "steps": [1.5, 2]}}}, "steps of curve 'x' .* expected a list of integers"),
        ({**RUN, "curves": {"x": {**CURVE, "steps": [1, 2**63]}}}, "steps of curve 'x' .* expected a list of integers"),
        ({**RUN, "curves": {"x": {**CURVE, "values": [1, None]}}}, "values of curve 'x' .* expected a list of numbers"),
        ({**RUN, "curves": {"x": {**CURVE, "values": [1, 10**400]}}}, "values of curve 'x' .* a list of numbers"),
        ({**RUN, "curves": {"x": {**CURVE, "float32": 1}}}, "float32 of curve 'x' is 1: expected true"),
    ],
    ids=str,
)
def test_what_is_no_line_of_a_study_is_refused_and_nothing_is_merged(
    study: Study, tmp_path: Path, line: Any, named: str
):
    path = tmp_path / "study.jsonl"
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    path.write_bytes(json.dumps(RUN).encode() + b"\n" + data + b"\n")
    with pytest.raises(ValueError, match=f"study.jsonl', line 2: .*{named}") as caught:
        from_json_lines(path, study)
    assert "\n" not in str(caught.value)
    assert [row.run for row in study.runs()] == ["run-00000"]
    assert sum(study.counts().values()) == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    with Study.open(folder) as study:
        study.ask([asked(number) for number in range(9)], label="all")
        study.record([outcome(number) for number in range(9)])
        to_json_lines(study, folder / "study.jsonl.gz", curves=True)
    return (folder / "study.jsonl.gz").read_bytes()


def refusal(path: Path) -> str:
    try:
        read_json_lines(path)
    except ValueError as error:
        return str(error)
    return ""


@given(data=st.data(), cut=st.booleans())
def test_a_compressed_file_that_is_cut_or_damaged_is_refused(whole: bytes, data: st.DataObject, cut: bool):
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "study.jsonl.gz")
        path.write_bytes(whole[:at] if cut else whole[:at] + changed + whole[at + 1 :])
        message = refusal(path)
        if message:
            assert message.startswith(f"{str(path)!r}, line ")
            assert "\n" not in message
        else:  # some bits mean nothing
            assert gzip.decompress(path.read_bytes()) == gzip.decompress(whole)


@pytest.mark.parametrize("name", ["none.jsonl", "none.jsonl.gz"])
def test_a_file_that_is_not_there_is_named(study: Study, tmp_path: Path, name: str):
    with pytest.raises(ValueError, match=rf"there is no file '.*{name}': expected an exported study"):
        from_json_lines(tmp_path / name, study)
    with pytest.raises(ValueError, match=r"there is no file '.*/study': expected an exported study"):
        from_json_lines(study.folder, study)


def test_a_file_that_only_claims_to_be_compressed_is_refused(study: Study, tmp_path: Path):
    (tmp_path / "study.jsonl.gz").write_text(encode(RUN))
    with pytest.raises(ValueError, match=r"line 1: cannot be read \(Not a gzipped file.*\): expected a whole file"):
        from_json_lines(tmp_path / "study.jsonl.gz", study)
    (tmp_path / "study.jsonl").write_bytes(gzip.compress(encode(RUN).encode()))
    with pytest.raises(ValueError, match="line 1: byte 1 is no text"):
        from_json_lines(tmp_path / "study.jsonl", study)
