"""`widthwise plan`: counts as in the paper, at once."""

import json

import pytest

from widthwise.cli import main


def test_the_largest_model_of_the_paper(capsys):
    assert main(["plan", "--width", "16384", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "parameters": {"embedding": 525942784, "non_embedding": 26304413696, "total": 26830356480},
        "steps": {"compute_optimal": 20 * 26304413696 // (256 * 512)},
    }


def test_people_get_the_same_numbers(capsys):
    assert main(["plan", "--width", "128"]) == 0
    out = capsys.readouterr().out
    for number in ("4,108,928", "5,749,504", "9,858,432", "877   at batch 256"):
        assert number in out


@pytest.mark.parametrize(
    ("options", "named"),
    [([], "--width"), (["--width", "100"], "width is 100: expected a multiple"), (["--width", "x"], "'x'")],
)
def test_wrong_input_is_one_line(capsys, options: list[str], named: str):
    assert main(["plan", *options]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert named in err
