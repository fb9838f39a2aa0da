"""Speeds are kept by device, workers, precision and size, and a file that is damaged does no harm."""

from dataclasses import replace

import pytest

from tests.sweeps.tiny import TINY
from widthwise.study import Outcome
from widthwise.sweeps.packs import Pack
from widthwise.sweeps.speeds import Speed, Speedometer, kept_speeds

SPEC = replace(TINY, dtype="float32", steps=100)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pack(*, flops: float = 1e9, runs: int = 1, probe: bool = False) -> Pack:
    return Pack(
        specs=(SPEC,) * runs, ids=tuple(f"run{number}" for number in range(runs)), flops_each=flops, probe=probe
    )


def outcomes(status="finished", **provenance) -> list[Outcome]:
    return [Outcome(run="run0", status=status, provenance={"device": "cpu", **provenance})]


def measure(*noted: tuple[Pack, list[Outcome]], at_a_time: int = 1) -> None:
    speedometer = Speedometer(at_a_time=at_a_time)
    for one in noted:
        speedometer.note(*one)


def test_the_mean_speed_and_the_longest_compilation_of_each_size_are_kept():
    measure(
        (pack(), outcomes(step_seconds=0.01, compile_seconds=3.0)),
        (pack(), outcomes(step_seconds=0.03, compile_seconds=0.1)),
        (pack(flops=1e10, runs=4), outcomes(step_seconds=0.1, compile_seconds=5.0)),
    )
    assert kept_speeds("cpu", "float32", at_a_time=1) == [
        Speed(flops_per_step=1e7, flops_per_second=5e8, compile_seconds=3.0),
        Speed(flops_per_step=1e8, flops_per_second=4e9, compile_seconds=5.0),
    ]


def test_speeds_elsewhere_are_others():
    measure((pack(), outcomes(step_seconds=0.01, compile_seconds=3.0)), at_a_time=2)
    assert len(kept_speeds("cpu", "float32", at_a_time=2)) == 1
    assert kept_speeds("cpu", "float32", at_a_time=1) == []
    assert kept_speeds("cpu", "bfloat16", at_a_time=2) == []
    assert kept_speeds("NVIDIA H200", "float32", at_a_time=2) == []


def test_a_later_command_replaces_the_sizes_that_it_measured():
    measure((pack(), outcomes(step_seconds=0.01, compile_seconds=3.0)))
    measure((pack(flops=1e8), outcomes(step_seconds=0.01, compile_seconds=1.0)))
    measure((pack(), outcomes(step_seconds=0.02, compile_seconds=2.0)))
    assert kept_speeds("cpu", "float32", at_a_time=1) == [
        Speed(flops_per_step=1e6, flops_per_second=1e8, compile_seconds=1.0),
        Speed(flops_per_step=1e7, flops_per_second=5e8, compile_seconds=2.0),
    ]


@pytest.mark.parametrize(
    ("noted", "ended"),
    [
        (pack(), outcomes()),  # a single chunk
        (pack(), outcomes("diverged", step_seconds=0.01, compile_seconds=3.0)),
        (pack(probe=True), outcomes(step_seconds=0.01, compile_seconds=3.0)),
    ],
)
def test_packs_that_tell_nothing_are_left_out(cache, noted, ended):
    measure((noted, ended))
    assert not cache.exists()


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "[1]",
        '{"a": 1}',
        '{"a": [{"size": 1}]}',
        '{"a": [{"flops_per_step": "x", "flops_per_second": 1, "compile_seconds": 1}]}',
        '{"a": [{"flops_per_step": 1, "flops_per_second": 0, "compile_seconds": 1}]}',
    ],
)
def test_a_damaged_file_is_ignored_and_replaced(cache, damaged):
    cache.mkdir()
    (cache / "speeds.json").write_text(damaged)
    assert kept_speeds("cpu", "float32", at_a_time=1) == []
    measure((pack(), outcomes(step_seconds=0.01, compile_seconds=3.0)))
    assert len(kept_speeds("cpu", "float32", at_a_time=1)) == 1
    assert [path.name for path in cache.iterdir()] == ["speeds.json"]


def test_a_folder_that_cannot_be_written_does_no_harm(cache):
    cache.write_text("a file")
    measure((pack(), outcomes(step_seconds=0.01, compile_seconds=3.0)))
    assert cache.read_text() == "a file"
