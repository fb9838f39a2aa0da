"""A study on a disk that is full is not made at all, or is made whole; an error says what is the matter."""

import os
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
