"""`widthwise align` measures, draws, prints what alignment implies, and never trains twice."""

import json
from pathlib import Path

import pytest

from tests.train.runs import SMALL
from widthwise.cli import main


def test_it_prints_the_table_draws_the_figure_and_never_trains_twice(tmp_path: Path, capsys, monkeypatch):
    figure = tmp_path / "figures" / "alignment.svg"
    command = ["align", *SMALL, "--widths", "32", "64", "--out", str(tmp_path / "runs"), "--figure", str(figure)]
    assert main([*command, "--json"]) == 0
    out = capsys.readouterr().out
    assert "NaN" not in out
    found = json.loads(out)
    assert [point["step"] for point in found["points"]["64"]] == [0, 1, 2, 4, 8, 16, 32, 40]
    log, slopes = found["alignment"]
    assert (log["of"], slopes["of"]) == ("width 64, log_n", "slopes over 32, 64")
    assert log["roles"]["hidden"]["layers"] == 6
    assert log["exponents"]["full alignment"]["hidden"] == "-1"
    assert log["exponents"]["no alignment"]["hidden"] == "-1/2"
    largest = max(log["roles"]["hidden"]["alpha"]["largest"], log["roles"]["hidden"]["u"]["largest"])
    assert 0.5 < largest < 1
    svg = figure.read_text()
    assert "<svg" in svg
    assert len(svg) > 5000

    monkeypatch.setattr("widthwise.cli.runs.train", None)  # nothing is trained again
    assert main(command) == 0
    table = capsys.readouterr().out
    for words in ("full alignment", "measured, median", "measured, largest", "over 4 layers without normalization"):
        assert words in table
    assert str(figure) in table

    damaged = next((tmp_path / "runs").glob("*/alignment.json"))
    damaged.write_text("[")
    assert main(command) == 2
    assert "cannot be read: delete it to train again" in capsys.readouterr().err
    assert damaged.read_text() == "["


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--figure", "alignment.txt"], "'alignment.txt' ends in '.txt': expected one of"),
        (["--figure", f"{__file__}/alignment.png"], "test_align.py' is a file: expected a folder to write to"),
        (["--out", __file__], "test_align.py' is a file: expected a folder to write to"),
        (["--per-doubling", "0"], "per_doubling is 0"),
        (["--widths", "32", "40"], "width is 40: expected a multiple of the head dimension 16"),
    ],
)
def test_nonsense_is_refused_in_one_line(tmp_path: Path, capsys, options: list[str], named: str):
    assert main(["align", *SMALL, "--out", str(tmp_path), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert named in err
