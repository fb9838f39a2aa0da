"""What the paper's experiments train at every scale."""

from dataclasses import replace

import pytest

from widthwise.experiments.paper import epsilon, weight_decay
from widthwise.experiments.paper.transfer import WIDEST
from widthwise.experiments.paper.values import PARAMETERIZATIONS
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.sizes import PAPER_WIDTHS, Scale, Size
from widthwise.experiments.stages import TUNED, Stage, SweepStage, TuneStage, search_of
from widthwise.models import compute_optimal_steps
from widthwise.search.lattice import Grid
from widthwise.study import Setting
from widthwise.sweeps.constants import tuned_for

SCALES: tuple[Scale, ...] = ("smoke", "cpu", "gpu", "paper")
OF_PAPER = [name for name, experiment in EXPERIMENTS.items() if experiment.of_paper]
TRAINING = [name for name in OF_PAPER if EXPERIMENTS[name].sizes]
CASES = [(name, scale) for name in TRAINING for scale in SCALES]


def planned(name: str, scale: Scale) -> tuple[Size, tuple[Stage, ...]]:
    size = EXPERIMENTS[name].sizes[scale]
    return size, EXPERIMENTS[name].plan(size)


def searches(stages: tuple[Stage, ...]) -> list[SweepStage]:
    return [search_of(stage) for stage in stages if not isinstance(stage, TuneStage)]


def trained(name: str, scale: Scale) -> list[Setting]:
    return [setting for search in searches(planned(name, scale)[1]) for setting in search.sweep.settings]


def test_the_paper_has_ten_experiments():
    assert OF_PAPER == [
        "alignment",
        "per-layer",
        "transfer",
        "epsilon",
        "weight-decay",
        "adafactor",
        "horizon",
        "constants",
        "equivalence",
        "atan2",
    ]


@pytest.mark.parametrize("name", ["equivalence", "atan2"])
def test_experiments_of_theory_train_nothing(name: str):
    assert EXPERIMENTS[name].sizes == {}


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_every_scale_has_a_plan_of_its_own_size(name: str, scale: Scale):
    size, stages = planned(name, scale)
    assert size.scale == scale
    assert stages
    for search in searches(stages):
        assert set(search.sweep.widths) <= set(size.widths) | {size.base.base_width, WIDEST if scale == "gpu" else 0}
        assert {setting.optimizer for setting in search.sweep.settings} == {search.sweep.base.optimizer}
        assert search.sweep.base.data == ("c4" if scale == "paper" else "stdlib")


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_constants_are_tuned_before_they_are_used(name: str, scale: Scale):
    tuned: set[tuple[str, str]] = set()
    for stage in planned(name, scale)[1]:
        if isinstance(stage, TuneStage):
            assert stage.spec.width == stage.spec.base_width
            tuned.add((stage.spec.optimizer, stage.spec.parameterization))
            continue
        for setting in search_of(stage).sweep.settings:
            sources = {(optimizer, setting.parameterization) for optimizer in tuned_for(setting.optimizer)}
            assert setting.constants != TUNED or sources & tuned


@pytest.mark.parametrize("name", TRAINING)
def test_smoke_is_small(name: str):
    size, stages = planned(name, "smoke")
    assert max(size.widths) <= 32
    assert size.base.steps <= 100
    runs = 0
    for search in searches(stages):
        assert isinstance(search.sweep.search, Grid)
        runs += len(search.sweep.settings) * len(search.sweep.widths) * len(search.sweep.search.indices)
    programs = len({(search.sweep.base.optimizer, width) for search in searches(stages) for width in size.widths})
    assert runs <= 300
    assert programs <= 6


@pytest.mark.parametrize("name", TRAINING)
def test_larger_scales_have_all_parameterizations(name: str):
    for scale in SCALES[1:]:
        assert {setting.parameterization for setting in trained(name, scale)} == set(PARAMETERIZATIONS)


@pytest.mark.parametrize("name", TRAINING)
def test_the_paper_s_scale_is_the_paper_s(name: str):
    stages = planned(name, "paper")[1]
    for spec in (search.sweep.base for search in searches(stages)):
        assert (spec.steps, spec.warmup, spec.batch, spec.context) == (50_000, 1000, 256, 512)
        assert (spec.vocabulary, spec.blocks, spec.head_dim, spec.base_width) == (32101, 8, 128, 1024)
    tunings = [stage for stage in stages if isinstance(stage, TuneStage)]
    assert bool(tunings) == (name == "constants")
    for stage in tunings:
        tuning = stage.tuning
        assert (stage.spec.width, tuning.trials, tuning.low, tuning.high) == (1024, 800, 0.01, 100)


def test_the_paper_s_widths():
    widths = {
        name: {width for search in searches(planned(name, "paper")[1]) for width in search.sweep.widths}
        for name in TRAINING
    }
    assert len(PAPER_WIDTHS) == 14
    assert widths["per-layer"] == widths["transfer"] == widths["weight-decay"] == set(PAPER_WIDTHS)
    assert widths["alignment"] == {1024, 2048, 4096}
    assert widths["epsilon"] == {3072, 4096, 6144, 8192, 12288, 16384}
    assert max(widths["adafactor"]) == max(widths["horizon"]) == 6144
    assert widths["constants"] == {1024}


def test_the_optimizers_and_settings_of_each_experiment():
    def of(name: str) -> set[tuple[str, str, str]]:
        return {(one.optimizer, one.rates.name, one.constants) for one in trained(name, "paper")}

    def product(optimizers: tuple[str, ...], *settings: tuple[str, str]) -> set[tuple[str, str, str]]:
        return {(optimizer, *setting) for optimizer in optimizers for setting in settings}

    assert of("alignment") == product(("sgd", "adam", "adafactor"), ("global", "default"))
    assert of("per-layer") == product(
        ("sgd", "adam", "adam_ps"),
        ("global", "default"),
        ("full", "default"),
        ("global", "paper"),
        ("full", "paper"),
        ("none", "paper"),
    )
    assert of("weight-decay") == product(("adam",), ("full", "default"))
    assert of("adafactor") == product(("adafactor", "adam_ps"), ("global", "default"), ("full", "paper"))
    assert of("horizon") == product(("sgd", "adam", "adafactor"), ("global", "default"))
    assert of("constants") == product(("sgd", "adam", "adam_ps", "adafactor"), ("full", "default"), ("full", "tuned"))
    assert of("epsilon") == {
        ("adam", "full", "paper"),
        ("adam", "none", "paper"),
        ("adam_atan2", "full", "paper"),
        ("adam_ps", "full", "paper"),
        ("adam_ps", "none", "paper"),
    }


def test_six_epsilons_of_each_kind():
    for scale in SCALES[1:]:
        kinds = epsilon.tried(scale)
        assert [len(set(some)) for some in kinds.values()] == [6, 6]
        assert epsilon.baseline(scale) in kinds["constant"]
        small, per_layer, _ = epsilon.mitigations(scale)
        assert small in kinds["constant"]
        assert per_layer in kinds["per-layer"]


def test_the_paper_s_epsilons_are_multiplied_by_one_factor_at_smaller_scales():
    def all_of(scale: Scale) -> list[float | None]:
        return [kind.epsilon for kind in (epsilon.baseline(scale), *epsilon.mitigations(scale))]

    assert all_of("paper") == [1e-9, 1e-15, 1e-12, None]
    assert all_of("cpu") == [1e-4, 1e-10, 1e-7, None]
    assert all_of("gpu") == [1e-6, 1e-12, 1e-9, None]


def test_every_epsilon_of_the_table_is_searched():
    for scale in SCALES:
        table = {
            (one.optimizer, one.rates.name, one.epsilon, one.epsilon_per_parameter) for one in trained("epsilon", scale)
        }
        for optimizer in ("adam", "adam_ps"):
            for rates in ("full", "none"):
                for kind in (epsilon.baseline(scale), epsilon.mitigations(scale)[1]):
                    assert (optimizer, rates, kind.epsilon, kind.epsilon_per_parameter) in table


def test_decay_does_as_much_in_all_as_the_paper_s():
    assert weight_decay.decays("paper") == (0.0, 1e-4)
    assert weight_decay.decays("gpu") == (0.0, 1e-4, 5 / 600)
    assert {one.weight_decay for one in trained("weight-decay", "cpu")} == set(weight_decay.decays("cpu"))


@pytest.mark.parametrize(("scale", "most"), [("smoke", 300), ("cpu", 600), ("gpu", 5000)])
def test_compute_optimal_training_is_affordable_and_longer_than_the_warm_up(scale: Scale, most: int):
    size = EXPERIMENTS["horizon"].sizes[scale]
    base = size.base
    models = [replace(base, width=width).transformer(256) for width in size.widths]
    steps = [compute_optimal_steps(model, batch=base.batch) for model in models]
    assert base.warmup < min(steps) < base.steps < max(steps) <= most


def test_on_a_gpu_adam_is_trained_wider_with_default_constants():
    sweeps = [search.sweep for search in searches(planned("transfer", "gpu")[1])]
    wide = [sweep for sweep in sweeps if max(sweep.widths) == 2048]
    assert {(one.optimizer, one.constants) for sweep in wide for one in sweep.settings} == {("adam", "default")}
    assert {max(sweep.widths) for sweep in sweeps if sweep not in wide} == {1024}
    assert sum(len(sweep.settings) for sweep in sweeps) == 4 * 2 * 4 * 3


def test_losses_are_measured_precisely_where_claims_compare_them():
    precise = [name for name in TRAINING if EXPERIMENTS[name].sizes["gpu"].loss_seeds]
    assert precise == ["per-layer", "epsilon", "weight-decay", "adafactor", "constants"]
