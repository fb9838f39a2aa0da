"""Sweeps in real processes: killed at any moment, stopped, or given twice, they end with the same rows."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sweeps.tiny import TINY, options, results
from widthwise.cli import main
from widthwise.study import Study
from widthwise.sweeps.driver import Driver
from widthwise.train import Progress

LONG = replace(TINY, steps=400)
SWEEP = ["--settings", "global", "full", "--grid", "0.0039", "0.0079"]
"""Three rates; at the base width both settings are one run: three runs under six names."""


def command(folder: Path, *more: str) -> list[str]:
    return ["sweep", "--study", str(folder), *options(LONG), *SWEEP, "--json", *more]


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "widthwise.cli", *command(folder, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def finished(folder: Path) -> int:
    """Count the runs that have ended, as another program would."""
    if not (folder / "study.sqlite").exists():
        return 0
    with closing(sqlite3.connect(folder / "study.sqlite")) as database:
        return database.execute("SELECT count(*) FROM runs WHERE status = 'finished'").fetchone()[0]


def checkpoints(folder: Path) -> set[Path]:
    return {path for path in folder.glob("checkpoints/*/last/*") if path.name.isdecimal()}


def kill_when(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, process.stderr
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert main(command(folder)) == 0
    return folder


def test_killed_twice_it_ends_with_the_rows_of_an_undisturbed_sweep(undisturbed, tmp_path, capsys):
    often = ["--checkpoint-seconds", "0"]
    kill_when(start(tmp_path, *often), lambda: len(checkpoints(tmp_path)) > 0)  # in the middle of the first run
    at_work = checkpoints(tmp_path)
    kill_when(start(tmp_path, *often), lambda: finished(tmp_path) >= 1 and bool(checkpoints(tmp_path) - at_work))
    assert 1 <= finished(tmp_path) < 3
    assert main(command(tmp_path)) == 0
    assert json.loads(capsys.readouterr().out)["runs"]["wanted"] == 3
    with Study.open(tmp_path) as study, Study.open(undisturbed) as whole:
        assert results(study) == results(whole)
        assert len(results(study)) == 6
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.mark.parametrize("wish", [signal.SIGTERM, signal.SIGINT], ids=["terminate", "interrupt"])
def test_asked_to_stop_it_saves_first_and_the_same_command_goes_on(undisturbed, tmp_path, capsys, monkeypatch, wish):
    steps: list[int] = []

    def ask_to_stop(driver: Driver, key: str, now: Progress) -> None:
        steps.append(now.step)
        if len(steps) == 3:
            os.kill(os.getpid(), wish)

    monkeypatch.setattr(Driver, "_hear", ask_to_stop)
    assert main(command(tmp_path)) == 130
    assert "interrupted and saved: run the same command to resume" in capsys.readouterr().err
    with Study.open(tmp_path) as study:
        assert study.counts() == {"waiting": 3, "running": 0, "finished": 0, "diverged": 0, "failed": 0}
    assert len(checkpoints(tmp_path)) == 1
    left = steps[-1]
    assert main(command(tmp_path)) == 0
    assert steps[steps.index(left) + 1] > left
    with Study.open(tmp_path) as study, Study.open(undisturbed) as whole:
        assert results(study) == results(whole)


@pytest.mark.parametrize(
    ("end", "more"),
    [("renamed", ()), ("replaced", ()), ("deleted", ()), ("renamed", ("--processes", "2"))],
    ids=["renamed", "replaced", "deleted", "processes"],
)
def test_a_study_that_is_gone_is_noticed_at_once(undisturbed, tmp_path, capsys, monkeypatch, end, more):
    study, elsewhere, heard = tmp_path / "study", tmp_path / "elsewhere", 0

    def lose(driver: Driver, key: str, now: Progress) -> None:
        nonlocal heard
        heard += 1
        if heard == 3:
            study.rename(elsewhere)
        if heard == 3 and end == "deleted":
            shutil.rmtree(elsewhere)
        if heard == 3 and end == "replaced":
            shutil.copytree(undisturbed, study)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_hear", lose)
        assert main(command(study, *more)) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"'{study / 'study.sqlite'}' is gone, renamed or deleted while it was in use" in said
    assert heard < 10
    if end == "replaced":
        shutil.rmtree(study)
    assert not study.exists()  # or it could not be put back
    if end != "deleted":
        elsewhere.rename(study)
        assert main(command(study)) == 0
        with Study.open(study) as found, Study.open(undisturbed) as whole:
            assert results(found) == results(whole)


def test_asked_to_stop_while_it_fits_it_stops_at_once(undisturbed, tmp_path, capsys, monkeypatch):
    def fit(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            pass
        pytest.fail("it waited for the fit")

    with monkeypatch.context() as patch:
        patch.setattr("widthwise.sweeps.carry_out._Group.take", fit)
        assert main(command(tmp_path)) == 130
    assert "interrupted and saved: run the same command to resume" in capsys.readouterr().err
    assert finished(tmp_path) == 3
    assert main(command(tmp_path)) == 0
    with Study.open(tmp_path) as study, Study.open(undisturbed) as whole:
        assert results(study) == results(whole)


def test_long_training_losses_are_thinned_and_keep_their_end(undisturbed):
    with Study.open(undisturbed) as study:
        run = study.runs()[0].run
        steps = study.curves([run])[run]["train_loss"].steps
    assert len(steps) <= 200
    assert (steps[0], steps[-1]) == (0, 399)


def test_a_second_identical_command_runs_nothing(undisturbed, capsys, monkeypatch):
    monkeypatch.setattr("widthwise.sweeps.driver.train_pack", None)
    began = time.monotonic()
    assert main(command(undisturbed)) == 0
    assert time.monotonic() - began < 5
    printed = json.loads(capsys.readouterr().out)
    assert printed["runs"] == {"wanted": 3, "trained": 0, "diverged": 0, "failed": 0}
    assert [fit["setting"] for fit in printed["fits"]] == ["global", "full"]
