"""What an experiment takes is counted right, before anything is opened."""

import pytest

from widthwise.experiments.cost import device_days, hindrances, work_of
from widthwise.experiments.stages import Probe, Search, Tune
from widthwise.models import Transformer, compute_optimal_steps, count_parameters
from widthwise.sweep.search import Grid
from widthwise.sweep.sweep import Sweep
from widthwise.sweep.tuning import Tuning
from widthwise.train import Spec
from widthwise.train.cost import GPU_FLOPS, flops_per_step

BASE = Spec(width=16, base_width=16, blocks=1, head_dim=8, context=16, batch=8, steps=20, vocabulary=64)
SWEEP = Sweep(
    base=BASE,
    widths=(16, 32),
    settings=("global", "full", "none"),
    seeds=(0, 1),
    search=Grid(lowest=2**-8, highest=2**-7),
)
SEARCH = Search(part="rates", sweep=SWEEP)


def test_searches_that_come_down_to_the_same_runs_are_counted_once():
    works = work_of([SEARCH], vocabulary=64)
    assert [work.spec.width for work in works].count(16) == 1  # the base width, where all settings are one
    assert [work.spec.width for work in works].count(32) == 3
    assert {(work.fewest, work.most) for work in works} == {(6, 6)}  # three rates with two seeds


def test_tokens_and_flops_are_those_of_all_runs():
    works = work_of([SEARCH], vocabulary=64)
    assert sum(work.fewest * work.tokens for work in works) == 24 * 20 * 8 * 16
    small, large = (
        20 * flops_per_step(Transformer(width=n, blocks=1, head_dim=8, context=16, vocabulary=64), 8) for n in (16, 32)
    )
    assert sum(work.fewest * work.flops for work in works) == pytest.approx(6 * small + 18 * large)
    days = device_days(works)[0]
    assert days * 86400 * GPU_FLOPS == pytest.approx(6 * small + 18 * large)


def test_tuning_may_have_to_move_its_ranges_and_a_probe_searches_first_and_trains_each_width_once_more():
    tune = Tune(spec=BASE, tuning=Tuning(trials=10, extensions=2))
    (tuning, *others) = work_of([tune, Probe(part="alignment", of=SEARCH)], vocabulary=64)
    assert (tuning.fewest, tuning.most) == (10, 30)
    assert [(work.part, work.fewest, work.most) for work in others] == [("rates", 6, 6)] * 4 + [("alignment", 1, 1)] * 4
    assert work_of([tune, SEARCH, Probe(part="alignment", of=SEARCH)], vocabulary=64) == [tuning, *others]


def test_a_compute_optimal_horizon_counts_its_own_steps():
    sweep = Sweep(base=BASE, horizons=("compute_optimal",), search=SWEEP.search)
    (work,) = work_of([Search(part="rates", sweep=sweep)], vocabulary=64)
    assert work.spec.steps == compute_optimal_steps(work.model, batch=8) != BASE.steps


def test_what_stands_in_the_way_is_named():
    works = work_of([SEARCH], vocabulary=64)
    state = 16 * count_parameters(works[-1].model).total
    assert hindrances(works, accelerator=True, memory=state) == []
    (said,) = hindrances(works, accelerator=True, memory=state - 1)
    assert "width 32" in said
    assert hindrances(works, accelerator=False, memory=None) == ["there is no GPU"]
