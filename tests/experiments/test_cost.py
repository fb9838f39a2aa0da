"""What an experiment takes is counted right, before anything is opened."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from widthwise.experiments.cost import count_stages, hindrances
from widthwise.experiments.results import Results
from widthwise.experiments.stages import ProbeStage, SweepStage, TuneStage
from widthwise.models import Transformer, compute_optimal_steps, count_parameters
from widthwise.parameterize import Constants
from widthwise.search.lattice import Grid
from widthwise.study import Outcome, Request, Setting, Study
from widthwise.sweeps.constants import keep
from widthwise.sweeps.forecast import totals
from widthwise.sweeps.settings import settings
from widthwise.sweeps.sweep import Sweep
from widthwise.sweeps.tuning import Tuning
from widthwise.theory import Aligned, Global
from widthwise.train import Spec
from widthwise.train.cost import GPU_FLOPS, flops_per_step

BASE = Spec(width=16, base_width=16, blocks=1, head_dim=8, context=16, batch=8, steps=20, vocabulary=64)
SWEEP = Sweep(
    base=BASE,
    widths=(16, 32),
    settings=settings(rates=(Global(), Aligned("full"), Aligned("none"))),
    seeds=(0, 1),
    search=Grid(lowest=2**-8, highest=2**-7),
)
SEARCH = SweepStage(SWEEP)


def test_searches_that_come_down_to_the_same_runs_are_counted_once():
    counts = count_stages([SEARCH], vocabulary=64)
    assert [count.spec.width for count in counts].count(16) == 1  # the base width, where all settings are one
    assert [count.spec.width for count in counts].count(32) == 3
    assert {(count.fewest, count.most) for count in counts} == {(6, 6)}  # three rates with two seeds


def test_tokens_and_flops_are_those_of_all_runs():
    counts = count_stages([SEARCH], vocabulary=64)
    fewest, most = totals(counts)
    assert str(fewest) == str(most)  # without a speed, times are NaN
    assert fewest.tokens == 24 * 20 * 8 * 16
    small, large = (
        20 * flops_per_step(Transformer(width=n, blocks=1, head_dim=8, context=16, vocabulary=64), 8) for n in (16, 32)
    )
    assert fewest.flops == pytest.approx(6 * small + 18 * large)
    assert fewest.gpu_days * 86400 * GPU_FLOPS == pytest.approx(6 * small + 18 * large)


def test_tuning_may_have_to_move_its_ranges_and_a_probe_searches_first_and_trains_each_width_once_more():
    tune = TuneStage(BASE, Tuning(trials=10, extensions=2))
    (tuning, *others) = count_stages([tune, ProbeStage(SEARCH)], vocabulary=64)
    assert (tuning.fewest, tuning.most) == (10, 30)
    assert [(count.part, count.fewest, count.most) for count in others] == [("rates", 6, 6)] * 4 + [
        ("alignment", 1, 1)
    ] * 4
    assert count_stages([tune, SEARCH, ProbeStage(SEARCH)], vocabulary=64) == [tuning, *others]


def test_trials_that_have_ended_are_not_counted_and_none_are_once_the_constants_are_kept(tmp_path: Path):
    tuning = Tuning(trials=10, extensions=2)
    spec, stages = replace(BASE, learning_rate=0.01), [TuneStage(replace(BASE, learning_rate=0.01), tuning)]
    with Study.open(tmp_path) as study:
        for number in range(4):
            tried = replace(spec, hidden_constant=1.0 + number).to_json()
            request = {**tried, "constants": "tuning", "horizon": "fixed"}
            study.ask([Request(id=f"run{number}", request=request, identity={})])
            study.record([Outcome(run=f"run{number}", status="finished", results={"eval_loss": 2.0})])
        results = Results(study, "constants", "cpu")
        (count,) = count_stages(stages, vocabulary=64, results=results)
        assert (count.fewest, count.most, count.known) == (6, 26, 4)
        about = {"spec": spec.to_json(), "tuning": asdict(tuning)}
        keep(study, results.label("tuned"), spec.optimizer, spec.parameterization, Constants(), about)
        (count,) = count_stages(stages, vocabulary=64, results=results)
        assert (count.fewest, count.most, count.known) == (0, 0, 4)
        (longer,) = count_stages([TuneStage(replace(spec, steps=30), tuning)], vocabulary=64, results=results)
        assert (longer.fewest, longer.most, longer.known) == (10, 30, 0)


def test_a_compute_optimal_horizon_counts_its_own_steps():
    sweep = Sweep(base=BASE, settings=(Setting(horizon="compute_optimal"),), search=SWEEP.search)
    (count,) = count_stages([SweepStage(sweep)], vocabulary=64)
    assert count.spec.steps == compute_optimal_steps(count.spec.transformer(64), batch=8) != BASE.steps


def test_what_stands_in_the_way_is_named():
    counts = count_stages([SEARCH], vocabulary=64)
    state = 16 * count_parameters(counts[-1].spec.transformer(64)).total
    assert hindrances(counts, accelerator=True, memory=state) == []
    (said,) = hindrances(counts, accelerator=True, memory=state - 1)
    assert "width 32" in said
    assert hindrances(counts, accelerator=False, memory=None) == ["there is no GPU"]
