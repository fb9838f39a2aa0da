"""A sweep and its settings as values: what they refuse, where searches start, and which settings are one run."""

import time
from dataclasses import replace

import pytest

from tests.sweeps.tiny import TINY
from widthwise.parameterize import Constants
from widthwise.search.lattice import AdaptiveSearch, Grid
from widthwise.study.setting import Setting
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.settings import apply, settings
from widthwise.sweeps.sweep import Sweep, expected_exponent
from widthwise.theory import Aligned, Global, read_rates
from widthwise.train import Spec
from widthwise.train.spec import resolve


def test_settings_are_all_combinations():
    found = settings(
        parameterization=("standard", "mup"),
        rates=(Global(), Aligned("full"), read_rates("0,-1,-1")),
        epsilon=(1e-8, 1e-12),
        epsilon_per_parameter=(False, True),
        weight_decay=(0.0, 1e-4),
        horizon=("fixed", "compute_optimal"),
        constants=(),
    )
    assert len(found) == len(set(found)) == 2 * 3 * 2 * 2 * 2 * 2
    assert [setting.rates.name for setting in found[:33:16]] == ["global", "full", "own"]


def test_an_optimizer_without_epsilon_has_one_setting_for_all_epsilons():
    found = settings(optimizer=("sgd", "adam"), epsilon=(1e-8, 1e-12), epsilon_per_parameter=(False, True))
    assert [setting.optimizer for setting in found].count("sgd") == 1
    assert [setting.optimizer for setting in found].count("adam") == 4


def test_without_decay_there_is_one_setting_for_all_rules_of_decay():
    found = settings(weight_decay=(0.0, 1e-4), decay_rule=("independent", "coupled", "sqrt"))
    assert [setting.decay_rule for setting in found if setting.weight_decay] == ["independent", "coupled", "sqrt"]
    assert [setting.decay_rule for setting in found if not setting.weight_decay] == ["independent"]


def test_a_rule_of_decay_is_part_of_a_sweep_only_if_it_is_not_the_usual_one():
    """Sweeps from before it was an option keep their identity."""
    plain, changed = Setting(weight_decay=1e-4), Setting(weight_decay=1e-4, decay_rule="inverse")
    assert "decay_rule" not in plain.to_json()
    assert changed.to_json()["decay_rule"] == "inverse"
    run = SweepData(TINY).run(apply(changed, TINY, Constants()))
    assert Setting.of(run.request) == changed


@pytest.mark.parametrize("rates", ["global", "none", "0,-1,-1/2"])
@pytest.mark.parametrize("horizon", ["fixed", "compute_optimal"])
def test_a_setting_survives_the_way_into_the_store_and_back(rates, horizon):
    setting = Setting(
        parameterization="mup",
        optimizer="adam_ps",
        rates=read_rates(rates),
        constants="mine",
        epsilon=1e-12,
        epsilon_per_parameter=True,
        weight_decay=1e-4,
        horizon=horizon,
    )
    spec = apply(setting, TINY, Constants(hidden=2.0))
    run = SweepData(TINY).run(spec, constants=setting.constants, horizon=setting.horizon)
    assert Setting.of(run.request) == setting
    assert Spec.from_json({name: value for name, value in run.request.items() if name in TINY.to_json()}) == spec


def test_constants_are_looked_up_by_name_for_each_optimizer_and_parameterization():
    asked = []

    def look_up(*names: str) -> Constants:
        asked.append(names)
        return Constants(embedding=2.0)

    names = settings(parameterization=("standard", "mup"), constants=("default", "mine"))
    found = Sweep(base=TINY, settings=names).constants(look_up)
    assert asked == [("mine", "adam", "standard"), ("mine", "adam", "mup")]
    assert [constants.embedding for constants in found.values()] == [1, 2, 1, 2]
    assert tuple(found) == names


def test_constants_by_value_are_called_by_their_values():
    sweep = Sweep(base=replace(TINY, hidden_constant=0.5))
    (setting,) = sweep.all_settings
    assert setting.constants == "1,0.5,1"
    assert sweep.constants(lambda *_: pytest.fail("looked up"))[setting] == Constants(hidden=0.5)


def test_a_compute_optimal_setting_trains_longer_at_larger_widths():
    setting = Setting(horizon="compute_optimal")
    sweep = Sweep(base=TINY, settings=(setting,), widths=(16, 32))
    how = {"learning_rate": 0.1, "seed": 3, "vocabulary": 257, "constants": Constants()}
    specs = [sweep.spec(setting, size=width, **how) for width in sweep.widths]
    parameters = [12 * n * n + (257 + 16 + 3) * n for n in (16, 32)]
    assert [spec.steps for spec in specs] == [20 * count // (8 * 16) for count in parameters]
    assert [(spec.learning_rate, spec.seed) for spec in specs] == [(0.1, 3)] * 2


@pytest.mark.parametrize(
    ("parameterization", "optimizer", "expected"),
    [("standard", "adam", -1), ("ntk", "adam", -0.5), ("mup", "adam", -1), ("mup", "sgd", 0), ("standard", "sgd", -1)],
)
def test_one_global_rate_is_expected_to_fall_with_the_layer_that_must_fall_most(parameterization, optimizer, expected):
    setting = Setting(parameterization=parameterization, optimizer=optimizer, rates=Global())
    assert expected_exponent(setting) == expected
    assert expected_exponent(replace(setting, rates=Aligned("full"))) == 0
    assert expected_exponent(replace(setting, rates=read_rates("0,0,0"))) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": (2,)},
        {"widths": (16,)},
        {"settings": (Setting(rates=Global()),)},
        {"search": Grid(lowest=1e-3, highest=1.0)},
        {"base": replace(TINY, steps=30)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_sweeps_that_ask_for_different_things_have_different_ids(changes):
    sweep = Sweep(base=TINY, widths=(16, 32), seeds=(1,), search=AdaptiveSearch(refine=3))
    assert replace(sweep, **changes).id != sweep.id
    assert replace(sweep, settings=sweep.all_settings).id == sweep.id


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seeds": (1, 1)}, "seeds are 1, 1: expected each once"),
        ({"widths": (128, 130)}, "width is 130: expected a multiple of the head dimension"),
        ({"base": Spec(hidden_constant=2.0), "settings": (Setting(constants="paper"),)}, "by name and by value"),
        ({"settings": (Setting(optimizer="sgd", epsilon=1e-8),)}, "sgd has no epsilon"),
    ],
)
def test_what_a_sweep_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Sweep(**{"base": Spec(), **values})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Setting(horizon="long"), "horizon is 'long'"),
        (lambda: Sweep(base=TINY, settings=(Setting(optimizer="lion"),)), "optimizer is 'lion'"),
        (lambda: Sweep(base=TINY, settings=(Setting(parameterization="mupp"),)), "parameterization is 'mupp'"),
        (lambda: read_rates("half"), "alignment is 'half': expected one of full, none, tensor_programs, global"),
        (lambda: read_rates("0,1"), "rates are '0,1'"),
        (lambda: settings(epsilon=(1e-8, 1e-8)), "epsilon is 1e-08, 1e-08: expected each once"),
        (lambda: settings(decay_rule=("copled",)), "decay_rule is 'copled': expected one of independent"),
    ],
)
def test_what_a_setting_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


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
    data = SweepData(TINY)
    wide = replace(TINY, width=64)
    assert (data.run(replace(wide, **first)).id == data.run(replace(wide, **second)).id) is same


def test_a_run_is_worked_out_fast_enough_for_tens_of_thousands():
    spec = Spec(width=256)
    resolve(spec, vocabulary=257, data={})
    began = time.process_time()
    for seed in range(200):
        assert len(resolve(replace(spec, seed=seed), vocabulary=257, data={}).id) == 16
    assert (time.process_time() - began) / 200 < 0.003


@pytest.mark.parametrize(
    ("optimizer", "moved"),
    [("adam", [1, 8, 1, 8]), ("sgd", [1, 64, 1, 64]), ("adafactor", [1, 1, 1, 1]), ("muon", [1, 8, 1, 8])],
)
def test_a_search_starts_where_the_theory_moves_the_rate(optimizer, moved):
    names = ("standard", "ntk", "mup", "mean_field")
    sweep = Sweep(
        base=Spec(base_width=64, optimizer=optimizer, learning_rate=0.5),
        settings=settings(parameterization=names, optimizer=(optimizer,)),
    )
    assert [sweep.start(setting) / 0.5 for setting in sweep.settings] == pytest.approx(moved)
