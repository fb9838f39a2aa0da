"""`widthwise plan`: counts as in the paper, at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_a_large_model_on_sixty_four_simulated_devices():
    """In a process of its own: how many devices are simulated is fixed when JAX starts."""
    command = [str(Path(sys.executable).with_name("widthwise")), "plan"]
    options = "--width 16384 --blocks 1 --vocabulary 1024 --context 128 --batch 64 --devices 64 --steps 100 --json"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run([*command, *options.split()], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    cost = json.loads(run.stdout)["cost"]
    total = json.loads(run.stdout)["parameters"]["total"]
    assert cost["devices"] == 64
    assert cost["parameter_bytes"] == 4 * total // 64
    assert cost["optimizer_bytes"] == pytest.approx(8 * total / 64, rel=1e-3)
    assert cost["compiled_argument_bytes"] == pytest.approx(12 * total / 64, rel=0.02)
    assert 64 * cost["compiled_flops"] == pytest.approx(cost["flops_per_step"], rel=0.25)
    assert cost["tokens"] == 100 * 64 * 128


def test_people_are_told_which_numbers_are_whose(capsys):
    options = "--width 256 --blocks 1 --vocabulary 64 --context 32 --batch 8 --devices 8 --optimizer adafactor"
    assert main(["plan", *options.split()]) == 0
    out = capsys.readouterr().out
    assert "on each of 8 devices, analytic:" in out
    assert "by the compiler (for a CPU" in out
    assert "adafactor state" in out


def test_a_batch_that_does_not_divide_is_refused(capsys):
    assert main(["plan", "--width", "128", "--blocks", "1", "--batch", "9", "--devices", "8"]) == 2
    assert "batch is 9: expected a multiple of the 8 devices" in capsys.readouterr().err
