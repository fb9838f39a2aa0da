"""A plan holds at other widths, takes exponents of its own, and checks itself."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import widthwise as ww
from tests.planning.network import X, Y, build

KEY = jax.random.key(0)


def loss(model, batch):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


@pytest.fixture(scope="module")
def plan() -> ww.Plan:
    return ww.plan(build, width=16, base_width=8, example=X)


def test_a_plan_at_another_width_is_the_plan_that_would_be_made_there(plan: ww.Plan):
    wider, direct = plan.at(32), ww.plan(build, width=32, base_width=8, example=X)
    assert wider.factors == direct.factors
    assert wider.parameters == direct.parameters
    assert plan.at(8).factors != plan.factors


def test_options_are_kept_at_another_width():
    stored = ww.plan(
        build, width=16, base_width=8, example=X, parameterization="ntk", optimizer="sgd", alignment="none",
        multipliers=True, rules={"out/kernel": ww.Rule(role=ww.UNSCALED)}, headless=True,
    )  # fmt: skip
    wider = stored.at(32)
    assert wider.multipliers
    assert wider.exponents == stored.exponents
    assert wider.factors["out/kernel"].learning_rate == 1
    assert isinstance(wider.init(KEY), type(stored.init(KEY)))


def test_exponents_of_your_own_can_be_planned():
    exponents = ww.check(ww.STANDARD, [0, "1/2", "1/2"], ww.ADAM, ww.FULL)
    plan = ww.plan(build, width=32, base_width=8, example=X, exponents=exponents)
    assert plan.factors["out/kernel"].learning_rate == 4**-0.5
    assert plan.factors["down/kernel"].learning_rate == 16**-0.5


@pytest.mark.parametrize(("alignment", "factor"), [("full", 1 / 4), ("none", 1 / 2), (ww.NONE, 1 / 2)])
def test_alignment_is_a_name_or_a_value(alignment, factor: float):
    plan = ww.plan(build, width=32, base_width=8, example=X, alignment=alignment)
    assert plan.factors["out/kernel"].learning_rate == factor


def test_a_check_passes_under_the_plan_and_prints_what_it_does(plan: ww.Plan, capsys: pytest.CaptureFixture[str]):
    result = plan.check(loss, (X, Y), widths=(16, 64), seeds=2, steps=3, tolerance=0.3, learning_rate=1e-2)
    printed = capsys.readouterr()
    assert result.passed
    assert str(result) in printed.out
    assert printed.err.splitlines()[0] == "training width 16, seed 1 of 2"
    assert len(printed.err.splitlines()) == 4


def test_a_check_keeps_what_it_compiled_for_other_optimizers(plan: ww.Plan):
    """The loss is traced once for its gradients and once for measurements, and not again by the second check."""
    traced = []

    def counted(model, batch):
        traced.append(1)
        return loss(model, batch)

    options = {"widths": (16, 32), "seeds": 1, "steps": 2, "show": False}
    plan.check(counted, (X, Y), learning_rate=1e-2, **options)
    first = len(traced)
    plan.check(counted, (X, Y), optimizer=lambda plan: plan.lion(1e-3), **options)
    assert first > 0
    assert len(traced) == first


def test_without_a_key_one_seed_is_as_good_as_several():
    plan = ww.plan(lambda width: build(width, KEY), width=16, base_width=8, example=X)
    assert plan.check(loss, (X, Y), widths=(8, 16), seeds=3, steps=1, show=False).seeds == 1


def test_a_model_that_is_split_over_devices_is_planned_as_the_whole_one():
    """Each device has a part of the hidden units; both widths are split alike, so growth is the same."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("model",))

    def split(params, x):
        def local(params, x):
            x = jnp.tanh(x @ params["in"])
            return jax.lax.psum(x @ params["out"], "model")

        specs = {"in": P(None, "model"), "out": P("model", None)}
        return jax.shard_map(local, mesh=mesh, in_specs=(specs, P()), out_specs=P())(params, x)

    def whole(params, x):
        return jnp.tanh(x @ params["in"]) @ params["out"]

    def build_with(apply):
        def build(width, key):
            keys = jax.random.split(key)
            shapes = {"in": (5, width), "out": (width, 3)}
            return {n: jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True)}, apply

        return build

    plans = [ww.plan(build_with(apply), width=16, base_width=8, example=X) for apply in (split, whole)]
    assert plans[0].factors == plans[1].factors
    assert [p.part for p in plans[0].parameters] == [p.part for p in plans[1].parameters]
