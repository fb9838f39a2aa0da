"""Narrowing a plan to what was chosen."""

from dataclasses import replace

import pytest

from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.stages import Choice, Probe, Search, Tune, narrow


def plan(name: str):
    return EXPERIMENTS[name].plan(EXPERIMENTS[name].sizes["cpu"])


def test_nothing_chosen_leaves_everything():
    assert narrow(plan("per-layer"), Choice()) == plan("per-layer")


def test_names_are_kept_in_every_kind_of_stage():
    choice = Choice(parameterizations=("mup",), optimizers=("adam",))
    stages = narrow(plan("per-layer"), choice)
    tunes = [stage for stage in stages if isinstance(stage, Tune)]
    searches = [stage for stage in stages if isinstance(stage, Search)]
    assert [(stage.spec.optimizer, stage.spec.parameterization) for stage in tunes] == [("adam", "mup")]
    assert len(searches) == 2
    assert all(stage.sweep.parameterizations == ("mup",) for stage in searches)
    assert all(stage.sweep.optimizers == ("adam",) for stage in searches)


def test_a_stage_without_what_was_chosen_is_left_out():
    stages = narrow(plan("adafactor"), Choice(settings=("global",)))
    searches = [stage for stage in stages if isinstance(stage, Search)]
    assert {stage.sweep.settings for stage in searches} == {("global",)}
    assert len([stage for stage in stages if isinstance(stage, Tune)]) == 8


def test_probes_are_narrowed_with_the_search_they_follow():
    (stage,) = narrow(plan("alignment"), Choice(optimizers=("sgd",), widths=(64, 32), seeds=(3, 4)))
    assert isinstance(stage, Probe)
    sweep = stage.of.sweep
    assert (sweep.optimizers, sweep.widths, sweep.seeds, sweep.base.width) == (("sgd",), (32, 64), (3, 4), 32)


def test_fields_of_the_specification_are_replaced_everywhere():
    for stage in narrow(plan("constants"), Choice(), prepare=lambda spec: replace(spec, data="synthetic", steps=7)):
        spec = stage.spec if isinstance(stage, Tune) else stage.sweep.base
        assert (spec.data, spec.steps) == ("synthetic", 7)


def test_constants_are_tuned_at_the_base_width_whatever_widths_are_chosen():
    stages = narrow(plan("per-layer"), Choice(widths=(64,)))
    assert {stage.spec.width for stage in stages if isinstance(stage, Tune)} == {32}
    assert {stage.sweep.widths for stage in stages if isinstance(stage, Search)} == {(64,)}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(parameterizations=("umup",)), r"parameterization 'umup' is not part of .* expected mean_field, mup"),
        (Choice(optimizers=("adam", "lion")), r"optimizer 'lion' is not part of .* expected adam, adam_ps, sgd"),
        (Choice(settings=("tensor_programs",)), r"setting 'tensor_programs' .* expected full, global, none"),
    ],
)
def test_what_an_experiment_does_not_have_is_refused(choice: Choice, message: str):
    with pytest.raises(ValueError, match=message):
        narrow(plan("per-layer"), choice)
