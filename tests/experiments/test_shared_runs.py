"""Settings whose rules only multiply the learning rate have the same runs."""

from dataclasses import replace

import pytest

from tests.experiments.studies import Truth, find, read
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.shared_runs import rows_of, to_train
from widthwise.study import Setting, Study
from widthwise.study.records import Row
from widthwise.train import Spec, resolve

PLAIN = Setting(parameterization="mup")
SPEC = Spec(width=16, base_width=16, head_dim=8, context=16, blocks=1, batch=32, base_batch=8, base_tokens=10**5)


def row(**changes) -> Row:
    request = {**replace(SPEC, parameterization="mup", **changes).to_json(), "constants": "default", "horizon": "fixed"}
    return Row(spec=request, run="1", status="finished", results={"eval_loss": 2.0})


def run_id(request: dict) -> str:
    names = {"constants", "horizon"}
    return resolve(
        Spec.from_json({name: value for name, value in request.items() if name not in names}), vocabulary=256, data={}
    ).id


@pytest.mark.parametrize(
    ("name", "trained"),
    [("batch", ["constant", "sde", "sde2"]), ("tokens", ["constant"]), ("depth", ["constant"] * 3)],
)
def test_one_of_the_rules_that_only_change_the_rate_is_trained(name: str, trained: list[str]):
    assert [setting.batch_rule for setting in EXPERIMENTS[name].settings("gpu")] == trained


def test_with_weight_decay_every_rule_is_trained():
    settings = [replace(PLAIN, weight_decay=0.1), replace(PLAIN, weight_decay=0.1, batch_rule="sqrt")]
    assert to_train(settings) == settings


def test_a_run_of_another_rule_is_the_run_that_the_setting_would_ask_for():
    given = row(learning_rate=2**-6)
    (found,) = rows_of(replace(PLAIN, batch_rule="sqrt"), [given])
    assert (found.spec["learning_rate"], found.spec["batch_rule"]) == (2**-7, "sqrt")
    assert run_id(found.spec) == run_id(given.spec)
    assert rows_of(PLAIN, [found]) == [given]
    (both,) = rows_of(replace(PLAIN, batch_rule="sqrt", token_rule="horizon"), [given])
    assert both.spec["learning_rate"] == pytest.approx(2**-7 * (SPEC.tokens / 1e5) ** 0.32)


@pytest.mark.parametrize("rule", ["sde", "sde2"])
def test_a_rule_that_changes_more_than_the_rate_has_runs_of_its_own(rule: str):
    assert rows_of(PLAIN, [row(batch_rule=rule)]) == []
    assert rows_of(replace(PLAIN, batch_rule=rule), [row()]) == []


def test_a_rule_that_was_not_trained_is_read_from_one_that_was(study: Study):
    def answers(setting, tokens):
        return Truth(octaves=-6, loss=2.0)

    reading = read(study, "tokens", answers)
    exponents = [find(reading, "rate stays", what).measured for what in ("nothing", "horizon", "scion")]
    assert [text[:14] for text in exponents] == ["exponent 0.00 ", "exponent 0.32 ", "exponent 0.56 "]
