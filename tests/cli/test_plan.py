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


@pytest.fixture(autouse=True)
def flags_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what simulating devices changes: processes that later tests start would have as many."""
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as where no compiler for GPUs is installed."""
    monkeypatch.setattr("widthwise.cli.plan.mocked", lambda gpu: None)
    monkeypatch.setattr("widthwise.cli.plan.gpu_here", lambda: None)


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
    assert sum(cost["temporary_bytes"].values()) == pytest.approx(cost["compiled_temporary_bytes"], rel=0.35)
    assert cost["compiled_for"] == "64 simulated CPUs"
    assert cost["tokens"] == 100 * 64 * 128


def test_people_are_told_which_numbers_are_whose(capsys):
    options = "--width 256 --blocks 1 --vocabulary 64 --context 32 --batch 8 --devices 8 --optimizer adafactor"
    assert main(["plan", *options.split()]) == 0
    out = capsys.readouterr().out
    assert "on each of 8 devices" in out
    assert "estimated      compiled" in out
    assert "compiled for 8 simulated CPUs, unlike GPUs" in out
    assert "adafactor state" in out


def planned(capsys, *options: str) -> tuple[int, dict]:
    code = main(["plan", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("without_compiler")
def test_the_fewest_devices_are_found_and_then_the_least_to_compute_again(capsys):
    code, found = planned(capsys, "--width", "16384", "--memory", "113GB")
    assert code == 0
    assert found["fits"]
    tried = [(one["devices"], one["remat"]) for one in found["tried"]]
    assert tried == [
        *((1, remat) for remat in ("none", "activation", "block")),
        *((devices, remat) for devices in (2, 4, 8) for remat in ("activation", "block")),
    ]
    assert (found["cost"]["devices"], found["cost"]["remat"]) == (8, "block")


@pytest.mark.usefixtures("without_compiler")
def test_what_is_given_is_not_changed(capsys):
    _, found = planned(capsys, "--width", "2048", "--memory", "80G", "--devices", "4")
    assert {one["devices"] for one in found["tried"]} == {4}
    _, found = planned(capsys, "--width", "2048", "--memory", "30G", "--remat", "block")
    assert [(one["devices"], one["remat"]) for one in found["tried"]] == [(1, "block"), (2, "block")]


@pytest.mark.usefixtures("without_compiler")
def test_any_number_of_devices_may_share_a_batch_that_it_divides(capsys):
    code, found = planned(capsys, "--width", "1024", "--batch", "255", "--memory", "2G")
    assert [*dict.fromkeys(one["devices"] for one in found["tried"])] == [1, 3, 5, 15, 17, 51, 85, 255]
    assert (code, found["fits"]) == (1, False)  # none of them divides the width, so none has only a part of a matrix


def test_matrices_that_no_number_of_devices_divides_are_whole_on_each(capsys):
    options = "--width 256 --blocks 2 --vocabulary 64 --context 32 --batch 6 --devices 3"
    assert main(["plan", *options.split()]) == 0
    assert "matrices are whole on every device: 3 does not divide the width" in capsys.readouterr().out
    _, found = planned(capsys, *options.split())
    cost = found["cost"]
    assert cost["parameter_bytes"] == pytest.approx(4 * found["parameters"]["total"], rel=0.01)
    state = cost["parameter_bytes"] + cost["optimizer_bytes"]
    assert cost["compiled_argument_bytes"] == pytest.approx(state, rel=0.01)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--remat", "block"], "expected --devices or --memory"),
        (["--gpu", "a100"], "expected --devices or --memory"),
        (["--memory", "100G", "--gpu", "a100"], "expected at most the 85.10 GB of one a100"),
        (["--memory", "80"], "is a unit missing"),
        (["--memory", "80G", "--devices", "3"], "expected a multiple of the 3 devices"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(capsys, options: list[str], named: str):
    assert main(["plan", "--width", "256", *options]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert named in err


@pytest.mark.usefixtures("without_compiler")
def test_what_does_not_fit_is_said(capsys):
    assert main(["plan", "--width", "16384", "--memory", "20G"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("It does not fit. On each of 256 devices there are, estimated: gradients 1")
    assert last.endswith("and no more can share a batch of 256.")


@pytest.mark.parametrize(("text", "size"), [("80G", 80e9), ("1.5 GiB", 1.5 * 2**30), ("1000000", 1e6), ("0.1tb", 1e11)])
@pytest.mark.usefixtures("without_compiler")
def test_sizes_are_read(capsys, text: str, size: float):
    _, found = planned(capsys, "--width", "128", "--memory", text, "--devices", "256")
    taken = sum(found["cost"]["temporary_bytes"].values())
    assert found["fits"] == (taken < size)


@pytest.mark.parametrize("text", ["", "x", "-1", "80X", "0", "nan", "1e", "80 G G"])
def test_other_sizes_are_refused_in_one_line(capsys, text: str):
    assert main(["plan", "--width", "128", "--memory", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_batch_that_does_not_divide_is_refused(capsys):
    assert main(["plan", "--width", "128", "--blocks", "1", "--batch", "9", "--devices", "8"]) == 2
    assert "batch is 9: expected a multiple of the 8 devices" in capsys.readouterr().err
