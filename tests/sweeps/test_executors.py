"""One contract for all executors, and what only those with workers can promise.

Processes and a real Ray cluster on this machine are started once: starting takes longer than what the tests compute.
"""

import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.sweeps import work
from widthwise.sweeps.executors import Done, Executor, Failed, Inline, Processes, RayCluster, Work, contract


@pytest.fixture(scope="module")
def ray_session() -> Iterator[str]:
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns of forks, if other tests of this process used it
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            _system_config={"prestart_worker_first_driver": False},  # they would not have the packs' environment
        )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def processes(said: list[str]) -> Iterator[Executor]:
    with Processes(2, say=said.append) as executor:
        yield executor


@pytest.fixture(scope="module")
def ray_cluster(ray_session: str, said: list[str]) -> Iterator[Executor]:
    with RayCluster(say=said.append) as executor:
        yield executor


@pytest.fixture(params=["inline", "processes", "ray_cluster"])
def executor(request: pytest.FixtureRequest, said: list[str]) -> Executor:
    said.clear()
    return Inline() if request.param == "inline" else request.getfixturevalue(request.param)


@pytest.fixture(params=["processes", "ray_cluster"])
def workers(request: pytest.FixtureRequest, said: list[str]) -> Executor:
    said.clear()
    return request.getfixturevalue(request.param)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # which only waits for its parent to notice
    except psutil.NoSuchProcess:
        return False


def _gone(pids: list[int], seconds: float = 20.0) -> bool:
    """Return whether processes end soon."""
    end = time.monotonic() + seconds
    while any(map(_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(_alive, pids))


def test_every_pack_has_one_outcome(executor: Executor):
    for number in range(6):
        executor.submit(str(number), work.double, number)
    outcomes = sorted(executor.results(), key=lambda outcome: outcome.key)
    assert outcomes == [Done(key=str(number), result=2 * number) for number in range(6)]
    assert list(executor.results()) == []


def test_packs_can_be_submitted_while_others_are_computed(executor: Executor, tmp_path: Path):
    gate = tmp_path / "gate"
    if executor.capacity == 1:
        gate.touch()
    executor.submit("waits", work.wait_for, str(gate))
    executor.submit("1", work.double, 1)
    results: dict[str, Any] = {}
    for outcome in executor.results():
        assert isinstance(outcome, Done), outcome
        results[outcome.key] = outcome.result
        if outcome.key == "4":
            gate.touch()
        elif outcome.key != "waits":
            executor.submit(str(outcome.result), work.double, outcome.result)
    assert results == {"waits": None, "1": 2, "2": 4, "4": 8}


def test_an_exception_is_reported_in_one_line_and_stops_nothing(executor: Executor, tmp_path: Path, said: list[str]):
    marker = tmp_path / "marker"
    executor.submit("bad", work.fail, str(marker))
    executor.submit("good", work.double, 1)
    outcomes = {outcome.key: outcome for outcome in executor.results()}
    bad = outcomes["bad"]
    assert isinstance(bad, Failed)
    assert bad.error == "ValueError: width is -1: expected 1 or more"
    assert "work.py" in bad.traceback
    assert outcomes["good"] == Done(key="good", result=2)
    assert marker.read_text() == "tried\n"
    assert not said


def test_progress_arrives_in_order_and_before_the_outcome(executor: Executor):
    heard: dict[str, list[int]] = {"a": [], "b": []}
    for key in heard:
        executor.submit(key, work.count, 20)
    for outcome in executor.results(progress=lambda key, value: heard[key].append(value)):
        assert heard[outcome.key] == list(range(20))
    assert heard == {"a": list(range(20)), "b": list(range(20))}


def test_values_larger_than_a_pipe_arrive(executor: Executor):
    for number in range(3):
        executor.submit(str(number), work.large, 3_000_000)
        executor.submit(f"{number} back", work.echo, "x" * 3_000_000)
    assert [len(outcome.result) for outcome in executor.results() if isinstance(outcome, Done)] == [3_000_000] * 6


def test_a_wish_to_stop_ends_work_at_its_next_word_and_leaves_the_line_alone(executor: Executor):
    for number in range(executor.capacity):
        executor.submit(str(number), work.until_stopped, 30.0)
    executor.submit("in line", work.until_stopped, 0.1)
    heard: set[str] = set()
    outcomes = list(
        executor.results(progress=lambda key, _: heard.add(key), stop=lambda: len(heard) == executor.capacity)
    )
    assert [outcome.result for outcome in outcomes if isinstance(outcome, Done)] == ["stopped"] * executor.capacity
    assert "in line" not in heard
    assert list(executor.results()) == [Done(key="in line", result="never stopped")]


def test_a_pack_whose_worker_is_killed_is_computed_again_and_counted_once(
    workers: Executor, tmp_path: Path, said: list[str]
):
    heard: list[int] = []
    workers.submit("killed", work.die_at_first, str(tmp_path / "marker"))
    for number in range(3):
        workers.submit(str(number), work.double, number)
    outcomes = list(workers.results(progress=lambda _, value: heard.append(value)))
    assert sorted(outcome.key for outcome in outcomes) == ["0", "1", "2", "killed"]
    assert Done(key="killed", result=2) in outcomes
    assert heard == [1, 2]
    assert (tmp_path / "marker").read_text() == "tried\n" * 2
    assert len(said) == 1
    assert said[0].startswith("killed: its worker was ")


def test_a_pack_that_kills_its_workers_fails_in_the_end(
    workers: Executor, said: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(contract, "ATTEMPTS", 2)
    workers.submit("deadly", work.always_die, None)
    workers.submit("good", work.double, 1)
    outcomes = {outcome.key: outcome for outcome in workers.results()}
    deadly = outcomes["deadly"]
    assert isinstance(deadly, Failed)
    assert deadly.error.endswith("the last of 2 that tried")
    assert len(said) == 1
    assert outcomes["good"] == Done(key="good", result=2)


def test_a_result_that_cannot_be_pickled_is_a_failure_of_its_pack(workers: Executor, said: list[str]):
    workers.submit("lock", work.unpicklable, None)
    (outcome,) = workers.results()
    assert isinstance(outcome, Failed)
    assert outcome.error == "TypeError: cannot pickle '_thread.lock' object"
    assert not said


@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_an_interruption_passes_through_and_closing_ends_the_work(kind: str, request: pytest.FixtureRequest):
    pids: list[int] = []

    def interrupt(_: str, pid: int) -> None:
        pids.append(pid)
        if len(pids) == 2:
            raise KeyboardInterrupt

    if kind == "ray":
        request.getfixturevalue("ray_session")
    with RayCluster() if kind == "ray" else Processes(2) as executor:
        for number in range(3):
            executor.submit(str(number), work.sleep, 60.0)
        with pytest.raises(KeyboardInterrupt):
            list(executor.results(progress=interrupt))
    assert _gone(pids)


def test_processes_are_reused_and_leave_nothing_behind():
    def spawned() -> set[int]:
        command_lines = {child.pid: child.as_dict(["cmdline"])["cmdline"] for child in psutil.Process().children()}
        return {pid for pid, words in command_lines.items() if "spawn_main" in " ".join(words or [])}

    before = spawned()
    with Processes(2) as executor:
        for number in range(6):
            executor.submit(str(number), work.describe_worker, None)
        pids = {outcome.result["pid"] for outcome in executor.results() if isinstance(outcome, Done)}
        started = spawned() - before
        assert pids <= started
        assert len(started) == 2
    assert not any(map(psutil.pid_exists, started))


def test_processes_share_the_cores_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = dict(os.environ)
    with Processes(len(os.sched_getaffinity(0))) as executor:
        executor.submit("a", work.describe_worker, None)
        (outcome,) = executor.results()
    assert isinstance(outcome, Done)
    assert {**outcome.result, "pid": 0} == {"pid": 0, "JAX_PLATFORMS": "cpu", "NPROC": "1", "OMP_NUM_THREADS": "7"}
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("deadly", "how"),
    [
        (work.always_die, "its worker was killed by SIGKILL (out of memory, perhaps), the last of 1 that tried"),
        (work.leave, "its worker ended with exit code 3, the last of 1 that tried"),
    ],
    ids=["signal", "exit"],
)
def test_processes_say_what_ended_them(deadly: Work, how: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(contract, "ATTEMPTS", 1)
    with Processes(1) as executor:
        executor.submit("a", deadly, 3)
        assert list(executor.results()) == [Failed(key="a", error=how)]


def test_an_idle_process_that_died_is_replaced():
    with Processes(1) as executor:
        executor.submit("a", work.describe_worker, None)
        (outcome,) = executor.results()
        assert isinstance(outcome, Done)
        os.kill(outcome.result["pid"], signal.SIGKILL)
        assert _gone([outcome.result["pid"]])
        executor.submit("b", work.double, 1)
        assert list(executor.results()) == [Done(key="b", result=2)]


@contextmanager
def driver(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start a program with two workers under way, in a group of its own as a terminal has it."""
    script = tmp_path / "driver.py"
    script.write_text(
        "import signal\n"
        "from tests.sweeps import work\n"
        "from widthwise.sweeps.executors import Processes\n"
        "if __name__ == '__main__':\n"
        # A shell's background jobs, and what they start, ignore it unless told otherwise.
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    try:\n"
        "        with Processes(2) as executor:\n"
        "            for key in 'ab':\n"
        "                executor.submit(key, work.sleep, 60.0)\n"
        "            list(executor.results(progress=lambda _, pid: print(pid, flush=True)))\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        assert program.stdout is not None
        yield program, [int(program.stdout.readline()) for _ in range(2)]


def test_processes_end_when_their_driver_is_killed(tmp_path: Path):
    with driver(tmp_path) as (program, pids):
        program.kill()
        assert _gone(pids)


def test_ctrl_c_ends_processes_without_a_word_from_them(tmp_path: Path):
    with driver(tmp_path) as (program, pids):
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        time.sleep(0.5)
        assert all(map(_alive, pids))
        os.killpg(program.pid, signal.SIGINT)
        assert program.communicate(timeout=20) == ("interrupted\n", "")
        assert program.returncode == 0
        assert _gone(pids)


def test_a_number_of_processes_below_one_is_refused():
    with pytest.raises(ValueError, match="workers is 0: expected 1 or more"):
        Processes(0)


def test_ray_joined_by_its_address_finds_the_drivers_code_and_gives_packs_what_they_ask_for(
    ray_session: str, tmp_path: Path
):
    (tmp_path / "own_work.py").write_text(
        "from tests.sweeps.work import *\ndef own(_, tell): return describe_worker(_, tell)"
    )
    script = (
        "import sys; sys.path.append(sys.argv[2])\n"
        "import own_work; from widthwise.sweeps.executors import RayCluster\n"
        "with RayCluster(address=sys.argv[1], cpus=2) as executor:\n"
        "    executor.submit('a', own_work.own, None)\n"
        "    (outcome,) = executor.results()\n"
        "    print(executor.capacity, *list(outcome.result.values())[1:])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, ray_session, str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("1 cpu 2 2\n", "")


def test_what_no_machine_of_the_ray_cluster_has_is_refused(ray_session: str):
    with pytest.raises(ValueError, match=r"cpus is 1 and gpus is 0\.5: no machine of the Ray cluster has as many"):
        RayCluster(gpus=0.5)


def test_numbers_that_ray_cannot_give_are_refused():
    with pytest.raises(ValueError, match="cpus is 0: expected a number above 0"):
        RayCluster(cpus=0)
    with pytest.raises(ValueError, match="gpus is -1: expected 0 or more"):
        RayCluster(gpus=-1)


@pytest.mark.parametrize(
    ("address", "complaint"),
    [("nonsense", "expected auto, local or host:port"), ("127.0.0.1:1", "no Ray cluster there")],
)
def test_an_address_without_a_ray_cluster_is_refused(monkeypatch: pytest.MonkeyPatch, address: str, complaint: str):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ValueError, match=f"address is '{address}': {complaint}"):
        RayCluster(address=address)


def test_without_ray_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'widthwise\[ray\]'"):
        RayCluster()
