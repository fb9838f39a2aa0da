"""The stages of an experiment, narrowed to what was chosen."""

from dataclasses import replace

import pytest

from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import Choice, ProbeStage, SweepStage, TuneStage, spec_of
from widthwise.fit.landscape import finest


def plan(name: str, choice: Choice, scale: Scale = "cpu", **changes):
    return EXPERIMENTS[name].plan(EXPERIMENTS[name].sizes[scale], choice, **changes)


def test_names_are_kept_in_every_kind_of_stage():
    choice = Choice(parameterizations=("mup",), optimizers=("adam",))
    stages = plan("per-layer", choice)
    tunes = [stage for stage in stages if isinstance(stage, TuneStage)]
    searches = [stage for stage in stages if isinstance(stage, SweepStage)]
    assert [(stage.spec.optimizer, stage.spec.parameterization) for stage in tunes] == [("adam", "mup")]
    (search,) = searches
    assert len(search.sweep.settings) == 5
    assert {(one.optimizer, one.parameterization) for one in search.sweep.settings} == {("adam", "mup")}


def test_only_what_was_chosen_is_trained():
    stages = plan("adafactor", Choice(settings=("global",)))
    searches = [stage for stage in stages if isinstance(stage, SweepStage)]
    assert {one.rates.name for stage in searches for one in stage.sweep.settings} == {"global"}
    assert len(searches) == len(stages)  # constants that no setting uses are not tuned


def test_probes_are_narrowed_with_the_search_they_follow():
    (stage,) = plan("alignment", Choice(optimizers=("sgd",), widths=(64, 32), seeds=(3, 4)))
    assert isinstance(stage, ProbeStage)
    sweep = stage.of.sweep
    assert {one.optimizer for one in sweep.settings} == {"sgd"}
    assert (sweep.widths, sweep.seeds, sweep.base.width) == ((32, 64), (3, 4), 32)


def test_fields_of_the_specification_are_replaced_everywhere():
    for stage in plan("constants", Choice(), prepare=lambda spec: replace(spec, data="synthetic", steps=7)):
        assert (spec_of(stage).data, spec_of(stage).steps) == ("synthetic", 7)


def test_constants_are_tuned_at_the_base_width_whatever_widths_are_chosen():
    stages = plan("per-layer", Choice(widths=(64,)))
    assert {stage.spec.width for stage in stages if isinstance(stage, TuneStage)} == {32}
    assert {stage.sweep.widths for stage in stages if isinstance(stage, SweepStage)} == {(64,)}


def test_exponents_are_measured_with_a_precision_where_there_are_two_widths_or_more():
    *_, stage = plan("transfer", Choice(), "gpu")
    assert (stage.sweep.widths, stage.sweep.seeds, stage.sweep.precision) == ((128, 256, 512, 1024), (0, 1), 0.07)
    *_, stage = plan("transfer", Choice(widths=(1024, 512), seeds=(3,)), "gpu")
    assert (stage.sweep.widths, stage.sweep.seeds) == ((512, 1024), (3,))
    assert stage.sweep.precision == pytest.approx(1.5 * finest((512, 1024)))  # these widths cannot tell better
    *_, stage = plan("transfer", Choice(widths=(384,)), "gpu")
    assert (stage.sweep.widths, stage.sweep.base.width, stage.sweep.precision) == ((384,), 384, None)
    (stage,) = plan("transfer", Choice(), "smoke")
    assert stage.sweep.precision is None


def test_adam_s_constants_are_tuned_also_where_adam_atan2_alone_is_chosen():
    tuning, search = plan("epsilon", Choice(optimizers=("adam_atan2",), parameterizations=("ntk",)))
    assert isinstance(tuning, TuneStage)
    assert (tuning.spec.optimizer, tuning.spec.parameterization) == ("adam", "ntk")
    assert [one.optimizer for one in search.sweep.settings] == ["adam_atan2"]


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
        plan("per-layer", choice)


def test_a_choice_that_no_setting_meets_is_refused():
    with pytest.raises(ValueError, match="no setting of this experiment has all that was chosen"):
        plan("epsilon", Choice(optimizers=("adam_atan2",), settings=("none",)))
