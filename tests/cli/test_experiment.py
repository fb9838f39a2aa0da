"""`widthwise experiment` as a person and as a program would use it."""

import json

import pytest

from widthwise.cli import main

SMALL = ["--scale", "smoke", "--parameterizations", "standard", "--settings", "global", "full", "--widths", "16", "24"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study in which a small part of an experiment was carried out."""
    folder = tmp_path_factory.mktemp("study")
    assert main(["experiment", "transfer", *SMALL, "--study", str(folder)]) == 0
    return folder


def test_a_finished_experiment_trains_nothing_and_says_what_holds(study, capsys):
    assert main(["experiment", "transfer", *SMALL, "--study", str(study), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] == {"wanted": 27, "trained": 0, "diverged": 0, "failed": 0}
    assert [finding["claim"] for finding in said["findings"]] == [
        "exponent near zero for full alignment",
        "exponent lower with one global rate than with full alignment",
    ]
    assert "does not change with width" in said["claim"]


def test_people_see_a_table_the_claims_and_where_the_report_is(study, capsys):
    assert main(["experiment", "transfer", *SMALL, "--study", str(study)]) == 0
    said = capsys.readouterr().out
    assert "standard, full alignment" in said
    assert "exponent near zero for full alignment" in said
    assert "27 runs, 0 of them trained now" in said
    assert f"Report: {study / 'report' / 'index.html'}" in said
    assert (study / "report" / "index.html").exists()


def test_more_of_an_experiment_trains_what_is_new(study, capsys):
    more = [*SMALL[:-2], "16", "24", "--seeds", "1"]
    assert main(["experiment", "transfer", *more, "--study", str(study), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"]["trained"] == 27


def test_the_paper_s_own_scale_is_counted_without_its_data(tmp_path, capsys):
    command = ["experiment", "transfer", "--scale", "paper", "--dry-run", "--json", "--study", str(tmp_path / "study")]
    assert main(command) == 0
    said = json.loads(capsys.readouterr().out)
    # Three settings, four parameterizations, fourteen widths; at the base width full and no alignment are one.
    assert said["searches"] == 3 * 4 * 14 - 4
    assert said["tokens"][0] == said["runs"][0] * 50_000 * 256 * 512
    assert said["seconds"] is None
    assert any("GPU" in reason for reason in said["cannot_run_here"])
    assert any("tokenizer" in reason for reason in said["cannot_run_here"])
    assert not (tmp_path / "study").exists()


def test_a_dry_run_says_what_is_left(study, capsys):
    command = ["experiment", "transfer", *SMALL[:-2], "16", "24", "--study", str(study), "--dry-run"]
    assert main(command) == 0
    assert "without the 27 runs that are known: nothing is left to train" in capsys.readouterr().out
    assert main([*command, "--seeds", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["searches"], said["known"], said["runs"]) == (3, 0, [27, 27])


def test_a_dry_run_opens_nothing_and_trains_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("widthwise.sweeps.worker.train", None)
    monkeypatch.setattr("widthwise.sweeps.requests.load_inputs", None)
    assert main(["experiment", "transfer", *SMALL, "--dry-run", "--study", str(tmp_path / "study")]) == 0
    said = capsys.readouterr().out
    assert "transfer at scale smoke" in said
    assert "time here: " in said
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["nonsense"], "there is no experiment 'nonsense': expected one of "),
        (["transfer", "--scale", "paper"], "cannot run here: there is no GPU; there is no tokenizer"),
        (["transfer", "--parameterizations", "mupp"], "parameterization 'mupp' is not part of this experiment"),
        (["transfer", "--settings", "half"], "setting 'half' is not part of this experiment"),
        (["transfer", "--widths", "20"], "width is 20: expected a multiple of the head dimension 16"),
        (["transfer", "--data", "nothing"], "data is 'nothing': expected one of"),
        (["transfer", "--scale", "huge"], "invalid choice 'huge'"),
        (["transfer", "--budget", "foo"], "budget is 'foo': expected a time, runs or FLOPs"),
        (["transfer", "--precision", "0"], "'0' is not a number above 0"),
        (["equivalence", "--dry-run"], "equivalence trains nothing"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_nonsense_is_refused_in_one_line_and_nothing_is_written(tmp_path, capsys, wrong, said):
    assert main(["experiment", *wrong, "--study", str(tmp_path / "study")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "study").exists()
