"""Which constants a search gets, and how much it may use."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from widthwise.experiments import carry_out as module
from widthwise.experiments.carry_out import carry_out
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import TUNED, Choice
from widthwise.parameterize import Constants
from widthwise.study import Study
from widthwise.sweeps.budget import Budget
from widthwise.sweeps.constants import keep
from widthwise.sweeps.driver import Driver
from widthwise.sweeps.executors import Inline


def looked_up(study: Study, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Constants]:
    """Carry out a search that trains nothing; return what it looks constants up with."""
    found: list[Callable[..., Constants]] = []
    monkeypatch.setattr(module, "SweepData", lambda spec: None)
    monkeypatch.setattr(module, "run_sweeps", lambda jobs, _, budget: found.append(jobs[0].constants) or [[]])
    experiment = EXPERIMENTS["epsilon"]
    with Inline() as executor:
        carry_out("epsilon", "cpu", experiment.plan(experiment.sizes["cpu"])[-1:], Driver(study, executor))
    return found[0]


def put(study: Study, scale: Scale, embedding: float) -> None:
    name = Results(study, "epsilon", scale).label(TUNED)
    keep(study, name, "adam", "mup", Constants(embedding=embedding), {})


def test_a_search_gets_the_constants_of_its_own_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Study.open(tmp_path) as study:
        put(study, "cpu", 3.0)
        put(study, "smoke", 5.0)
        constants = looked_up(study, monkeypatch)
        assert constants("tuned", "adam", "mup") == constants("tuned", "adam_atan2", "mup") == Constants(embedding=3.0)
        assert constants("default", "adam", "mup") == Constants()
        assert constants("paper", "adam_ps", "mup").readout == 0.914
        with pytest.raises(ValueError, match="there are no constants"):
            constants("tuned", "adam", "ntk")


def test_what_a_budget_left_out_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Losses are made up. Both settings are one at the smaller width, which has nine rates."""
    computed: list[str] = []

    def compute(self, runs, *, until):
        computed.extend(run.id for run in runs)
        return {run.id: 3 + (math.log2(run.spec.learning_rate) + 4.5) ** 2 for run in runs}

    monkeypatch.setattr(Driver, "compute", compute)
    transfer = EXPERIMENTS["transfer"]
    stages = transfer.plan(transfer.sizes["smoke"], Choice(parameterizations=("mup",), settings=("global", "full")))
    with Study.open(tmp_path) as study, Inline() as executor:
        missing = carry_out("transfer", "smoke", stages, Driver(study, executor), budget=Budget(runs=20))
        assert study.get("experiment/transfer/smoke")["missing"] == missing
        assert len(set(computed)) == 18
        assert [line.partition(", fixed horizon, ")[2] for line in missing] == [
            "out of runs after 9 runs, exponent unknown"
        ]
        assert carry_out("transfer", "smoke", stages, Driver(study, executor), budget=Budget(runs=27)) == []
