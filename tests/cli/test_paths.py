"""What cannot be written is refused in one line, and nothing is written first."""

from pathlib import Path

import pytest

from widthwise.cli import main
from widthwise.study import Study


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fit study --csv folder", "'folder' is a folder: expected a file to write"),
        ("fit study --csv runs.csv --jsonl file/x.jsonl", "'file' is a file: expected a folder to write to"),
        ("export study folder.csv", "'folder.csv' is a folder: expected a file to write"),
        ("export study file/x.jsonl", "'file' is a file: expected a folder to write to"),
        ("report study --out file", "'file' is a file: expected a folder to write to"),
        ("report study --template file --out folder", "'folder' is a folder: expected a file to write"),
        ("tokenizer --paths file --out file/x.model", "'file' is a file: expected a folder to write to"),
    ],
)
def test_a_path_that_cannot_be_written_is_named(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Study.open("study").close()
    for name in ("folder", "folder.csv"):
        Path(name).mkdir()
    Path("file").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(command.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert sorted(tmp_path.rglob("*")) == before
