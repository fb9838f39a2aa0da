"""A sweep as a value: what it falls into, where its searches start, and which of its settings are one run."""

import time
from dataclasses import replace

import pytest

from tests.sweep.tiny import TINY
from widthwise.parameterize import Constants
from widthwise.sweep.packs import Wants
from widthwise.sweep.search import Grid, Search
from widthwise.sweep.sweep import Group, Sweep
from widthwise.train import Spec
from widthwise.train.spec import resolve


def test_everything_but_width_rate_and_seed_makes_a_group():
    sweep = Sweep(
        base=TINY,
        widths=(32, 16),
        parameterizations=("standard", "mup"),
        optimizers=("adam",),
        settings=("global", "full", "0,-1,-1"),
        epsilons=(1e-8, 1e-12),
        epsilons_per_parameter=(False, True),
        weight_decays=(0.0, 1e-4),
        horizons=("fixed", "compute_optimal"),
        seeds=(0, 1, 2),
    )
    assert len(sweep.groups()) == 2 * 3 * 2 * 2 * 2 * 2
    assert sweep.all_widths == (16, 32)
    assert [group.spec.setting for group in sweep.groups()[:17:8]] == ["global", "global", "full"]


def test_an_optimizer_without_epsilon_has_one_group_for_all_epsilons():
    sweep = Sweep(base=TINY, optimizers=("sgd", "adam"), epsilons=(1e-8, 1e-12), epsilons_per_parameter=(False, True))
    assert [group.spec.optimizer for group in sweep.groups()].count("sgd") == 1
    assert [group.spec.optimizer for group in sweep.groups()].count("adam") == 4


def test_constants_are_looked_up_by_name_for_each_optimizer_and_parameterization():
    seen = []

    def look_up(*names: str) -> Constants:
        seen.append(names)
        return Constants(embedding=2.0)

    sweep = Sweep(base=TINY, parameterizations=("standard", "mup"), constants=("default", "mine"))
    groups = sweep.groups(look_up)
    assert seen == [("mine", "adam", "standard"), ("mine", "adam", "mup")]
    assert [(group.constants, group.spec.embedding_constant) for group in groups] == [("default", 1), ("mine", 2)] * 2
    with pytest.raises(ValueError, match="expected a study to look it up in"):
        sweep.groups()


def test_constants_by_value_are_called_by_their_values():
    (group,) = Sweep(base=replace(TINY, hidden_constant=0.5)).groups()
    assert group.names == {"constants": "1,0.5,1", "horizon": "fixed"}


def test_a_compute_optimal_group_trains_longer_at_larger_widths():
    group = Group(spec=TINY, horizon="compute_optimal")
    runs = [group.at(width=width, learning_rate=0.1, seed=3, vocabulary=257) for width in (16, 32)]
    parameters = [12 * n * n + (257 + 16 + 3) * n for n in (16, 32)]
    assert [run.steps for run in runs] == [20 * count // (8 * 16) for count in parameters]
    assert [(run.learning_rate, run.seed) for run in runs] == [(0.1, 3)] * 2


@pytest.mark.parametrize(
    ("parameterization", "optimizer", "expected"),
    [("standard", "adam", -1), ("ntk", "adam", -0.5), ("mup", "adam", -1), ("mup", "sgd", 0), ("standard", "sgd", -1)],
)
def test_one_global_rate_is_expected_to_fall_with_the_layer_that_must_fall_most(parameterization, optimizer, expected):
    spec = replace(TINY, parameterization=parameterization, optimizer=optimizer)
    assert Group(spec=replace(spec, alignment="global")).expected_exponent == expected
    assert Group(spec=spec).expected_exponent == 0
    assert Group(spec=replace(spec, alignment="global", rates="0,0,0")).expected_exponent == 0


@pytest.mark.parametrize("search", [Search(refine=3), Grid(lowest=1e-3, highest=1.0)])
def test_json_gives_the_sweep_back(search):
    sweep = Sweep(base=TINY, widths=(16, 32), settings=("global", "0,-1,-1"), seeds=(1,), search=search)
    assert Sweep.from_json(sweep.to_json()) == sweep
    assert Sweep.from_json(sweep.to_json()).id == sweep.id
    assert sweep.id != replace(sweep, seeds=(2,)).id


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"width": [1]}, "'width' is not part of a sweep"),
        ({"search": {"lowset": 1}}, "'lowset' is not part of a search"),
        ({"grid": {"lowest": 1, "highest": 2}, "search": {}}, "both 'search' and 'grid'"),
        ({"base": {"lr": 1}}, "'lr' is not part of a run's specification"),
        ({"horizons": ["long"]}, "horizon is 'long'"),
        ({"seeds": [1, 1]}, "seeds are 1, 1: expected each once"),
        ({"widths": [128, 130]}, "width is 130: expected a multiple of the head dimension"),
        ({"optimizers": ["lion"]}, "optimizer is 'lion'"),
        ({"settings": ["half"]}, "alignment is 'half'"),
        ({"settings": ["0,1"]}, "rates are '0,1'"),
        ({"base": {"hidden_constant": 2.0}, "constants": ["paper"]}, "by name and by value"),
    ],
)
def test_what_a_sweep_cannot_be_is_refused(values, said):
    with pytest.raises(ValueError, match=said):
        Sweep.from_json(values)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"optimizer": "adam_ps", "alignment": "none"}, {"optimizer": "adam_ps", "alignment": "global"}, True),
        (
            {"optimizer": "sgd", "parameterization": "mup", "alignment": "full"},
            {"optimizer": "sgd", "parameterization": "mup", "alignment": "global"},
            True,
        ),
        ({"width": 16, "alignment": "full"}, {"width": 16, "alignment": "global"}, True),
        ({"alignment": "full"}, {"rates": "0,-1,-1"}, True),
        ({"alignment": "full"}, {"alignment": "global"}, False),
        ({"alignment": "full"}, {"alignment": "full", "seed": 1}, False),
    ],
    ids=["scaling-none", "mup-sgd-full", "base-width", "own", "full-global", "seeds"],
)
def test_settings_that_coincide_are_one_run(first, second, same):
    wants = Wants(TINY)
    wide = replace(TINY, width=64)
    assert (wants.want(replace(wide, **first)).id == wants.want(replace(wide, **second)).id) is same


def test_a_run_is_worked_out_fast_enough_for_tens_of_thousands():
    spec = Spec(width=256)
    resolve(spec, vocabulary=257, data={})
    began = time.process_time()
    for seed in range(200):
        assert len(resolve(replace(spec, seed=seed), vocabulary=257, data={}).id) == 16
    assert (time.process_time() - began) / 200 < 0.003


@pytest.mark.parametrize(
    ("optimizer", "moved"),
    [("adam", [1, 8, 1, 8]), ("sgd", [1, 64, 1, 64]), ("adafactor", [1, 1, 1, 1])],
)
def test_a_search_starts_where_the_theory_moves_the_rate(optimizer, moved):
    names = ("standard", "ntk", "mup", "mean_field")
    sweep = Sweep(base=Spec(base_width=64, optimizer=optimizer, learning_rate=0.5), parameterizations=names)
    assert [group.start(sweep.base) / 0.5 for group in sweep.groups()] == pytest.approx(moved)
