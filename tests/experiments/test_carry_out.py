"""Which constants a search gets, and how much it may use."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from widthwise.experiments import carry_out as module
from widthwise.experiments.carry_out import carry_out
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import TUNED, Choice
from widthwise.parameterize import Constants
from widthwise.report.findings import Judgement
from widthwise.study import Outcome, Study
from widthwise.sweeps.budget import Budget
from widthwise.sweeps.constants import keep
from widthwise.sweeps.driver import Driver
from widthwise.sweeps.executors import Inline


def looked_up(study: Study, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Constants]:
    """Carry out a search that trains nothing; return what it looks constants up with."""
    found: list[Callable[..., Constants]] = []
    monkeypatch.setattr(module, "SweepData", lambda spec: None)
    monkeypatch.setattr(module, "run_sweeps", lambda jobs, _, account: found.append(jobs[0].constants) or [[]])
    experiment = EXPERIMENTS["epsilon"]
    with Inline() as executor:
        carry_out(experiment, "cpu", experiment.plan(experiment.sizes["cpu"])[-1:], Driver(study, executor))
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
        missing = carry_out(transfer, "smoke", stages, Driver(study, executor), budget=Budget(runs=20))
        assert study.get("experiment/transfer/smoke")["missing"] == missing
        assert len(set(computed)) == 18
        assert [line.partition(", fixed horizon, ")[2] for line in missing] == [
            "out of runs after 9 runs, exponent unknown"
        ]
        assert carry_out(transfer, "smoke", stages, Driver(study, executor), budget=Budget(runs=27)) == []


def test_seeds_follow_where_a_claim_about_losses_is_unclear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Decay helps clearly in muP and by a little in standard, where one seed cannot tell."""
    seeds: dict[tuple[str, float], set[int]] = {}

    def compute(self, runs, *, until):
        requested = list(runs)
        self.study.record([Outcome(run=run.id, status="finished", results=results(run)) for run in requested])
        return {run.id: results(run)["eval_loss"] for run in requested}

    def results(run) -> dict[str, float]:
        spec = run.spec
        seeds.setdefault((spec.parameterization, spec.weight_decay), set()).add(spec.seed)
        gain = {"mup": 0.1, "standard": 0.004}[spec.parameterization] * (spec.weight_decay > 0)
        noise = Random(f"{spec.width} {spec.learning_rate} {spec.seed} {spec.weight_decay}").gauss(0, 0.004)
        octaves = math.log2(spec.learning_rate) + 7
        return {"eval_loss": 2 * math.exp(0.05 * octaves**2 - gain + noise), "parameters": spec.width}

    monkeypatch.setattr(Driver, "compute", compute)
    decay = EXPERIMENTS["weight-decay"]
    size = replace(decay.sizes["cpu"], loss_seeds=(4, 16))
    monkeypatch.setitem(decay.sizes, "cpu", size)  # pyright: ignore
    stages = decay.plan(size, Choice(parameterizations=("mup", "standard"), widths=(32, 64)))
    with Study.open(tmp_path) as study, Inline() as executor:
        assert carry_out(decay, "cpu", stages, Driver(study, executor)) == []
        findings = decay.read(Results(study, "weight-decay", "cpu")).findings
    assert Judgement.UNCLEAR not in {one.verdict for one in findings if one.losses_of}
    assert {len(each) for (name, _), each in seeds.items() if name == "mup"} == {1}
    assert min(len(seeds["standard", decay]) for decay in (0.0, 1e-4)) > 2
