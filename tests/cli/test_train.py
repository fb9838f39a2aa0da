"""`widthwise train` trains, resumes after any interruption, and prints how it ended.

What is about processes runs in processes of its own; the rest runs in this one, whose compilations it shares.
"""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweeps import tiny
from tests.train.runs import SMALL
from widthwise.cli import main
from widthwise.cli.runs import progress_line
from widthwise.train import Progress

COMMAND = [str(Path(sys.executable).with_name("widthwise")), "train", *SMALL]


def finished(capsys, *options: str, folder: Path) -> dict:
    assert main(["train", *SMALL, "--out", str(folder), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def steps_on_disk(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("*/checkpoints/*/*") if path.name.isdecimal()}


def begun(*options: str, folder: Path) -> subprocess.Popen:
    """Start a run and wait until it has put a checkpoint on disk."""
    there = steps_on_disk(folder)
    process = subprocess.Popen(
        [*COMMAND, "--out", str(folder), "--json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not steps_on_disk(folder) - there:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    return process


def test_killed_and_interrupted_it_resumes_to_the_numbers_of_an_undisturbed_run(tmp_path: Path, capsys):
    options = ["--steps", "600", "--chunk", "10", "--evaluate-every", "200", "--checkpoint-seconds", "0"]
    killed = begun(*options, folder=tmp_path / "disturbed")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL

    interrupted = begun(*options, folder=tmp_path / "disturbed")
    interrupted.send_signal(signal.SIGTERM)
    out, err = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130
    assert json.loads(out)["status"] == "interrupted"
    assert "run the same command to resume" in err

    quick = [*options[:-2], "--checkpoint-seconds", "60"]
    disturbed, whole = (finished(capsys, *quick, folder=tmp_path / name) for name in ("disturbed", "whole"))
    assert disturbed["status"] == whole["status"] == "finished"
    assert (disturbed["run"], disturbed["steps"]) == (whole["run"], 600)
    assert disturbed["train_loss"] == whole["train_loss"]
    assert disturbed["eval_loss"] == whole["eval_loss"]


def test_several_learning_rates_a_result_each_and_a_second_call_at_once(tmp_path: Path, capsys, monkeypatch):
    command = ["train", *SMALL, "--learning-rates", "1e-3", "1e-2", "1e30", "--out", str(tmp_path)]
    assert main([*command, "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [result["status"] for result in results] == ["finished", "finished", "diverged"]
    assert set(results[0]) == {
        "run",
        "status",
        "steps",
        "train_loss",
        "eval_loss",
        "tokens_per_second",
        "data",
        "device",
    }
    assert results[1]["eval_loss"] < results[0]["eval_loss"]
    assert results[2]["eval_loss"] is None
    assert results[2]["steps"] < 40
    events = list(tmp_path.glob("*/tensorboard/*/events*"))
    assert {path.parent.name for path in events} == {result["run"] for result in results}

    monkeypatch.setattr("widthwise.cli.runs.train", None)  # nothing is trained again
    assert main(command) == 0
    table = capsys.readouterr().out
    assert table.count("finished") == 2
    assert "diverged" in table
    assert str(tmp_path) in table


def test_a_run_split_over_devices_ends_as_one_that_is_not(tmp_path: Path, capsys):
    one = finished(capsys, folder=tmp_path / "one")
    eight = finished(capsys, "--fsdp", "8", "--remat", "block", folder=tmp_path / "eight")
    assert one["run"] == eight["run"]
    assert one["eval_loss"] == pytest.approx(eight["eval_loss"], rel=1e-4)


class Pair:
    """Two processes that train one run."""

    SHORT = ("--steps", "60", "--warmup", "1", "--chunk", "2", "--evaluate-every", "60")

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.before = folder, steps_on_disk(folder)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
        together = ["--out", str(folder), "--fsdp", "4", "--coordinator", address, "--processes", "2"]
        self.processes = [
            subprocess.Popen(
                [*COMMAND, "--json", *self.SHORT, *options, *together, "--process", str(i)],
                env={**os.environ, "XLA_FLAGS": flags},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for i in (0, 1)
        ]

    def send_once_saved(self, process: int, wish: signal.Signals) -> None:
        """Send a signal to one of them once there is a new checkpoint."""
        deadline = time.monotonic() + 60
        while not steps_on_disk(self.folder) - self.before:
            assert time.monotonic() < deadline
            assert [one.poll() for one in self.processes] == [None, None]
            time.sleep(0.02)
        self.processes[process].send_signal(wish)

    def ended(self) -> list[tuple[int, str, str]]:
        """Wait for both; return their exit codes and what they printed."""
        outputs = [process.communicate(timeout=60) for process in self.processes]
        return [(one.returncode, *output) for one, output in zip(self.processes, outputs, strict=True)]


@pytest.fixture(scope="module")
def undisturbed_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("pair")
    (code, printed, _), (other_code, other_printed, _) = Pair(folder, "--checkpoint-steps", "30").ended()
    assert (code, other_code) == (0, 0)
    assert other_printed == ""
    return folder, json.loads(printed)


def test_two_processes_train_one_run(undisturbed_pair, tmp_path: Path, capsys):
    folder, result = undisturbed_pair
    alone = finished(capsys, *Pair.SHORT, folder=tmp_path)
    assert result["run"] == alone["run"]
    assert result["eval_loss"] == pytest.approx(alone["eval_loss"], rel=1e-4)
    assert steps_on_disk(folder) == {30, 60}


def test_two_processes_stop_together_end_together_and_resume_to_the_same_numbers(undisturbed_pair, tmp_path: Path):
    stopped = Pair(tmp_path, "--checkpoint-steps", "2")
    stopped.send_once_saved(1, signal.SIGTERM)  # the other one hears of it
    for code, _, said in stopped.ended():
        assert code == 130
        assert said == "widthwise train: interrupted and saved: run the same command to resume\n"

    killed = Pair(tmp_path, "--checkpoint-steps", "2")
    killed.send_once_saved(1, signal.SIGKILL)
    began = time.monotonic()
    (code, _, said), _ = killed.ended()
    assert time.monotonic() - began < 60
    assert code not in (0, 2)
    assert said.count("\n") == 1
    assert said.startswith("widthwise train: process 0 of 2: ")
    assert said.endswith(": start all of them again to resume\n")

    resumed = Pair(tmp_path, "--checkpoint-steps", "30")
    (code, printed, _), _ = resumed.ended()
    assert code == 0
    ours, theirs = json.loads(printed.splitlines()[-1]), undisturbed_pair[1]
    assert (ours["train_loss"], ours["eval_loss"]) == (theirs["train_loss"], theirs["eval_loss"])


def test_a_full_disk_is_named_in_one_line_and_ends_with_1(tmp_path: Path, capfd, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # as writing raises it, without a name

    with monkeypatch.context() as patch:
        patch.setattr("widthwise.cli.train.write_result", fail)
        assert main(["train", *SMALL, "--out", str(tmp_path)]) == 1
    (folder,) = tmp_path.iterdir()
    assert capfd.readouterr().err == f"widthwise train: [Errno 28] No space left on device: '{folder}'\n"
    assert main(["train", *SMALL, "--out", str(tmp_path)]) == 0


def test_embedded_text_needs_no_download(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path / "cache"))
    assert main(["train", *tiny.options(), "--out", str(tmp_path), "--json"]) == 0
    (result,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert result["data"]["source"] == "stdlib"
    assert result["data"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert result["eval_loss"] < 5.6


def test_time_left_counts_what_was_done_since_the_first_steps_after_resuming():
    now = Progress(step=60, steps=100, losses=[1.0], eval_losses=[2.0], tokens_per_second=1000.0)
    said = "step 60/100  loss 1.0000  eval 2.0000  1,000 tokens/s"
    assert progress_line(now, seconds=20.0, steps=10) == f"{said}  1:20 left"
    assert progress_line(now, seconds=0.0, steps=0) == said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--width", "100"], "width is 100: expected a multiple of the head dimension 16"),
        (["--coordinator", "foo"], "coordinator is 'foo': expected host:port"),
        (["--coordinator", "foo:65536"], "coordinator is 'foo:65536': expected host:port"),
        (["--coordinator", "foo:bar"], "coordinator is 'foo:bar': expected host:port"),
        (["--warmup", "-1"], "warmup is -1: expected a finite number, 0 or more"),
        (["--seed", "2147483648"], "seed is 2147483648: expected 2147483647 or less"),
        (["--checkpoint-seconds", "-1"], "checkpoint_seconds is -1.0: expected 0 or more"),
        (["--data", "wiki"], "data is 'wiki': expected one of stdlib, synthetic, text, c4\n"),
        (["--data", "my/corpus.txt"], "c4; for your own text: --data text --paths my/corpus.txt\n"),
        (["--steps", "many"], "--steps"),
        (["--out", f"{__file__}/runs"], "test_train.py' is a file: expected a folder to write to"),
        (["--chunk", "0"], "chunk is 0"),
        (["--fsdp", "3"], "batch is 8: expected a multiple of fsdp, 3"),
        (["--fsdp", "0"], "fsdp is 0"),
        (["--coordinator", "x:1", "--process", "1"], "process is 1: expected 0 to 0"),
        (["--process", "1"], "expected --coordinator with them"),
        (["--processes", "2"], "expected --coordinator with them"),
        (["--data", "text", "--paths", "/nowhere"], "'/nowhere' gives no text"),
        (["--learning-rates", "1e-3", "-1"], "learning_rate is -1.0"),
    ],
)
def test_nonsense_is_refused_in_one_line_before_anything_is_compiled(capsys, options: list[str], named: str):
    assert main(["train", *SMALL, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert named in err


def test_results_that_cannot_be_read_are_refused_and_left_as_they_are(tmp_path: Path, capsys):
    command = ["train", *SMALL, "--out", str(tmp_path)]
    assert main(command) == 0
    (path,) = tmp_path.glob("*/results.json")
    path.write_text("{")
    capsys.readouterr()
    assert main(command) == 2
    assert "cannot be read: delete it to train again" in capsys.readouterr().err
    assert path.read_text() == "{"
    assert os.environ.get("COLUMNS") == "80"
