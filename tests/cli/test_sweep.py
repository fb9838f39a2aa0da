"""`widthwise sweep` and `widthwise tune` as a person and as a program would use them."""

import json

import pytest

from tests.sweeps.tiny import options
from widthwise.cli import main
from widthwise.study import Study

GRID = ["--grid", "0.0078", "0.0157"]


@pytest.mark.parametrize("command", ["sweep", "tune"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--width", "20"], "width is 20: expected a multiple of the head dimension 8"),
        (["--optimizer", "lion"], "optimizer is 'lion'"),
        (["--processes", "0"], "'0' is not a whole number from 1"),
        (["--processes", "2", "--ray", "auto"], "both --processes and --ray"),
        (["--gpus-per-task", "1"], "without --ray"),
        (["--chunk", "0"], "chunk is 0: expected 1 or more"),
    ],
)
def test_nonsense_is_refused_in_one_line_and_nothing_is_written(tmp_path, capsys, command, wrong, said):
    assert main([command, "--study", str(tmp_path / "study"), *options(), *wrong]) == 2
    _expect_one_line(capsys, said)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--widths", "16", "20"], "width is 20"),
        (["--widths", "16", "16"], "widths are 16, 16: expected each once"),
        (["--settings", "full", "full"], "settings are full, full: expected each once"),
        (["--settings", "half"], "alignment is 'half'"),
        (["--settings", "0,1"], "rates are '0,1'"),
        (["--parameterizations", "mupp"], "parameterization is 'mupp': expected one of"),
        (["--seeds", "0", "-1"], "seed is -1: expected a finite number, 0 or more"),
        (["--seeds", "2147483648"], "seed is 2147483648: expected 2147483647 or less"),
        (["--horizons", "long"], "invalid choice 'long'"),
        (["--epsilons", "-1"], "epsilon is -1.0: expected a finite number, 0 or more"),
        (["--grid", "1", "0.1"], "expected 0 < lowest < highest"),
        (["--search.reach", "0"], "reach is 0"),
        (["--constants", "mine"], "there are no constants 'mine' for standard with adam"),
        (["--dry-run", "--constants", "mine"], "there are no constants 'mine' for standard with adam"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_in_one_line(tmp_path, capsys, wrong, said):
    assert main(["sweep", "--study", str(tmp_path / "study"), *options(), *wrong]) == 2
    _expect_one_line(capsys, said)
    assert "--constants" in wrong or not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--precision", "0"], "'0' is not a number above 0"),
        (["--precision", "fine"], "'fine' is not a number above 0"),
        (["--precision", "0.1"], "precision is 0.1 with one width: expected two widths or more"),
        (["--precision", "0.1", "--widths", "16", "32", *GRID], "both a precision and a grid"),
        (
            ["--precision", "0.05", "--widths", "16", "32"],
            "precision is 0.05: expected 0.1 or more with widths 16 to 32",
        ),
        (["--until-verdict"], "until_verdict without a precision"),
        (["--budget", "foo"], "budget is 'foo': expected a time, runs or FLOPs, such as 20m"),
        (["--budget", "0 runs"], "budget is '0 runs'"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry"])
def test_a_precision_or_a_budget_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, capsys, wrong, said, dry):
    assert main(["sweep", "--study", str(tmp_path / "study"), *options(), *wrong, *dry]) == 2
    _expect_one_line(capsys, said)
    assert not (tmp_path / "study").exists()


def test_constants_need_a_name(tmp_path, capsys):
    assert main(["tune", "--study", str(tmp_path / "study"), *options(), "--name", ""]) == 2
    _expect_one_line(capsys, "name is empty")


@pytest.mark.parametrize("name", ["default", "paper"])
def test_constants_cannot_take_a_name_that_means_something_else(tmp_path, capsys, name):
    assert main(["tune", "--study", str(tmp_path / "study"), *options(), "--name", name]) == 2
    _expect_one_line(capsys, f"the name {name!r} is reserved")
    assert not (tmp_path / "study").exists()


def test_a_file_that_is_no_study_is_refused_and_left_as_it_is(tmp_path, capsys):
    (tmp_path / "study.sqlite").write_text("something else")
    assert main(["sweep", "--study", str(tmp_path), *options()]) == 2
    _expect_one_line(capsys, "study.sqlite")
    assert (tmp_path / "study.sqlite").read_text() == "something else"


def test_a_folder_in_the_place_of_a_study_is_named(tmp_path, capsys):
    (tmp_path / "study.sqlite").mkdir()
    assert main(["sweep", "--study", str(tmp_path), *options()]) == 2
    _expect_one_line(capsys, "study.sqlite' is a folder: expected a file made by Widthwise")


def test_a_dry_run_says_what_it_takes_and_trains_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("widthwise.sweeps.worker.train", None)
    monkeypatch.setattr("widthwise.sweeps.requests.load_inputs", None)
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path / "cache"))
    command = ["sweep", "--study", str(tmp_path / "study"), *options(), "--settings", "global", "full", "--dry-run"]
    assert main([*command, "--seeds", "0", "1", *GRID, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Both settings are one at the base width: three rates with two seeds.
    assert (found["groups"], found["searches"], found["known"], found["measured"]) == (2, 1, 0, False)
    assert found["least"] == found["most"]
    assert (found["least"]["runs"], found["least"]["tokens"]) == (6, 6 * 40 * 8 * 16)
    assert 0 < found["least"]["seconds"] < 600
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "7 to 40" in printed
    assert "nothing of which is known yet; nothing was trained" in printed
    assert "GFLOP/s without compilation; a sweep measures both" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_along_another_axis_names_it_and_a_batch_keeps_the_tokens(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("widthwise.sweeps.requests.load_inputs", None)
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path / "cache"))
    command = ["sweep", "--study", str(tmp_path / "study"), *options(), *GRID, "--dry-run"]
    batches = ["--axis", "batch", "--values", "4", "16", "--batch-rules", "constant", "sde"]
    assert main([*command, *batches, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["groups"], found["searches"]) == (2, 4)
    assert found["least"]["tokens"] == 4 * 3 * 40 * 8 * 16
    assert main([*command, "--axis", "depth", "--values", "1", "2"]) == 0
    heading, _, row = capsys.readouterr().out.splitlines()[1:4]
    assert heading.split()[1] == "depths"
    assert "1 to 2" in row
    assert main([*command, "--values", "1", "2"]) == 2
    assert "values are given but the axis is width: expected widths" in capsys.readouterr().err


def test_sizes_may_be_written_as_powers_of_ten(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("widthwise.sweeps.requests.load_inputs", None)
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path / "cache"))
    command = [
        "sweep",
        "--study",
        str(tmp_path / "study"),
        *options(),
        *GRID,
        "--axis",
        "tokens",
        "--dry-run",
        "--json",
    ]
    found = []
    for sizes in (["--values", "1e4", "2e4", "--base-tokens", "1e4"], ["--values", "10000", "20000"]):
        assert main([*command, *sizes]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert main([*command, "--values", "1.5e4"]) == 2
    assert "--values: '1.5e4' is not a whole number" in capsys.readouterr().err


def test_constants_are_tuned_kept_by_name_and_used_in_a_sweep(tmp_path, capsys):
    study = ["--study", str(tmp_path)]
    tune = ["tune", *study, *options(), "--trials", "4", "--at-a-time", "2", "--extensions", "0", "--name", "mine"]
    assert main([*tune, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["name"], first["trials"], first["trained"]) == ("mine", 4, 4)
    assert first["eval_loss"] <= first["default_loss"]

    assert main([*tune, "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second == {**first, "trained": 0}

    assert main([*tune[:-2]]) == 0
    assert f"widthwise sweep --study {tmp_path} --constants tuned" in capsys.readouterr().out

    assert main(["fit", str(tmp_path)]) == 0
    assert "none of the 4 runs requested" in (out := capsys.readouterr().out)
    assert "belongs to a search for a learning rate" in out

    sweep = ["sweep", *study, *options(), *GRID, "--constants", "default", "mine"]
    assert main([*sweep, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [fit["constants"] for fit in printed["fits"]] == ["default", "mine"]
    with Study.open(tmp_path) as kept:
        rows = [row for row in kept.runs() if row.spec["constants"] == "mine"]
    assert {row.spec["hidden_constant"] for row in rows} == {first["constants"]["hidden"]}

    assert main(["fit", str(tmp_path), "--json"]) == 0
    fits = json.loads(capsys.readouterr().out)["fits"]
    assert [fit["constants"] for fit in fits] == ["default", "mine"]  # trials of constants are no sweep


def test_a_sweep_ends_with_a_table_and_a_verdict_for_each_group_and_says_what_is_missing(tmp_path, capsys):
    command = ["sweep", "--study", str(tmp_path), *options(), *GRID, "--optimizers", "adam", "--settings", "full"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "standard, adam, full, default constants, fixed horizon" in out
    assert "optimal learning rate" in out
    assert "cannot tell: fewer than two optima known" in out
    assert "incomplete: standard, adam, full, default constants, fixed horizon, width 16: optimum at the" in out
    assert f"3 runs, 3 of them trained now, 0 diverged; kept in {tmp_path}" in out

    assert main([*command, "--dry-run"]) == 0
    assert "without the 3 runs that are known: nothing is left to train" in capsys.readouterr().out
    assert main([*command, "--dry-run", "--seeds", "0", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["known"], found["least"]["runs"], found["most"]["runs"]) == (3, 3, 3)
    assert found["measured"]
    assert 0 <= found["compile_seconds"] < found["least"]["seconds"]


def test_a_precision_is_reached_or_a_budget_used_up_and_both_are_said(tmp_path, capsys):
    study = ["--study", str(tmp_path)]
    sweep = ["sweep", *study, *options(), "--widths", "16", "32", "--settings", "global"]
    group = "standard, adam, global, default constants, fixed horizon"

    assert main([*sweep, "--precision", "1", "--budget", "5 runs"]) == 0
    out = capsys.readouterr().out
    assert f"incomplete: {group}, out of runs after 5 runs, exponent unknown" in out
    assert "5 runs, 5 of them trained now" in out

    assert main([*sweep, "--precision", "1"]) == 0
    out = capsys.readouterr().out
    (reached,) = [line for line in out.splitlines() if line.startswith(f"precision reached: {group}, ±0.")]
    runs = int(reached.split()[-2])
    assert "incomplete" not in out
    assert "exponent -" in out
    assert f"{runs} runs, {runs - 5} of them trained now" in out

    assert main([*sweep, "--precision", "1", "--dry-run"]) == 0
    assert f"without the {runs} runs that are known: nothing is left to train" in capsys.readouterr().out

    assert main([*sweep, "--precision", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (found,), (fit,) = said["groups"], said["fits"]
    assert (found["setting"], found["runs"], found["reached"], found["out_of"]) == ("global", runs, "precision", None)
    assert 2 * found["half_width"] == pytest.approx(fit["interval"][1] - fit["interval"][0])
    assert (said["runs"]["trained"], [one["complete"] for one in said["searches"]]) == (0, [True, True])

    assert main([*sweep, "--precision", "0.15", "--budget", f"{runs + 1} runs", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(one["reached"], one["out_of"]) for one in said["groups"]] == [(None, "runs")]
    assert said["runs"]["trained"] <= 1

    assert main([*sweep, "--precision", "1", "--seeds", "5", "--budget", "1e-6s"]) == 0
    out = capsys.readouterr().out
    assert f"incomplete: {group}, out of time after 0 runs, exponent unknown" in out
    assert "0 of them trained now" in out


def test_a_sweep_in_which_something_failed_says_so_and_ends_with_1(tmp_path, capsys, monkeypatch):
    def fail(task, tell):
        raise RuntimeError("no space left on device")

    monkeypatch.setattr("widthwise.sweeps.driver.train_pack", fail)
    assert main(["sweep", "--study", str(tmp_path), *options(), *GRID]) == 1
    out, err = capsys.readouterr()
    assert err.count("1 run of width 16 failed: RuntimeError: no space left on device") == 3
    assert "run the same command to try them again" in err
    assert "incomplete: standard, adam, full, default constants, fixed horizon, a run failed" in out
    assert "0 of them trained now" in out


def _expect_one_line(capsys: pytest.CaptureFixture[str], said: str) -> None:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert said in err
