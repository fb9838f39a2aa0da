"""What must not change any more is noticed if it does, whoever changed it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.study.requests import asked, outcome
from widthwise.study import Study
from widthwise.study.export import from_json_lines, to_json_lines


def change(folder: Path, statement: str) -> bytes:
    """Change a study without Widthwise; return its file."""
    with closing(sqlite3.connect(folder / "study.sqlite")) as database, database:
        database.execute(statement)
    return (folder / "study.sqlite").read_bytes()


@pytest.fixture(params=["recorded", "merged"])
def study(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with Study.open(tmp_path / "recorded") as study:
        study.ask(map(asked, range(3)), label="some")
        study.record([outcome(0), outcome(1, status="diverged")])
        to_json_lines(study, tmp_path / "study.jsonl", curves=True)
    with Study.open(tmp_path / "merged") as merged:
        from_json_lines(tmp_path / "study.jsonl", merged)
    return tmp_path / request.param


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE runs SET results = replace(results, '0', '1') WHERE id = 'run-00000'", "run 'run-00000' has changed"),
        ("UPDATE runs SET status = 'finished' WHERE id = 'run-00001'", "run 'run-00001' has changed"),
        ("UPDATE runs SET recorded = 7 WHERE id = 'run-00001'", "run 'run-00001' has changed"),
        ("UPDATE requests SET spec = replace(spec, '2', '3') WHERE run = 'run-00002'", "has changed"),
        ("DELETE FROM runs WHERE id = 'run-00001'", "run 'run-00001' has changed"),
        ("DELETE FROM runs WHERE id = 'run-00002'", "belongs to a missing one of runs"),
    ],
)
def test_what_has_changed_is_refused_and_left_as_it_is(study: Path, statement: str, named: str):
    before = change(study, statement)
    with pytest.raises(ValueError, match=named):
        Study.open(study)
    assert (study / "study.sqlite").read_bytes() == before


def test_details_that_are_missing_are_named(study: Path):
    change(study, "DELETE FROM details WHERE run = 'run-00001'")
    with Study.open(study) as opened, pytest.raises(ValueError, match=r"run 'run-00001' in .* expected its details"):
        opened.curves(["run-00001"])


def test_a_damaged_schema_is_refused_in_one_line(study: Path):
    path = study / "study.sqlite"
    content = path.read_bytes()
    at = content.index(b"pid INTEGER")
    path.write_bytes(content[:at] + b'"' + content[at + 1 :])
    with pytest.raises(ValueError, match=r"cannot be read as a study \(malformed database schema") as error:
        Study.open(study)
    assert "\n" not in str(error.value)


def test_a_run_that_waits_or_failed_may_change(study: Path):
    with Study.open(study) as opened:
        opened.record([outcome(2, status="failed")])
        opened.record([outcome(2)])
    with Study.open(study) as opened:
        assert [row.status for row in opened.runs()] == ["finished", "diverged", "finished"]


def test_a_study_of_an_older_version_is_read_and_written(study: Path):
    change(study, "DROP TABLE digests")
    with Study.open(study) as opened:
        opened.record([outcome(2)])
    with Study.open(study) as opened:
        assert [row.status for row in opened.runs()] == ["finished", "diverged", "finished"]
