"""A study on a disk that is full is not made at all, or is made whole; an error says what is the matter.

On a disk that can only be read, a study can be read.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.requests import asked
from widthwise.study import Study

SIZE = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_whatever_room_there_is_a_study_can_be_used_once_there_is_more(disk: Path):
    said, made = list[str](), 0
    for pages in range(1, 100):
        (disk / "ballast").write_bytes(bytes(SIZE - 4096 * pages))
        try:
            with Study.open(disk / "study") as study:
                study.ask([asked(0)])
            made += 1
        except OSError as error:
            said.append(str(error))
        (disk / "ballast").unlink()
        with Study.open(disk / "study") as study:
            study.ask([asked(0)])
            assert len(study.runs()) == 1
        assert [path.name for path in (disk / "study").iterdir()] == ["study.sqlite"]
        (disk / "study" / "study.sqlite").unlink()
    assert len(said) > 5
    assert all("\n" not in line and ("disk" in line or "No space left" in line) for line in said)
    assert made > 5


def test_a_study_that_cannot_be_written_to_is_read_and_nothing_else(disk: Path):
    with Study.open(disk / "study") as study:
        study.ask([asked(0)])
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with Study.open(disk / "study", create=False) as study:
        assert len(study.runs()) == 1
        with pytest.raises(OSError, match="attempt to write a readonly database"):
            study.ask([asked(1)])
    with pytest.raises(OSError, match="is in a folder that cannot be written to: copy the study"):
        Study.open(disk / "study")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    with Study.open(disk / "study") as study:
        study.ask([asked(1)])


def test_a_log_that_a_kill_left_where_nothing_can_be_written_is_named(disk: Path):
    with Study.open(disk / "study") as study:
        study.ask([asked(0)])
        shutil.copytree(disk / "study", disk / "killed")
    (disk / "killed" / "study.sqlite-shm").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(OSError, match="is in a folder that cannot be written to: copy the study"):
        Study.open(disk / "killed", create=False)
