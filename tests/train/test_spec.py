"""A specification refuses nonsense, and its id is the hash of what it computes."""

import json
from dataclasses import replace

import jax
import pytest

from widthwise.train import Spec, resolve

BASE = Spec(data="synthetic", width=64, base_width=64)


def run_id(spec: Spec) -> str:
    return resolve(spec, vocabulary=32, data={"source": "synthetic"}).id


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"width": 100}, "width is 100: expected a multiple of the head dimension 32"),
        ({"width": 0}, "width is 0: expected 1 or more"),
        ({"warmup": -1}, "warmup is -1: expected a finite number, 0 or more"),
        ({"data": "wiki"}, "data is 'wiki': expected one of stdlib, synthetic, text, c4"),
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
        ({"parameterization": "mu"}, "parameterization is 'mu'"),
        ({"alignment": "some"}, "alignment is 'some': expected one of full, none, tensor_programs, global"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0: expected a finite number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf: expected a finite number above 0"),
        ({"weight_decay": float("nan")}, "weight_decay is nan: expected a finite number, 0 or more"),
        ({"decay_rule": "mup"}, "decay_rule is 'mup': expected one of independent, coupled, sqrt, inverse"),
        ({"weight_decay": float("inf")}, "weight_decay is inf"),
        ({"epsilon": float("inf")}, "epsilon is inf"),
        ({"hidden_constant": float("inf")}, "hidden_constant is inf"),
        ({"optimizer": "sgd", "epsilon": 1e-8}, "epsilon is 1e-08: sgd has no epsilon"),
        ({"data": "text"}, "no paths"),
        ({"paths": ("x",)}, "paths are given but data is 'synthetic'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
    ],
)
def test_nonsense_is_refused(changes: dict, named: str):
    with pytest.raises(ValueError, match=named):
        replace(BASE, **changes)


def test_it_survives_json_and_refuses_what_it_does_not_know():
    spec = Spec(data="text", paths=("a", "b"), epsilon=1e-6)
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    with pytest.raises(ValueError, match="'lr' is not part of a run's specification"):
        Spec.from_json({"lr": 1.0})


@pytest.mark.parametrize(
    "changes",
    [
        {"alignment": "global"},  # at the base width rates are the base ones whatever the alignment
        {"alignment": "none"},
        {"epsilon": 1e-9},
        {"epsilon_per_parameter": True},
        {"learning_rate": 3e-3 * 2, "embedding_constant": 0.5, "hidden_constant": 0.5, "readout_constant": 0.5},
        {"parameterization": "standard", "vocabulary": 32},
    ],
)
def test_settings_that_come_down_to_the_same_numbers_are_the_same_run(changes: dict):
    assert run_id(replace(BASE, **changes)) == run_id(BASE)


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 128},
        {"learning_rate": 1e-3},
        {"seed": 1},
        {"data_seed": 1},
        {"parameterization": "mup"},
        {"optimizer": "adam_atan2"},
        {"steps": 301},
        {"warmup": 31},
        {"batch": 33},
        {"epsilon": 1e-8},
        {"weight_decay": 1e-4},
        {"hidden_constant": 2.0},
        {"vocabulary": 40},
    ],
)
def test_what_computes_something_else_is_another_run(changes: dict):
    assert run_id(replace(BASE, **changes)) != run_id(BASE)


def test_away_from_the_base_width_the_alignment_matters():
    wide = replace(BASE, width=128)
    assert len({run_id(replace(wide, alignment=name)) for name in ("full", "none", "global")}) == 3


RULES = ("independent", "coupled", "sqrt", "inverse")
DECAYED = replace(BASE, width=128, weight_decay=1e-3)


def test_a_rule_of_decay_matters_away_from_the_base_width_and_with_a_decay():
    assert len({run_id(replace(DECAYED, decay_rule=rule)) for rule in RULES}) == 4
    assert len({run_id(replace(DECAYED, weight_decay=0.0, decay_rule=rule)) for rule in RULES}) == 1
    at_base = {rule: run_id(replace(DECAYED, width=64, decay_rule=rule)) for rule in RULES}
    assert at_base["independent"] == at_base["coupled"] == at_base["inverse"] != at_base["sqrt"]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_decay_does_not_follow_constants(rule: str):
    """They are the same at every width: at the base width, decay is the one that was asked for."""

    def removed(**changes: float) -> list[float]:
        run = resolve(replace(DECAYED, decay_rule=rule, **changes), vocabulary=32, data={})
        return jax.tree.leaves(run.lane.weight_decay)

    assert removed(hidden_constant=0.2, embedding_constant=3.0) == pytest.approx(removed())


def test_a_rule_of_decay_is_left_out_of_requests_if_it_is_the_usual_one():
    """Studies from before it was an option compare equal."""
    assert "decay_rule" not in DECAYED.to_json()
    changed = replace(DECAYED, decay_rule="sqrt")
    assert Spec.from_json(changed.to_json()) == changed


def test_rules_of_decay_share_one_program():
    """What a step removes is data of a lane, so runs under different rules train side by side."""
    runs = [resolve(replace(DECAYED, decay_rule=rule), vocabulary=32, data={}) for rule in RULES]
    assert len({run.program for run in runs}) == 1
    assert len({jax.tree.structure(run.lane) for run in runs}) == 1
    matrix = jax.tree.leaves(runs[0].lane.scales.learning_rate).index(0.5)
    growth = {"independent": 1, "coupled": 1 / 2, "sqrt": 2**-0.5, "inverse": 1 / 2}
    removed = [jax.tree.leaves(run.lane.weight_decay)[matrix] for run in runs]
    assert removed == pytest.approx([1e-3 * growth[rule] for rule in RULES])


def test_the_model_needs_room_for_the_tokenizers_vocabulary():
    with pytest.raises(ValueError, match="vocabulary is 16: the tokenizer has 32 tokens"):
        run_id(replace(BASE, vocabulary=16))
