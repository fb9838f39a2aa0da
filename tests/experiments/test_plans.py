"""What every experiment trains at every scale."""

from collections.abc import Iterator

import pytest

from widthwise.experiments import epsilon_kinds, weight_decay
from widthwise.experiments.paper_values import PARAMETERIZATIONS
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.sizes import PAPER_WIDTHS, Scale, Size
from widthwise.experiments.stages import TUNED, Probe, Search, Stage, Tune
from widthwise.models import Transformer, compute_optimal_steps
from widthwise.parameterize import Constants
from widthwise.sweep.search import Grid
from widthwise.sweep.sweep import Group

SCALES: tuple[Scale, ...] = ("smoke", "cpu", "gpu", "paper")
TRAINING = [name for name, experiment in EXPERIMENTS.items() if experiment.sizes]
CASES = [(name, scale) for name in TRAINING for scale in SCALES]


def planned(name: str, scale: Scale) -> tuple[Size, tuple[Stage, ...]]:
    size = EXPERIMENTS[name].sizes[scale]
    return size, EXPERIMENTS[name].plan(size)


def searches(stages: tuple[Stage, ...]) -> list[Search]:
    return [stage.of if isinstance(stage, Probe) else stage for stage in stages if not isinstance(stage, Tune)]


def groups(name: str, scale: Scale) -> Iterator[Group]:
    for search in searches(planned(name, scale)[1]):
        yield from search.sweep.groups(lambda *_: Constants())


def test_there_are_ten_experiments_in_the_order_of_the_issue():
    assert list(EXPERIMENTS) == [
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
        assert set(search.sweep.widths) <= set(size.widths) | {size.base.base_width}
        assert search.sweep.optimizers == (search.sweep.base.optimizer,)
        assert search.sweep.base.data == ("c4" if scale == "paper" else "stdlib")


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_constants_are_tuned_before_they_are_used(name: str, scale: Scale):
    tuned: set[tuple[str, str]] = set()
    for stage in planned(name, scale)[1]:
        if isinstance(stage, Tune):
            assert stage.spec.width == stage.spec.base_width
            tuned.add((stage.spec.optimizer, stage.spec.parameterization))
        elif isinstance(stage, Search) and TUNED in stage.sweep.constants:
            optimizer = stage.sweep.base.optimizer
            needed = "adam" if optimizer == "adam_atan2" else optimizer
            assert {(needed, name) for name in stage.sweep.parameterizations} <= tuned


@pytest.mark.parametrize("name", TRAINING)
def test_smoke_is_small(name: str):
    size, stages = planned(name, "smoke")
    assert max(size.widths) <= 32
    assert size.base.steps <= 100
    runs = programs = 0
    for search in searches(stages):
        assert isinstance(search.sweep.search, Grid)
        count = len(search.sweep.groups(lambda *_: Constants())) * len(search.sweep.widths)
        runs += count * len(search.sweep.search.indices)
    programs = len({(search.sweep.base.optimizer, width) for search in searches(stages) for width in size.widths})
    assert runs <= 300
    assert programs <= 6


@pytest.mark.parametrize("name", TRAINING)
def test_larger_scales_have_all_parameterizations(name: str):
    for scale in SCALES[1:]:
        assert {group.spec.parameterization for group in groups(name, scale)} == set(PARAMETERIZATIONS)


@pytest.mark.parametrize("name", TRAINING)
def test_the_paper_s_scale_is_the_paper_s(name: str):
    for group in groups(name, "paper"):
        spec = group.spec
        assert (spec.steps, spec.warmup, spec.batch, spec.context) == (50_000, 1000, 256, 512)
        assert (spec.vocabulary, spec.blocks, spec.head_dim, spec.base_width) == (32101, 8, 128, 1024)
    for stage in planned(name, "paper")[1]:
        if isinstance(stage, Tune):
            assert name == "constants"
            assert (stage.spec.width, stage.tuning.trials, stage.tuning.low, stage.tuning.high) == (
                1024,
                800,
                0.01,
                100,
            )


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
        return {(group.spec.optimizer, group.spec.setting, group.constants) for group in groups(name, "paper")}

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
        tried: dict[bool, set[float | None]] = {False: set(), True: set()}
        for group in groups("epsilon", scale):
            if (group.spec.optimizer, group.spec.setting) == ("adam", "full"):
                tried[group.spec.epsilon_per_parameter].add(group.spec.epsilon)
        assert [len(tried[per_layer]) for per_layer in (False, True)] == [6, 6]
        for kind in (epsilon_kinds.baseline(scale), *epsilon_kinds.mitigations(scale)[:2]):
            assert kind.epsilon in tried[kind.per_layer]


def test_the_paper_s_epsilons_are_multiplied_by_one_factor_at_smaller_scales():
    def all_of(scale: Scale) -> list[float]:
        kinds = (epsilon_kinds.baseline(scale), *epsilon_kinds.mitigations(scale)[:2])
        return [kind.epsilon for kind in kinds if kind.epsilon is not None]

    assert all_of("paper") == [1e-9, 1e-15, 1e-12]
    assert all_of("cpu") == [1e-4, 1e-10, 1e-7]
    assert all_of("gpu") == [1e-6, 1e-12, 1e-9]


def test_every_epsilon_of_the_table_is_searched():
    for scale in SCALES:
        table = {
            (group.spec.optimizer, group.spec.setting, group.spec.epsilon, group.spec.epsilon_per_parameter)
            for group in groups("epsilon", scale)
        }
        kinds = (epsilon_kinds.baseline(scale), epsilon_kinds.mitigations(scale)[1])
        for optimizer in ("adam", "adam_ps"):
            for setting in ("full", "none"):
                assert {(optimizer, setting, kind.epsilon, kind.per_layer) for kind in kinds} <= table


def test_decay_does_as_much_in_all_as_the_paper_s():
    sizes = EXPERIMENTS["weight-decay"].sizes
    assert weight_decay.decays(sizes["paper"]) == (0.0, 1e-4)
    assert weight_decay.decays(sizes["gpu"]) == (0.0, 1e-4, 5 / 600)
    assert {group.spec.weight_decay for group in groups("weight-decay", "cpu")} == set(
        weight_decay.decays(sizes["cpu"])
    )


@pytest.mark.parametrize(("scale", "most"), [("smoke", 300), ("cpu", 600), ("gpu", 5000)])
def test_compute_optimal_training_is_affordable_and_longer_than_the_warm_up(scale: Scale, most: int):
    size = EXPERIMENTS["horizon"].sizes[scale]
    base = size.base
    steps = [
        compute_optimal_steps(
            Transformer(width=width, blocks=base.blocks, head_dim=base.head_dim, context=base.context, vocabulary=256),
            batch=base.batch,
        )
        for width in size.widths
    ]
    assert base.warmup < min(steps) < base.steps < max(steps) <= most
