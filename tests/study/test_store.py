"""What one driver can rely on: requests, leases, outcomes, notes."""

import inspect
import math
import sqlite3
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.study.requests import asked, ids, outcome
from tests.test_layers import imports
from widthwise.study import database, encoding, exchange, export, lines, records, store
from widthwise.study.records import Outcome, Request
from widthwise.study.store import Study


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.open(tmp_path / "study") as opened:
        yield opened


def test_settings_that_coincide_are_one_run_shown_under_each_name(study: Study):
    study.ask([asked(0, alignment="global"), asked(0, alignment="full"), asked(1, alignment="none")])
    assert study.counts() == {"waiting": 2, "running": 0, "finished": 0, "diverged": 0, "failed": 0}
    study.record([outcome(0)])
    assert [(row.spec["alignment"], row.run, row.status, row.results) for row in study.runs()] == [
        ("global", "run-00000", "finished", {"eval_loss": 0.0}),
        ("full", "run-00000", "finished", {"eval_loss": 0.0}),
        ("none", "run-00001", "waiting", {}),
    ]


def test_what_was_asked_for_under_some_labels_alone_can_be_left_out(study: Study):
    study.ask([asked(0), asked(1)], label="transfer/cpu/rates")
    study.ask([asked(1), asked(2)], label="a-sweep")
    study.ask([asked(3)])
    study.ask([asked(4)], label="transfer/cpus")
    assert [row.run for row in study.runs(beside=["transfer/cpu/"])] == ids(5)[1:]
    assert [row.run for row in study.runs(beside=["transfer/", "a-"])] == ids(5)[3:4]
    assert [row.run for row in study.runs(label="a-sweep", beside=["transfer/cpu/"])] == ids(5)[1:3]


def test_asking_again_changes_nothing(study: Study):
    study.ask([asked(0, width=64, rate=1.0), asked(1)])
    study.record([outcome(0)])
    before = study.runs()
    study.ask([asked(1), asked(0, rate=1, width=64)])
    assert study.runs() == before


def test_what_a_setting_comes_down_to_can_change(tmp_path: Path):
    said: list[str] = []
    with Study.open(tmp_path, say=said.append) as study:
        study.ask([asked(0, data="text"), asked(1, data="other")])
        study.record([outcome(0)])
        study.ask([asked(2, data="text")])
        assert [(row.spec["data"], row.run, row.status) for row in study.runs()] == [
            ("text", "run-00002", "waiting"),
            ("other", "run-00001", "waiting"),
        ]
        assert len(said) == 1
        assert said[0].startswith("1 of the settings asked for before now mean another run")
        study.ask([asked(0, data="text")])
        assert study.runs()[0].status == "finished"


def test_labels_pick_out_what_was_asked_for_under_them(study: Study):
    study.ask([asked(0), asked(1)], label="one")
    study.ask([asked(1), asked(2), asked(2, alias=True)], label="two")
    study.ask([asked(3)])
    study.record([outcome(2)])
    assert [row.run for row in study.runs(label="one")] == ids(2)
    assert [row.run for row in study.runs(label="two")] == ["run-00001", "run-00002", "run-00002"]
    assert len(study.runs()) == 5
    assert study.counts(label="two") == {"waiting": 1, "running": 0, "finished": 1, "diverged": 0, "failed": 0}
    assert study.runs(label="none") == []


def test_everything_recorded_comes_back_after_reopening(tmp_path: Path):
    with Study.open(tmp_path) as study:
        study.ask([asked(0), asked(1)])
        study.record(
            [
                outcome(
                    0,
                    status="diverged",
                    results={"eval_loss": math.nan, "edge": math.inf, "steps": 7},
                    curves={"train_loss": ([0, 7], [0.1, math.nan]), "rms.hidden": ([], [])},
                    provenance={"device": "cpu", "data": {"hash": "x"}},
                )
            ]
        )
    with Study.open(tmp_path, create=False) as study:
        row, other = study.runs()
        assert (row.status, row.results["edge"], row.results["steps"]) == ("diverged", math.inf, 7)
        assert math.isnan(row.results["eval_loss"])
        found = study.curves([row.run, other.run])
        assert found[row.run]["train_loss"].steps.tolist() == [0, 7]
        assert found[row.run]["train_loss"].values[0] == 0.1
        assert math.isnan(found[row.run]["train_loss"].values[1])
        assert found[row.run]["rms.hidden"].values.tolist() == []
        assert found[other.run] == {}
        assert study.details(row.run).identity == {"number": 0}
        assert study.details(row.run).provenance == {"device": "cpu", "data": {"hash": "x"}}
        assert study.details(other.run).provenance == {}


def test_damaged_curves_are_named(study: Study):
    study.ask([asked(0)])
    study.record([outcome(0)])
    with closing(sqlite3.connect(study.folder / "study.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE details SET curves = zeroblob(100)")
    with pytest.raises(ValueError, match=r"the curves of run 'run-00000' in .* are damaged"):
        study.curves(ids(1))


@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_the_first_outcome_stays(study: Study, status: str):
    study.ask([asked(0), asked(1)])
    assert study.record([outcome(0, status=status)]) == ids(1)
    assert study.record([outcome(0, results={"eval_loss": 9.0}, curves={}), outcome(1)]) == ["run-00001"]
    assert study.record([outcome(0, status="failed")]) == []
    assert (study.runs()[0].status, study.runs()[0].results) == (status, {"eval_loss": 0.0})
    assert len(study.curves(ids(1))["run-00000"]["train_loss"].steps) == 50


def test_a_finished_run_is_never_computed_again_but_a_failed_one_may_be(study: Study):
    study.ask([asked(number) for number in range(3)])
    study.record([outcome(0), outcome(1, status="diverged"), outcome(2, status="failed")])
    assert study.claim(ids(3), seconds=60) == ["run-00002"]
    assert study.statuses(ids(3)) == {"run-00000": "finished", "run-00001": "diverged", "run-00002": "running"}
    assert study.record([outcome(2)]) == ["run-00002"]
    assert study.statuses(["run-00002"]) == {"run-00002": "finished"}


def test_outcomes_are_recorded_all_or_none(study: Study):
    study.ask([asked(0)])
    with pytest.raises(ValueError, match=r"run 'run-00001' is not in .*: expected a run that was requested"):
        study.record([outcome(0), outcome(1)])
    with pytest.raises(ValueError, match="cannot be stored"):
        study.record([outcome(0), outcome(0, results={"eval_loss": object()})])
    assert study.counts()["waiting"] == 1
    assert study.record([outcome(0)]) == ids(1)


def test_two_drivers_share_runs(study: Study):
    study.ask([asked(number) for number in range(4)])
    with Study.open(study.folder) as other:
        assert study.claim(ids(2), seconds=60) == ids(2)
        assert other.claim(list(reversed(ids(4))), seconds=60) == ["run-00003", "run-00002"]
        assert study.claim(ids(4), seconds=60) == ids(2)
        assert set(other.statuses(ids(4)).values()) == {"running"}
        assert other.counts()["running"] == 4
        study.release(["run-00001"])
        assert other.statuses(["run-00001"]) == {"run-00001": "waiting"}
        assert other.claim(ids(4), seconds=60) == ["run-00001", "run-00002", "run-00003"]
    assert study.claim(ids(4), seconds=60) == ids(4)


def test_recording_ends_the_lease_and_counts_for_all(study: Study):
    study.ask([asked(0), asked(1)])
    with Study.open(study.folder) as other:
        study.claim(ids(2), seconds=60)
        study.record([outcome(0), outcome(1, status="failed")])
        assert study.renew(seconds=60) == []
        assert other.claim(ids(2), seconds=60) == ["run-00001"]


def test_an_expired_lease_can_be_taken_and_a_renewed_one_not(study: Study):
    study.ask([asked(0), asked(1)])
    with Study.open(study.folder) as other:
        study.claim(ids(2), seconds=-1)
        assert study.statuses(ids(1)) == {"run-00000": "waiting"}
        assert other.claim(ids(1), seconds=60) == ids(1)
        assert study.renew(seconds=60) == ["run-00001"]
        assert other.claim(ids(2), seconds=60) == ids(1)


def test_a_lease_lasts_as_long_as_it_says(study: Study):
    study.ask([asked(0)])
    with Study.open(study.folder) as other:
        study.claim(ids(1), seconds=0.3)
        assert other.claim(ids(1), seconds=60) == []
        time.sleep(0.3)
        assert other.claim(ids(1), seconds=60) == ids(1)


def test_who_lost_the_lease_disturbs_nobody(study: Study):
    study.ask([asked(0)])
    with Study.open(study.folder) as other:
        study.claim(ids(1), seconds=-1)
        other.claim(ids(1), seconds=60)
        study.record([outcome(0, status="failed")])
        assert study.statuses(ids(1)) == {"run-00000": "running"}
        study.release()
        assert study.claim(ids(1), seconds=60) == []
        assert study.record([outcome(0)]) == ids(1)
        assert other.statuses(ids(1)) == {"run-00000": "finished"}


def test_a_study_can_be_used_from_several_threads(study: Study):
    study.ask([asked(number) for number in range(40)])

    def work(number: int) -> list[str]:
        study.claim(ids(40)[number : number + 1], seconds=60)
        return study.record([outcome(number)])

    with ThreadPoolExecutor(8) as threads:
        assert [run for written in threads.map(work, range(40)) for run in written] == ids(40)
    assert study.counts()["finished"] == 40


def test_notes_are_kept_and_replaced(study: Study):
    assert study.get("constants") is None
    study.put("constants", {"hidden": 0.5})
    study.put("constants", {"hidden": math.inf})
    assert study.get("constants") == {"hidden": math.inf}
    assert study.get("other", 3) == 3


def test_a_run_has_a_folder_inside_the_study(study: Study):
    assert study.folder_for("3f-a_9") == study.folder / "checkpoints" / "3f-a_9"
    with pytest.raises(ValueError, match=r"'\.\./x' cannot be the name of a run"):
        study.folder_for("../x")


@pytest.mark.parametrize("method", ["statuses", "curves"])
def test_a_run_nobody_asked_for_is_named(study: Study, method: str):
    with pytest.raises(ValueError, match="run 'nobody' is not in"):
        getattr(study, method)(["nobody"])
    with pytest.raises(ValueError, match="run 'nobody' is not in"):
        study.claim(["nobody"], seconds=1)


def test_nonsense_is_refused(study: Study):
    with pytest.raises(ValueError, match="status of run 'x' is 'done': expected finished, diverged, failed"):
        Outcome(run="x", status="done")
    with pytest.raises(ValueError, match="'a/b' cannot be the name of a run"):
        study.ask([Request(id="a/b", request={}, identity={})])


@pytest.mark.parametrize(
    "module", [database, encoding, exchange, export, lines, records, store], ids=lambda module: module.__name__
)
def test_the_store_knows_plain_values_only(module):
    names = {name for name in imports(inspect.getsource(module)) if not name.startswith("widthwise.study.")}
    assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names, "numpy"}
