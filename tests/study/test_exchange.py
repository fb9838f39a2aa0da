"""What a study exports restores it, and is merged into others without changing what they know."""

import math
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.study.requests import asked, ids, outcome
from widthwise.study import exchange
from widthwise.study.export import from_json_lines, reading, to_json_lines
from widthwise.study.records import Merged
from widthwise.study.store import Study

TABLES = {
    "runs": "SELECT * FROM runs ORDER BY id",
    "curves": "SELECT run, curves FROM details ORDER BY run",
    "requests": "SELECT key, spec, run FROM requests ORDER BY id",
    "labels": "SELECT label, key FROM labels JOIN requests ON id = request ORDER BY label, key",
    "notes": "SELECT * FROM notes WHERE name NOT LIKE 'lanes/%' ORDER BY name",
}


def everything(study: Study) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(study.folder / "study.sqlite")) as database:
        return {table: database.execute(query).fetchall() for table, query in TABLES.items()}


def exported(study: Study, name: str = "study.jsonl", curves: Any = True) -> Path:
    path = study.folder.parent / f"{study.folder.name}-{name}"
    to_json_lines(study, path, curves=curves)
    return path


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """A study with all that there can be: shared, waiting, failed and diverged runs, labels, and one left behind."""
    with Study.open(tmp_path / "study") as study:
        study.ask([asked(0, alignment="global"), asked(0, alignment="full")], label="sweep")
        study.ask([asked(5, data="text"), asked(1), asked(2), asked(3), asked(0, alignment="full")], label="other")
        study.ask([asked(4, data="text")])
        curves = {"train_loss": ([1, 2], [0.1, math.nan]), "alignment/readout/omega": ([3], [math.inf])}
        ended = {"provenance": {"device": "cpu"}, "curves": curves}
        study.record([outcome(0, results={"eval_loss": 1 / 3, "edge": math.inf}, **ended), outcome(5)])
        study.record([outcome(1, status="failed", results={}, curves={}, provenance={"error": "lost"})])
        study.record([outcome(2, status="diverged", results={"eval_loss": math.nan})])
        study.put("sweep/sweep", {"edge": -math.inf})
        study.put("lanes/cpu/program/1", 8)
        study.claim(ids(5)[3:4], seconds=60)
        yield study


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Study]:
    with Study.open(tmp_path / "empty") as empty:
        yield empty


@pytest.mark.parametrize("name", ["study.jsonl", "study.jsonl.gz"])
@pytest.mark.parametrize("batch", [2, 1000])
def test_a_study_is_restored_from_its_export(
    study: Study, empty: Study, monkeypatch: pytest.MonkeyPatch, name: str, batch: int
):
    monkeypatch.setattr(exchange, "_BATCH", batch)
    path = exported(study, name)
    assert from_json_lines(path, empty) == Merged(new=6, known=0)
    assert everything(empty) == everything(study)
    assert empty.notes("lanes/") == {}
    assert empty.counts() == {"waiting": 2, "running": 0, "finished": 2, "diverged": 1, "failed": 1}
    assert exported(empty, name).read_bytes() == path.read_bytes()


def test_runs_come_in_the_order_of_their_requests_and_last_those_that_none_means_any_more(study: Study):
    found = [(one.run, one.spec is None) for one in study.exported().runs]
    asked_for = ["run-00000", "run-00000", "run-00004", "run-00001", "run-00002", "run-00003"]
    assert found == [*((run, False) for run in asked_for), ("run-00005", True)]


def test_merging_twice_changes_nothing(study: Study, empty: Study):
    path = exported(study)
    from_json_lines(path, empty)
    before = everything(empty)
    assert from_json_lines(path, empty) == Merged(new=0, known=6)
    assert everything(empty) == before
    assert study.merge(empty.exported(curves=True)) == Merged(new=0, known=6)
    assert everything(study) == before


NUMBERS = st.floats(allow_nan=False) | st.floats(width=32, allow_nan=False) | st.just(math.nan)
CURVES = st.dictionaries(
    st.text(max_size=3), st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), NUMBERS), max_size=4), max_size=3
)
VALUES = st.dictionaries(st.text(max_size=3), NUMBERS | st.lists(NUMBERS | st.none(), max_size=2), max_size=3)
RUNS = st.lists(
    st.fixed_dictionaries(
        {
            "spec": st.integers(0, 4),
            "label": st.sampled_from([None, "a", "ü", "NaN"]),
            "status": st.sampled_from(["waiting", "finished", "diverged", "failed"]),
            "results": VALUES,
            "provenance": VALUES,
            "curves": CURVES,
        }
    ),
    max_size=6,
)


@given(runs=RUNS, notes=st.dictionaries(st.text(max_size=3) | st.just("NaN"), VALUES, max_size=2))
def test_any_study_is_restored(runs: list[dict[str, Any]], notes: dict[str, Any]):
    with tempfile.TemporaryDirectory() as folder, Study.open(Path(folder, "a")) as study:
        for number, run in enumerate(runs):
            study.ask([asked(number, seed=run["spec"])], label=run["label"])
            if run["status"] != "waiting":
                curves = {name: tuple(zip(*points, strict=True)) or ([], []) for name, points in run["curves"].items()}
                values = {name: run[name] for name in ("status", "results", "provenance")}
                study.record([outcome(number, **values, curves=curves)])
        for name, value in notes.items():
            study.put(name, value)
        with Study.open(Path(folder, "b")) as other:
            from_json_lines(exported(study, "study.jsonl.gz"), other)
            assert everything(other) == everything(study)


def test_what_is_known_stays_and_the_rest_is_added(tmp_path: Path, empty: Study):
    with Study.open(tmp_path / "one") as one, Study.open(tmp_path / "two") as two:
        one.ask([asked(0), asked(1), asked(2), asked(3), asked(4, data="text")], label="one")
        two.ask([asked(5), asked(0), asked(1), asked(2), asked(3), asked(6, data="text")], label="two")
        one.record([outcome(0), outcome(1, status="failed"), outcome(2)])
        two.record([outcome(0, results={"eval_loss": 9.0}), outcome(1), outcome(2, status="failed"), outcome(3)])
        one.put("a", 1)
        two.put("a", 2)
        two.put("b", 3)
        paths = exported(one), exported(two)
    assert [from_json_lines(path, empty) for path in paths] == [Merged(new=5, known=0), Merged(new=4, known=2)]
    assert {row.run: (row.status, row.results) for row in empty.runs()} == {
        "run-00000": ("finished", {"eval_loss": 0.0}),
        "run-00001": ("finished", {"eval_loss": 1 / 3}),
        "run-00002": ("finished", {"eval_loss": 2 / 3}),
        "run-00003": ("finished", {"eval_loss": 1.0}),
        "run-00004": ("waiting", {}),
        "run-00005": ("waiting", {}),
    }
    assert [row.run for row in empty.runs(label="one")] == ids(5)
    assert [row.run for row in empty.runs(label="two")] == [*ids(5), "run-00005"]
    assert empty.notes("") == {"a": 1, "b": 3}
    assert empty.statuses(["run-00006"]) == {"run-00006": "waiting"}  # kept, should that be asked for again


def test_files_that_were_joined_are_merged_alike(study: Study, empty: Study, tmp_path: Path):
    with Study.open(tmp_path / "two") as two:
        two.ask([asked(1), asked(7)])
        two.record([outcome(1), outcome(7)])
        two.put("sweep/sweep", "another")
        (tmp_path / "joined.jsonl").write_bytes(exported(study).read_bytes() + exported(two).read_bytes())
        assert from_json_lines(tmp_path / "joined.jsonl", empty) == Merged(new=7, known=0)
        study.merge(two.exported(curves=True))
    assert everything(empty) == everything(study)


def test_curves_are_chosen_by_the_beginnings_of_their_names_and_added_later(study: Study, empty: Study):
    def names() -> list[list[str]]:
        return [sorted(curves) for curves in empty.curves(["run-00000", "run-00005"]).values()]

    from_json_lines(exported(study, curves=False), empty)
    assert names() == [[], []]
    few, all_of_them = exported(study, curves=["alignment/", "x"]), exported(study, "all.jsonl")
    assert few.read_bytes() == exported(study, "same.jsonl", curves="alignment/").read_bytes()
    assert from_json_lines(few, empty) == Merged(new=1, known=5)
    assert names() == [["alignment/readout/omega"], []]
    assert from_json_lines(all_of_them, empty).new == 3
    assert everything(empty) == everything(study)
    assert from_json_lines(all_of_them, empty).new == 0
    assert from_json_lines(few, empty).new == 0


def test_curves_of_other_results_are_not_added(empty: Study, tmp_path: Path):
    empty.ask([asked(0)])
    empty.record([outcome(0, curves={})])
    with Study.open(tmp_path / "other") as other:
        other.ask([asked(0)])
        other.record([outcome(0, results={"eval_loss": 0.5})])
        assert empty.merge(other.exported(curves=True)) == Merged(new=0, known=1)
    assert empty.curves(ids(1)) == {"run-00000": {}}


def test_a_restored_study_goes_on_and_takes_up_what_runs_compute(study: Study, empty: Study):
    from_json_lines(exported(study), empty)
    assert empty.details("run-00000").identity == {}
    asks = [asked(0, alignment="full"), asked(1), asked(2), asked(3), asked(8)]
    empty.ask(asks, label="sweep")
    assert empty.claim([one.id for one in asks], seconds=60) == ["run-00001", "run-00003", "run-00008"]
    assert empty.details("run-00000").identity == {"number": 0}
    assert empty.details("run-00000").provenance == {"device": "cpu"}
    assert empty.details("run-00005").identity == {}


def test_an_export_of_a_label_has_nothing_else(study: Study, empty: Study, tmp_path: Path):
    to_json_lines(study, tmp_path / "part.jsonl", label="sweep")
    assert from_json_lines(tmp_path / "part.jsonl", empty) == Merged(new=1, known=0)
    assert everything(empty)["labels"] == [row for row in everything(study)["labels"] if row[0] == "sweep"]
    assert len(empty.runs()) == 2
    assert empty.notes("") == {}


@pytest.mark.parametrize("name", ["runs.of.mine.jsonl", "runs.of.mine.jsonl.gz"])
def test_an_exported_file_is_read_like_the_folder_of_a_study(study: Study, tmp_path: Path, name: str):
    to_json_lines(study, tmp_path / name, curves=True)
    with reading(tmp_path / name) as restored, reading(study.folder) as opened:
        assert restored.folder.name == "runs.of.mine"
        assert everything(restored) == everything(opened)
    assert not restored.folder.exists()
    with pytest.raises(ValueError, match="there is no study in"), reading(tmp_path / "none"):
        pass


def test_damaged_curves_stop_a_merge(study: Study, empty: Study):
    path = exported(study)
    from_json_lines(exported(study, "few.jsonl", curves=["alignment/"]), empty)
    with closing(sqlite3.connect(empty.folder / "study.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE details SET curves = zeroblob(100) WHERE curves IS NOT NULL")
    before = everything(empty)
    with pytest.raises(ValueError, match="the curves of run 'run-00000' are damaged"):
        from_json_lines(path, empty)
    assert everything(empty) == before
