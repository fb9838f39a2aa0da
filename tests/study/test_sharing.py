# pyright: reportOptionalMemberAccess=false
"""Several processes on one study, killed or not: nothing is lost, nothing is doubled."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.requests import asked, ids, outcome
from widthwise.study.database import Owner
from widthwise.study.store import Study

ROOT = Path(__file__).parents[2]

SHARE = """
granted, written = [], []
with Study.open(folder) as study:
    study.ask([asked(number) for number in range(45)], label="both")
    while left := [run for run, status in study.statuses(ids(45)).items() if status == "waiting"]:
        claimed = study.claim(left[:3], seconds=600)
        if claimed and not granted:
            print("working", flush=True)
            sys.stdin.readline()
        granted += claimed
        written += study.record([outcome(int(run[-5:]), provenance={"pid": os.getpid()}) for run in claimed])
print(json.dumps([granted, written]))
"""

RECORD = """
with Study.open(folder) as study:
    left = [int(row.run[-5:]) for row in study.runs() if row.status == "waiting"]
    while left:
        batch, left = left[:20], left[20:]
        study.record([outcome(number) for number in batch])
        print(batch[-1], flush=True)
        if len(left) % 200 == 0:
            sys.stdin.readline()
"""

HOLD = """
with Study.open(folder) as study:
    print(*study.claim(ids(2), seconds=3600), flush=True)
    for _ in range(6000):
        time.sleep(0.1)  # a signal that comes just before a read begins would not end it
"""


def start(script: str, folder: Path) -> subprocess.Popen[str]:
    header = (
        "import json, os, signal, sys, time\n"
        # A shell's background jobs, and what they start, ignore it unless told otherwise.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tests.study.requests import asked, ids, outcome\n"
        f"from widthwise.study.store import Study\nfolder = {str(folder)!r}\n"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", header + script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_two_processes_divide_the_work_between_them(tmp_path: Path, journal: str):
    if journal == "delete":  # otherwise both make it
        Study.open(tmp_path).close()
        made = sqlite3.connect(tmp_path / "study.sqlite")
        made.execute("PRAGMA journal_mode = DELETE")
        made.close()
    workers = [start(SHARE, tmp_path) for _ in range(2)]
    for worker in workers:
        assert worker.stdout.readline() == "working\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    granted, written = zip(*(json.loads(worker.communicate()[0]) for worker in workers), strict=True)
    assert all(granted)
    assert sorted(granted[0] + granted[1]) == ids(45)
    assert written == granted
    with Study.open(tmp_path) as study:
        assert sorted(row.run for row in study.runs(label="both")) == ids(45)
        assert study.counts()["finished"] == 45
        pids = [study.details(run).provenance["pid"] for run in granted[0]]
        assert set(pids) == {workers[0].pid}


def test_a_kill_while_recording_leaves_whole_rows_only(tmp_path: Path):
    delays, total, ended = random.Random(0), 800, []
    with Study.open(tmp_path) as study:
        study.ask([asked(number) for number in range(total)])
    for _ in range(3):
        with start(RECORD, tmp_path) as worker:
            first = worker.stdout.readline()
            time.sleep(delays.uniform(0.0, 0.02))  # it waits after ten batches, should this take longer
            worker.kill()
            said = int((first + worker.stdout.read()).split()[-1])
        with Study.open(tmp_path, create=False) as study:
            rows = study.runs()
            ended = [row for row in rows if row.status != "waiting"]
            assert len(rows) == total
            assert said < len(ended) < total
            assert len(ended) % 20 == 0
            curves = study.curves([row.run for row in ended])
            for number, row in enumerate(ended):
                assert (row.run, row.results) == (asked(number).id, outcome(number).results)
                assert curves[row.run]["train_loss"].values.tolist() == outcome(number).curves["train_loss"][1]
    checked = sqlite3.connect(tmp_path / "study.sqlite")
    assert checked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert checked.execute("SELECT count(*) FROM details WHERE curves IS NOT NULL").fetchall() == [(len(ended),)]
    checked.close()


def test_what_a_killed_process_held_can_be_taken_at_once(tmp_path: Path):
    with Study.open(tmp_path) as study:
        study.ask([asked(number) for number in range(3)])
        with start(HOLD, tmp_path) as holder:
            assert holder.stdout.readline().split() == ids(2)
            assert study.claim(ids(3), seconds=60) == ["run-00002"]
            holder.kill()
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table of processes
            assert study.statuses(ids(1)) == {"run-00000": "waiting"}
            assert study.claim(ids(3), seconds=60) == ids(3)


def test_an_owner_is_known_to_be_dead_only_where_its_process_would_be_seen():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    dead = Owner(pid=gone.pid)
    assert dead.known_dead
    assert not replace(dead, place="another host").known_dead
    assert not Owner().known_dead


def test_a_process_of_somebody_else_counts_as_alive(monkeypatch: pytest.MonkeyPatch):
    def kill(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert not Owner(pid=1).known_dead


def test_an_interrupted_driver_gives_its_leases_back(tmp_path: Path):
    with Study.open(tmp_path) as study:
        study.ask([asked(number) for number in range(2)])
        with start(HOLD, tmp_path) as holder:
            holder.stdout.readline()
            holder.send_signal(signal.SIGINT)
            holder.wait()
        with closing(sqlite3.connect(tmp_path / "study.sqlite")) as database:
            assert database.execute("SELECT count(*) FROM leases").fetchall() == [(0,)]
