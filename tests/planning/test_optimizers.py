"""The factors of a plan go with any Optax transformation, and around it, on the trees that frameworks make."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import widthwise as ww
from tests.planning.network import X, build, loss_and_gradients, train
from widthwise.trace.paths import named_leaves

KEY = jax.random.key(0)


@cache
def planned(optimizer: str = "adamw") -> ww.Plan:
    return ww.plan(build, width=16, base_width=8, example=X, optimizer=optimizer)


@cache
def start() -> Any:
    return planned().init(KEY)


@cache
def gradients() -> Any:
    return loss_and_gradients(start())[1]


def one_update(optimizer: optax.GradientTransformation) -> dict[str, np.ndarray]:
    updates, _ = optimizer.update(gradients(), optimizer.init(start()), start())
    return named_leaves(updates)


def assert_same(found: Any, expected: Any, rtol: float = 1e-6, atol: float = 1e-8):
    found, expected = named_leaves(found), named_leaves(expected)
    assert list(found) == list(expected)
    for path, value in found.items():
        np.testing.assert_allclose(value, expected[path], rtol=rtol, atol=atol, err_msg=path)


def factors(optimizer: str, name: str) -> dict[str, float]:
    return {path: getattr(found, name) for path, found in planned(optimizer).factors.items()}


def test_factors_differ_between_parameters():
    """Otherwise these tests would show little: the inside of the network grows 4 times, the rest 2 times."""
    assert set(factors("adamw", "learning_rate").values()) == {1, 1 / 2, 1 / 4}
    assert set(factors("adamw", "epsilon").values()) == {1, 1 / 2, 1 / 4}
    assert set(factors("sgd", "learning_rate").values()) == {1 / 2, 1, 2, 4}


def test_sgd_multiplies_gradients_by_their_factors():
    updates, factor = one_update(planned("sgd").sgd(0.1)), factors("sgd", "learning_rate")
    for path, gradient in named_leaves(gradients()).items():
        np.testing.assert_allclose(updates[path], -0.1 * factor[path] * gradient, rtol=1e-6)


def test_adam_has_an_epsilon_per_parameter():
    updates = one_update(planned().adam(0.1, eps=1e-2))
    for path, g in named_leaves(gradients()).items():
        rate, epsilon = factors("adamw", "learning_rate")[path], factors("adamw", "epsilon")[path]
        expected = -0.1 * rate * g / (np.abs(g) + 1e-2 * epsilon)
        np.testing.assert_allclose(updates[path], expected, rtol=1e-4, atol=1e-8)


def test_any_direction_of_the_family_can_be_used():
    lion = optax.chain(planned().around(optax.scale_by_lion()), optax.scale_by_learning_rate(0.1))
    for path, update in one_update(lion).items():
        size = 0.1 * factors("adamw", "learning_rate")[path]
        np.testing.assert_allclose(np.abs(update), size * (named_leaves(gradients())[path] != 0), rtol=1e-6)
    assert_same(train(start(), lion), train(start(), planned().lion(0.1, weight_decay=0.0)), rtol=0)


def test_scaled_updates_can_be_chained_behind_a_direction():
    chained = optax.chain(optax.scale_by_sign(), planned().scale_updates(), optax.scale_by_learning_rate(0.1))
    for path, update in one_update(chained).items():
        np.testing.assert_allclose(np.abs(update).max(), 0.1 * factors("adamw", "learning_rate")[path], rtol=1e-6)


def test_gradients_are_clipped_before():
    norm = optax.tree.norm(gradients())
    clipped = optax.chain(optax.clip_by_global_norm(float(norm) / 4), planned("sgd").sgd(0.1))
    plain = one_update(planned("sgd").sgd(0.1))
    assert_same(one_update(clipped), {path: update / 4 for path, update in plain.items()}, rtol=1e-5)


def test_at_the_base_width_clipping_is_that_of_optax():
    plan, norm = planned().at(8), 0.1
    start = plan.init(KEY)
    gradients = loss_and_gradients(start)[1]
    for limit in (norm, 100.0):
        (found, _), (expected, _) = (
            clip.update(gradients, clip.init(start))
            for clip in (plan.clip_by_global_norm(limit), optax.clip_by_global_norm(limit))
        )
        assert_same(found, expected)


def test_clipping_counts_every_gradient_as_at_the_base_width():
    """A gradient whose norm is 1 at the base width, and has the size that the theory expects here."""
    clip = planned().clip_by_global_norm(1.0)
    for parameter in planned().parameters:
        path, part, name = parameter.path, *parameter.path.split("/")
        entry = np.prod(parameter.base_shape) ** -0.5 * planned().factors[path].epsilon
        for times, expected in ((0.99, 0.99 * entry), (2.0, entry)):
            given = jax.tree.map(jnp.zeros_like, start())
            given[part] |= {name: jnp.full(parameter.shape, times * entry)}
            updates, _ = clip.update(given, clip.init(start()))
            np.testing.assert_allclose(updates[part][name], expected, rtol=1e-5, err_msg=path)


def test_masked_parameters_are_left_alone():
    mask = jax.tree.map(lambda _: True, start()) | {"up": {"kernel": False, "bias": True}}
    updates, plain = one_update(optax.masked(planned().adam(0.1), mask)), one_update(planned().adam(0.1))
    assert np.array_equal(updates.pop("up/kernel"), gradients()["up"]["kernel"])
    plain.pop("up/kernel")
    assert_same(updates, plain, rtol=0)


@pytest.mark.parametrize("combine", [optax.multi_transform, optax.partition])
@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_groups_of_parameters_may_have_optimizers_of_their_own(combine: Any, name: str):
    labels = {part: jax.tree.map(lambda _, part=part: "body" if part in ("up", "down") else "rest", start()[part])
              for part in start()}  # fmt: skip
    make = getattr(planned(name), name)
    both = one_update(combine({"body": make(0.1), "rest": make(0.2)}, labels))
    body, rest = one_update(make(0.1)), one_update(make(0.2))
    for path, update in both.items():
        expected = body if path.startswith(("up", "down")) else rest
        np.testing.assert_allclose(update, expected[path], rtol=1e-6)


def test_one_group_may_be_frozen():
    labels = jax.tree.map(lambda _: "train", start()) | {"in": {"kernel": "freeze", "bias": "freeze"}}
    frozen = optax.multi_transform({"train": planned().adamw(0.1), "freeze": optax.set_to_zero()}, labels)
    after = train(start(), frozen)
    assert np.array_equal(after["in"]["kernel"], start()["in"]["kernel"])
    assert not np.array_equal(after["up"]["kernel"], start()["up"]["kernel"])


def test_gradients_may_be_accumulated():
    several = optax.MultiSteps(planned().adamw(0.1), every_k_schedule=2)
    state = several.init(start())
    nothing, state = several.update(gradients(), state, start())
    updates, _ = several.update(gradients(), state, start())
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(nothing)) == 0
    assert_same(updates, one_update(planned().adamw(0.1)))


@pytest.mark.parametrize("name", ["adamw", "adam_atan2", "lion", "sgd", "adafactor", "adam_ps"])
def test_hyperparameters_can_be_injected(name: str):
    plan = planned(name)
    make = getattr(plan, name)
    injected = optax.inject_hyperparams(make)(learning_rate=0.1)
    state = injected.init(start())
    state.hyperparams["learning_rate"] = jnp.asarray(0.05)
    updates, _ = jax.jit(injected.update)(gradients(), state, start())
    assert_same(updates, one_update(make(0.05)), rtol=1e-5)


def test_the_learning_rate_may_be_a_schedule():
    schedule = optax.linear_schedule(0.0, 0.1, 4)
    assert float(jnp.abs(one_update(planned().adamw(schedule))["up/kernel"]).max()) == 0
    injected = optax.inject_hyperparams(planned().adamw)(learning_rate=schedule)
    assert_same(train(start(), planned().adamw(schedule)), train(start(), injected), atol=1e-5)


def test_moments_may_be_kept_in_bfloat16():
    optimizer = planned().adamw(0.1, mu_dtype=jnp.bfloat16)
    moments = optax.tree.get(optimizer.init(start()), "mu")
    assert {x.dtype for x in jax.tree.leaves(moments)} == {jnp.dtype(jnp.bfloat16)}
    after = train(start(), optimizer)
    assert_same(after, train(start(), planned().adamw(0.1)), atol=0.01)
    assert {x.dtype for x in jax.tree.leaves(after)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("name", ["sgd", "adamw", "adam_atan2", "lion", "adafactor", "adam_ps"])
def test_updates_have_the_type_of_the_parameters(name: str):
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), start())
    optimizer = getattr(planned(name), name)(0.1)
    updates, _ = jax.jit(optimizer.update)(half, optimizer.init(half), half)
    assert {x.dtype for x in jax.tree.leaves(updates)} == {jnp.dtype(jnp.bfloat16)}


def test_vectors_do_not_decay_by_default():
    optimizer = planned().adamw(0.1, weight_decay=0.2)
    nothing = jax.tree.map(jnp.zeros_like, start())
    updates, _ = optimizer.update(nothing, optimizer.init(start()), start())
    for path, update in named_leaves(updates).items():
        expected = -0.1 * 0.2 * named_leaves(start())[path] if path.endswith("kernel") else 0.0 * update
        np.testing.assert_allclose(update, expected, rtol=1e-6)
    assert float(jnp.abs(updates["up"]["kernel"]).max()) > 0


def test_embeddings_decay_and_positions_that_are_added_do_not():
    """A table is looked into; what is added to every example is a bias, however many axes it has."""

    def build(width, key):
        params = {"table": (7, width), "positions": (5, width), "out": (width, 7)}
        return {name: jax.random.normal(key, shape) for name, shape in params.items()}, apply

    def apply(params, tokens):
        return (params["table"][tokens] + params["positions"]) @ params["out"]

    plan = ww.plan(build, width=16, base_width=8, example=jnp.zeros((2, 5), int))
    assert plan.decays(plan.init(KEY)) == {"table": True, "positions": False, "out": True}


@pytest.mark.parametrize("rule", ["independent", "coupled", "sqrt", "inverse"])
@pytest.mark.parametrize("decay", [0.3, optax.constant_schedule(0.3)], ids=["number", "schedule"])
def test_decay_removes_what_the_rule_says(rule: str, decay: Any):
    plan = ww.plan(build, width=16, base_width=8, example=X, decay_rule=rule)
    with_decay, without = (one_update(plan.adamw(0.1, weight_decay=x)) for x in (decay, 0.0))
    for parameter in plan.parameters:
        path, rate = parameter.path, plan.factors[parameter.path].learning_rate
        expected = {
            "independent": 1.0,
            "coupled": rate,
            "sqrt": rate * float(parameter.grows_in) ** 0.5 if parameter.role is ww.Role.HIDDEN else 0.0,
            "inverse": 1 / float(parameter.grows_out if parameter.role is ww.Role.EMBEDDING else parameter.grows_in),
        }[rule]
        removed = (without[path] - with_decay[path]) / 0.03
        np.testing.assert_allclose(
            removed, (0 if parameter.is_vector else expected) * named_leaves(start())[path], rtol=1e-3, atol=1e-4
        )


def test_at_the_base_width_every_rule_is_plain_decay_of_what_it_lets_decay():
    for rule in ("independent", "coupled", "inverse"):
        plan = ww.plan(build, width=8, base_width=8, example=X, decay_rule=rule)
        assert {factors.decay for factors in plan.factors.values()} == {1.0}


def test_what_decays_can_be_chosen():
    mask = jax.tree.map(lambda _: False, start()) | {"norm": {"scale": True, "bias": False}}
    updates, plain = (one_update(planned().adamw(0.1, weight_decay=x, mask=mask)) for x in (0.2, 0.0))
    changed = [path for path in updates if not np.array_equal(updates[path], plain[path])]
    assert changed == ["norm/scale"]


@pytest.mark.parametrize("name", ["sgd", "adamw", "adam_atan2", "lion", "adafactor", "adam_ps"])
def test_decay_removes_the_same_fraction_at_every_width(name: str):
    plan = planned(name)
    with_decay, without = (one_update(getattr(plan, name)(0.1, weight_decay=x)) for x in (0.3, 0.0))
    for path, leaf in named_leaves(start()).items():
        if path.endswith("kernel"):
            np.testing.assert_allclose(with_decay[path] - without[path], -0.03 * leaf, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adamw", "adam_atan2", "lion", "adafactor", "adam_ps"])
def test_a_decay_of_more_than_a_twentieth_per_step_is_refused(name: str):
    make = getattr(planned(name), name)
    make(0.1, weight_decay=0.5)
    with pytest.raises(ValueError, match=r"remove learning_rate · weight_decay = 0\.06 of every weight"):
        make(0.1, weight_decay=0.6)


@pytest.mark.parametrize("decay", [float("nan"), -1e-3, float("inf")])
def test_decays_that_are_no_decays_are_refused(decay: float):
    with pytest.raises(ValueError, match=f"weight_decay is {decay}: expected a number from 0 up"):
        planned("adamw").adamw(1e-3, weight_decay=decay)


@pytest.mark.parametrize("name", ["sgd", "adamw", "adam", "adam_atan2", "lion", "adafactor", "adam_ps"])
@pytest.mark.parametrize("rate", [float("nan"), -1e-3, float("inf")])
def test_learning_rates_that_are_no_rates_are_refused(name: str, rate: float):
    with pytest.raises(ValueError, match=f"learning_rate is {rate}: expected a number from 0 up"):
        getattr(planned(name), name)(rate)


@pytest.mark.parametrize(
    ("family", "name"),
    [("adamw", "sgd"), ("sgd", "adamw"), ("sgd", "lion"), ("adamw", "adafactor"), ("adamw", "adam_ps"),
     ("adafactor", "adam_atan2")],
)  # fmt: skip
def test_a_plan_of_another_family_is_refused_by_name(family: str, name: str):
    with pytest.raises(ValueError, match=f"and {name} is of .*: pass optimizer='{name}' to plan"):
        getattr(planned(family), name)(0.1)


def test_parameters_of_another_model_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'other' is not a parameter of the plan: expected the planned model's"):
        planned().adamw(0.1).init({"other": jnp.ones(3)})


class Network(nnx.Module):
    def __init__(self, width, rngs):
        self.enter = nnx.Linear(5, width, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(2)])
        self.leave = nnx.Linear(width, 3, rngs=rngs)

    def __call__(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return self.leave(x)


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_an_nnx_optimizer_takes_the_same_step(name: str):
    plan = ww.plan(lambda width, key: Network(width, nnx.Rngs(key)), width=16, base_width=8, example=X, optimizer=name)
    model = plan.init(KEY)
    graph, params = nnx.split(model, nnx.Param)

    def loss(model):
        return jnp.square(model(jnp.asarray(X, jnp.float32))).mean()

    make = getattr(plan, name)
    updates, _ = make(0.1).update(jax.grad(lambda p: loss(nnx.merge(graph, p)))(params), make(0.1).init(params), params)
    expected = optax.apply_updates(params, updates)
    optimizer = nnx.Optimizer(model, make(0.1), wrt=nnx.Param)
    optimizer.update(model, nnx.grad(loss)(model))
    assert_same(nnx.state(model, nnx.Param), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_filtered_equinox_trees_are_trained(name: str):
    def build(width, key):
        return eqx.nn.MLP(5, 3, width, 2, key=key)

    plan = ww.plan(build, width=16, base_width=8, example=jnp.ones(5), optimizer=name)
    model, optimizer = plan.init(KEY), getattr(plan, name)(0.1)

    @eqx.filter_jit
    def step(model, state):
        gradients = eqx.filter_grad(lambda model: jnp.square(jax.vmap(model)(jnp.asarray(X, jnp.float32))).mean())(
            model
        )
        updates, state = optimizer.update(gradients, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates)

    after = step(model, optimizer.init(eqx.filter(model, eqx.is_inexact_array)))
    moved = [float(jnp.abs(new.weight - old.weight).max()) for new, old in zip(after.layers, model.layers, strict=True)]
    if name == "adamw":
        np.testing.assert_allclose(moved, [0.1, 0.05, 0.05], rtol=1e-3)
    else:
        assert min(moved) > 0


def test_variables_of_linen_are_found_with_and_without_their_collection():
    optimizer = planned().adamw(0.1)
    inside = {"params": start()}
    updates, _ = optimizer.update({"params": gradients()}, optimizer.init(inside), inside)
    assert_same(updates["params"], one_update(optimizer), rtol=0)


@pytest.mark.parametrize(("family", "rate"), [("sgd", 0.1), ("adam", 1e-3), ("adafactor", 1e-2)])
def test_the_default_optimizer_is_the_plainest_of_the_family(family: str, rate: float):
    plan = planned(family)
    assert_same(one_update(plan.default()), one_update(getattr(plan, family)(rate)), rtol=0)


def test_a_family_of_your_own_has_no_default_optimizer():
    own = ww.OptimizerFamily(name="own", gradient_power="1/2")
    plan = ww.plan(build, width=16, base_width=8, example=X, optimizer=own)
    with pytest.raises(ValueError, match="no default optimizer of the own family"):
        plan.default()
