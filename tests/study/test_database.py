"""A file is made whole, refused when it is not a study, and then left byte for byte as it was."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.study.requests import asked, ids, outcome
from widthwise.study import database
from widthwise.study.store import Study

COUNT = 300


def write_study(folder: Path) -> Path:
    with Study.open(folder) as study:
        study.ask([asked(number) for number in range(COUNT)])
        study.record([outcome(number) for number in range(COUNT)])
    return folder / "study.sqlite"


def text(folder: Path) -> None:
    (folder / "study.sqlite").write_text("dear diary\n" * 1000)


def empty(folder: Path) -> None:
    (folder / "study.sqlite").touch()


def foreign_with_a_log_of_a_killed_process(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    other = sqlite3.connect(elsewhere / "study.sqlite", isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("CREATE TABLE runs (id)")
    shutil.copytree(elsewhere, folder, dirs_exist_ok=True)
    assert (folder / "study.sqlite-wal").stat().st_size
    other.close()


def newer(folder: Path) -> None:
    with sqlite3.connect(write_study(folder)) as study:
        study.execute("PRAGMA user_version = 2")
    study.close()


def short(folder: Path) -> None:
    os.truncate(write_study(folder), 3 * 4096)


def without_a_table(folder: Path) -> None:
    with sqlite3.connect(write_study(folder)) as study:
        study.execute("DROP TABLE leases")
    study.close()


def overwrite(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * size)


def start_of_requests(path: Path) -> int:
    study = sqlite3.connect(path)
    ((page,),) = study.execute("SELECT rootpage FROM sqlite_master WHERE name = 'requests'")
    study.close()
    return (page - 1) * 4096


def overwritten(folder: Path) -> None:
    path = write_study(folder)
    overwrite(path, start_of_requests(path), 4096)


def overwritten_in_a_few_bytes(folder: Path) -> None:
    path = write_study(folder)
    at = start_of_requests(path) + 8  # where the table names its last page
    last = int.from_bytes(path.read_bytes()[at : at + 4], "big")
    overwrite(path, last * 4096 - 96, 50)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (text, "cannot be read as a study"),
        (empty, "is not a study: expected a file made by Widthwise"),
        (foreign_with_a_log_of_a_killed_process, "is not a study: expected a file made by Widthwise"),
        (newer, "was made by a newer Widthwise: expected schema 1, found 2"),
        (short, "cannot be read as a study"),
        (without_a_table, "cannot be read as a study .*no table leases"),
        (overwritten, "cannot be read as a study"),
        (overwritten_in_a_few_bytes, "cannot be read as a study"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_no_whole_study_is_refused_in_one_line_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], named: str
):
    folder = tmp_path / "study"
    folder.mkdir()
    spoil(folder)
    before = contents(folder)
    with pytest.raises(ValueError, match=f"{named}.*left as it is") as caught:
        Study.open(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert contents(folder) == before


def test_where_there_is_no_study_none_is_made_unless_wanted(tmp_path: Path):
    with pytest.raises(ValueError, match=r"there is no study in .*: expected a file study\.sqlite"):
        Study.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    Study.open(tmp_path / "some").close()
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["study.sqlite"]


@pytest.mark.parametrize("create", [True, False])
def test_a_file_is_no_folder_of_a_study(tmp_path: Path, create: bool):
    with Study.open(tmp_path):
        pass
    with pytest.raises(ValueError, match=r"study\.sqlite' is a file: expected the folder of a study"):
        Study.open(tmp_path / "study.sqlite", create=create)
    with pytest.raises(ValueError, match=r"study\.sqlite' is a file: expected the folder of a study"):
        Study.open(tmp_path / "study.sqlite" / "inside", create=create)


def test_reading_a_study_does_not_change_it(tmp_path: Path):
    path = write_study(tmp_path)
    before = path.read_bytes()
    with Study.open(tmp_path, create=False) as study:
        study.counts()
        study.curves([row.run for row in study.runs()])
    assert contents(tmp_path) == {"study.sqlite": before}


def test_reading_a_study_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    writer = sqlite3.connect(write_study(tmp_path), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with Study.open(tmp_path) as study:
        assert study.counts()["finished"] == COUNT
        with pytest.raises(OSError, match="database is locked"):
            study.put("a", 1)
    writer.close()


def test_who_makes_a_study_a_moment_later_takes_the_one_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, link = write_study(tmp_path / "first"), os.link

    def late(partial: Path, path: Path) -> None:
        shutil.copy(first, path)
        link(partial, path)

    monkeypatch.setattr(os, "link", late)
    with Study.open(tmp_path / "second") as study:
        assert study.counts()["finished"] == COUNT


def test_a_file_that_a_kill_left_shorter_than_it_says_is_whole_with_its_log(tmp_path: Path):
    with Study.open(tmp_path / "killed") as study:
        size = (study.folder / "study.sqlite").stat().st_size
        study.ask([asked(number) for number in range(COUNT)])
        looking = sqlite3.connect(study.folder / "study.sqlite")
        looking.execute("PRAGMA wal_checkpoint")
        looking.close()
        (tmp_path / "found").mkdir()
        for name in ("study.sqlite", "study.sqlite-wal"):
            shutil.copy(study.folder / name, tmp_path / "found" / name)
    os.truncate(tmp_path / "found" / "study.sqlite", size)
    with Study.open(tmp_path / "found") as study:
        assert study.statuses(ids(COUNT)) == dict.fromkeys(ids(COUNT), "waiting")


def test_opening_twice_in_a_process_keeps_the_locks_of_the_first(tmp_path: Path):
    with Study.open(tmp_path) as study:
        study.put("a", 1)
        Study.open(tmp_path).close()
        script = "import sys, sqlite3; d = sqlite3.connect(sys.argv[1]); d.execute('SELECT * FROM notes'); d.close()"
        subprocess.run([sys.executable, "-c", script, tmp_path / "study.sqlite"], check=True)
        assert (tmp_path / "study.sqlite-wal").exists()  # the other process saw that it was not the last


def on_a_network(path: Path, mounts: Path) -> None:
    mounts.write_text(
        f"23 22 0:5 / {str(path).replace(' ', chr(92) + '040')} rw shared:7 - nfs4 server:/x rw\n"
        f"24 22 0:6 / {path}x rw - ext4 /dev/sdb rw\n"
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    )


def mode(path: Path) -> str:
    opened = sqlite3.connect(path)
    ((found,),) = opened.execute("PRAGMA journal_mode")
    opened.close()
    return found


def test_without_shared_memory_a_rollback_journal_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    there = tmp_path / "home of x"
    local = there / "moved"
    assert mode(write_study(local)) == "wal"
    monkeypatch.setattr(database, "MOUNTS", tmp_path / "mounts")
    on_a_network(there, tmp_path / "mounts")
    for folder in (local, there / "new"):
        said: list[str] = []
        with Study.open(folder, say=said.append) as study:
            study.put("a", 1)
        assert len(said) == 1
        assert "rollback journal" in said[0]
        assert mode(folder / "study.sqlite") == "delete"
    on_a_network(tmp_path / "elsewhere", tmp_path / "mounts")
    with Study.open(there / "new") as study:  # its other users may still be on the network
        assert study.get("a") == 1
    assert mode(there / "new" / "study.sqlite") == "delete"
    assert mode(write_study(there / "local")) == "wal"


def test_a_file_system_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def link(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", link)
    write_study(tmp_path)
    assert list(contents(tmp_path)) == ["study.sqlite"]


def test_what_goes_wrong_later_names_the_file(tmp_path: Path):
    study = Study.open(tmp_path)
    study.close()
    with pytest.raises(OSError, match=r"study\.sqlite': Cannot operate on a closed database"):
        study.counts()
