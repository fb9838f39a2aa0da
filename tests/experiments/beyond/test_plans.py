"""What our own experiments train at every scale."""

from dataclasses import replace

import pytest

from widthwise.experiments.beyond.decay import OTHERS, ROUGH
from widthwise.experiments.beyond.growth import EXPERIMENTS as GROWTH
from widthwise.experiments.experiment import Experiment
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.sizes import Scale
from widthwise.experiments.stages import Choice, SweepStage
from widthwise.search.lattice import Grid
from widthwise.study.axes import AXES
from widthwise.sweeps.sweep import Sweep
from widthwise.train import Spec

OWN = [name for name, experiment in EXPERIMENTS.items() if not experiment.of_paper]
COMPARISONS = [(name, scale) for name in OWN if name != "length" for scale in EXPERIMENTS[name].sizes]


def sweeps(name: str, scale: Scale, **options) -> list[Sweep]:
    experiment = EXPERIMENTS[name]
    stages = experiment.plan(experiment.sizes[scale], **options)
    return [stage.sweep for stage in stages if isinstance(stage, SweepStage)]


def specs(sweep: Sweep) -> list[Spec]:
    base = vars(sweep.base)
    return [Spec(**{**base, **AXES[sweep.axis].change(base, size)}) for size in sweep.all_sizes]


def test_seven_experiments_are_our_own():
    assert OWN == ["length", "muon", "decay-rules", "depth", "batch", "tokens", "together"]


@pytest.mark.parametrize("name", OWN)
def test_smoke_is_small(name: str):
    planned = sweeps(name, "smoke")
    runs = 0
    for sweep in planned:
        assert isinstance(sweep.search, Grid)
        assert max(spec.width for spec in specs(sweep)) <= 32
        assert max(spec.steps for spec in specs(sweep)) <= 100
        runs += len(sweep.all_settings) * len(sweep.all_sizes) * len(sweep.search.indices)
    assert runs <= 300


@pytest.mark.parametrize(("name", "scale"), COMPARISONS)
def test_comparisons_measure_exponents_to_the_end(name: str, scale: Scale):
    for sweep in sweeps(name, scale):
        others = name == "decay-rules" and set(sweep.all_settings) <= set(OTHERS)
        assert (sweep.precision is None) == (scale == "smoke")
        assert not sweep.until_verdict
        assert sweep.all_seeds == ((0,) if scale == "smoke" or others else (0, 1))


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_other_decays_are_searched_roughly_and_at_the_ends_alone(scale: Scale):
    widths = EXPERIMENTS["decay-rules"].sizes[scale].widths
    of_each = {setting: sweep for sweep in sweeps("decay-rules", scale) for setting in sweep.all_settings}
    for setting, sweep in of_each.items():
        other = setting in OTHERS
        assert sweep.all_sizes == ((widths[0], widths[-1]) if other else widths)
        assert sweep.precision == pytest.approx(ROUGH if other else EXPERIMENTS["decay-rules"].sizes[scale].precision)
    assert sum(setting in OTHERS for setting in of_each) == 5
    chosen = sweeps("decay-rules", scale, choice=Choice(widths=(256, 64, 128)))
    assert {sweep.all_sizes for sweep in chosen} == {(64, 128, 256), (64, 256)}


@pytest.mark.parametrize("experiment", GROWTH, ids=lambda one: one.name)
def test_no_rule_changes_anything_at_the_base_of_an_axis(experiment: Experiment):
    for scale in experiment.sizes:
        (sweep,) = sweeps(experiment.name, scale)
        base = sweep.base
        assert (base.width, base.blocks, base.batch, base.tokens) == (
            base.base_width,
            base.base_blocks,
            base.base_batch,
            base.base_tokens,
        )
        assert AXES[sweep.axis].size(vars(base)) in sweep.all_sizes


def test_the_base_stays_the_base_with_other_steps():
    (sweep,) = sweeps("tokens", "cpu", prepare=lambda spec: replace(spec, steps=60))
    assert sweep.base.base_tokens == sweep.base.tokens == sweep.all_sizes[0]


def test_everything_at_once_grows_as_far_as_was_promised():
    (sweep,) = sweeps("together", "gpu")
    small, *_, large = specs(sweep)
    assert (small.width, small.blocks, small.batch) == (128, 4, 32)
    assert (large.width, large.blocks, large.batch, large.tokens) == (1024, 16, 256, 8 * small.tokens)


def test_training_length_grows_by_sixteen_at_one_width():
    size = EXPERIMENTS["length"].sizes
    for scale in size:
        for sweep in sweeps("length", scale):
            assert sweep.axis == "tokens"
            first, middle, last = sweep.values
            assert (16 * first, 4 * middle, last) == (last, last, size[scale].base.tokens)
            assert sweep.base.width == 4 * size[scale].base.base_width


@pytest.mark.parametrize(("name", "axis"), [("length", "tokens"), ("together", "together")])
def test_an_experiment_at_one_width_refuses_several(name: str, axis: str):
    with pytest.raises(ValueError, match=f"widths are 32, 64: expected one, since {axis} grows here"):
        sweeps(name, "cpu", choice=Choice(widths=(64, 32)))
