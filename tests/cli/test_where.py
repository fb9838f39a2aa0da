"""Where a sweep is computed, and what a person sees of it meanwhile."""

import threading

import jax
import pytest

from widthwise.cli.main import _start_device
from widthwise.cli.where import Where, describe_progress
from widthwise.sweeps.progress import SweepProgress
from widthwise.train import Spec
from widthwise.train.cost import CORE_FLOPS, GPU_FLOPS


@pytest.mark.parametrize(("where", "left"), [(Where(), []), (Where(processes=2), ["cpu"]), (Where(ray="x:1"), ["cpu"])])
def test_only_a_command_with_workers_leaves_the_accelerators_to_them_and_only_when_told(monkeypatch, where, left):
    platforms = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: platforms.append(value))
    where.with_dtype(Spec())
    assert platforms == []
    where.leave_accelerators_to_workers()
    assert platforms == left


@pytest.mark.parametrize(
    ("words", "early"),
    [
        (["sweep", "--widths", "64"], True),
        (["experiment", "transfer"], True),
        (["sweep", "--processes", "2"], False),
        (["tune", "--ray=auto"], False),
        (["sweep", "--help"], False),
        (["train", "--widths", "64"], False),
    ],
)
def test_the_device_is_initialized_during_imports_only_where_this_process_computes(monkeypatch, words, early):
    asked, before = [], {*threading.enumerate()}
    monkeypatch.setattr(jax, "devices", lambda: asked.append(threading.current_thread()))
    _start_device(words[0], words[1:])
    for thread in {*threading.enumerate()} - before:
        thread.join()
    assert len(asked) == early
    assert threading.main_thread() not in asked


@pytest.mark.parametrize(
    ("gpus", "given", "dtype"), [(1, "auto", "bfloat16"), (1, "float32", "float32"), (0, "auto", "auto")]
)
def test_the_precision_that_is_left_open_is_that_of_the_workers(gpus: float, given: str, dtype: str):
    assert Where(ray="auto", gpus_per_task=gpus).with_dtype(Spec(dtype=given)).dtype == dtype


@pytest.mark.parametrize(
    ("where", "workers", "assumed"),
    [
        (Where(), 1, 4 * CORE_FLOPS),
        (Where(processes=2), 2, 4 * CORE_FLOPS),  # which share the cores
        (Where(ray="x:1", cpus_per_task=3), 1, 3 * CORE_FLOPS),
        (Where(ray="x:1", gpus_per_task=0.5), 1, GPU_FLOPS / 2),
    ],
)
def test_where_nothing_was_measured_a_speed_is_assumed(monkeypatch, tmp_path, where, workers, assumed):
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path))
    monkeypatch.setattr("widthwise.cli.where.cores", lambda: 4)
    pace = where.pace(Spec())
    assert (pace.at_a_time, pace.assumed, list(pace.speeds)) == (workers, assumed, [])


def test_progress_tells_what_is_done_running_diverged_best_and_left():
    progress = SweepProgress(wanted=20, done=9, diverged=2, running=4, best=(2.5, "batch 64"), seconds_left=75)
    line = describe_progress(progress)
    for part in ("9 of 20 runs", "4 running", "2 diverged", "best 2.5000 at batch 64", "1:15 min left"):
        assert part in line
    assert "waiting for 3" in describe_progress(SweepProgress(wanted=3, elsewhere=3))
