"""`widthwise explain`: the numbers for every parameter of the built-in models."""

import json

import pytest

from widthwise.cli import main
from widthwise.optim import OPTIMIZERS


def rows(capsys, *options: str) -> dict[str, dict]:
    assert main(["explain", *options, "--json"]) == 0
    return {row["path"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_mup_transformer(capsys):
    found = rows(capsys, "--width", "256", "--base-width", "64", "--parameterization", "mup", "--learning-rate", "0.01")
    assert found["blocks/0/mlp/down/kernel"] == {
        "path": "blocks/0/mlp/down/kernel",
        "shape": [1024, 256],
        "role": "hidden",
        "fan_in": 1024,
        "init_std": pytest.approx(1 / 32),
        "multiplier": 1.0,
        "learning_rate": pytest.approx(0.01 / 4),
        "epsilon": pytest.approx(1e-9 / 4),
    }
    assert found["tokens/embedding"]["multiplier"] == 16.0
    assert found["readout/kernel"]["role"] == "readout"


def test_global_rates_are_the_same_everywhere(capsys):
    found = rows(capsys, "--alignment", "global", "--width", "512")
    assert {row["learning_rate"] for row in found.values()} == {1.0}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_shows_its_own_epsilon_if_it_has_one(capsys, optimizer: str):
    found = rows(capsys, "--model", "mlp", "--optimizer", optimizer, "--width", "128", "--base-width", "128")
    orthogonalized = [path for path in found if path.startswith("hidden/") and optimizer.startswith("muon")]
    assert all(found.pop(path)["epsilon"] is None for path in orthogonalized)
    assert {row["epsilon"] for row in found.values()} == {OPTIMIZERS[optimizer].epsilon}


@pytest.mark.parametrize(("optimizer", "hidden"), [("adam", 1 / 4), ("muon", 1.0), ("muon_max", 1 / 2)])
def test_muon_has_its_own_exponent_for_hidden_matrices_and_adams_elsewhere(capsys, optimizer: str, hidden: float):
    found = rows(capsys, "--model", "mlp", "--optimizer", optimizer, "--width", "512", "--base-width", "128")
    assert [row["learning_rate"] for row in found.values()] == pytest.approx([1.0, hidden, hidden, 1 / 4])


def test_a_given_epsilon_is_the_base(capsys):
    found = rows(capsys, "--model", "mlp", "--epsilon", "1e-4", "--width", "128", "--base-width", "128")
    assert {row["epsilon"] for row in found.values()} == {1e-4}


def test_whose_epsilons_are_shown_is_said_where_there_are_any(capsys):
    for optimizer, said in (("adam", True), ("adam_atan2", False)):
        assert main(["explain", "--model", "mlp", "--optimizer", optimizer]) == 0
        assert ("--epsilon-per-parameter" in capsys.readouterr().out) is said


def test_people_get_a_table(capsys):
    assert main(["explain", "--model", "mlp", "--width", "64", "--hidden-layers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mlp of width 64, base width 128: standard, adam, full alignment"
    assert lines[1].split()[:3] == ["path", "shape", "role"]
    assert [line.split()[0] for line in lines[3:6]] == ["embedding", "hidden/0", "readout"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--width", "100"], ["width is 100", "multiple of the head dimension 64"]),
        (["--width", "0"], ["--width", "'0'"]),
        (["--learning-rate", "-1"], ["--learning-rate", "'-1'", "above 0"]),
        (["--learning-rate", "nan"], ["'nan'", "above 0"]),
        (["--optimizer", "sgd", "--epsilon", "1e-8"], ["--epsilon 1e-08", "sgd has no epsilon"]),
        (["--model", "cnn"], ["'cnn'", "transformer, mlp"]),
        (["--alignment", "some"], ["'some'", "full, none, tensor_programs, global"]),
    ],
)
def test_wrong_input_is_one_line(capsys, options: list[str], named: list[str]):
    assert main(["explain", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for part in named:
        assert part in err
