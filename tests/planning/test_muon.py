"""Muon of Optax under a plan: hidden matrices of every layout, and Adam beside it."""

from functools import cache
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from flax import nnx

import widthwise as ww
from tests.planning.network import X, build, loss_and_gradients, train
from widthwise.trace.paths import named_leaves

KEY = jax.random.key(0)
BATCH = X.astype(np.float32), np.random.default_rng(1).integers(3, size=16)
EXACT = {"ns_coeffs": (1.875, -1.25, 0.375), "ns_steps": 14}
"""A Newton-Schulz iteration that converges: the usual one leaves singular values between 0.7 and 1.2."""


@cache
def planned(optimizer: str = "muon", width: int = 16, base_width: int = 8) -> ww.Plan:
    return ww.plan(build, width=width, base_width=base_width, example=X, optimizer=optimizer)


def is_matrix(params: Any) -> Any:
    return jax.tree.map(lambda x: x.ndim > 1, params)


def as_in_the_plan(params: Any) -> Any:
    hidden = {"up/kernel": optax.contrib.MuonDimensionNumbers(), "down/kernel": optax.contrib.MuonDimensionNumbers()}
    leaves = [hidden.get(path) for path in named_leaves(params)]
    return jax.tree.structure(params).unflatten(leaves)


@pytest.mark.parametrize(("optimizer", "options"), [("muon", {}), ("muon_max", {"consistent_rms": 0.2})])
def test_at_the_base_width_it_is_the_one_of_optax(optimizer: str, options: dict):
    start = build(8, KEY)[0]
    rates = {"adam_learning_rate": optax.linear_schedule(1e-3, 0, 5), "weight_decay": 0.1, "beta": 0.9}
    plain = optax.contrib.muon(
        0.02, weight_decay_mask=is_matrix, muon_weight_dimension_numbers=as_in_the_plan, **rates, **options
    )
    found, expected = train(start, planned(optimizer, width=8).muon(0.02, **rates)), train(start, plain)
    for (path, x), y in zip(named_leaves(found).items(), jax.tree.leaves(expected), strict=True):
        assert np.array_equal(x, y), path


LAYOUTS = {"heads": 3, "layers": 2, "window": 3}


def many_layouts(width: int, key: jax.Array) -> tuple[Any, Any]:
    """A model with matrices in every form: with several axes, stacked, with outputs first, and as a convolution."""
    shapes = {
        "in": (5, width),
        "queries": (width, LAYOUTS["heads"], width // 4),
        "merge": (LAYOUTS["heads"], width // 4, width),
        "scanned": (LAYOUTS["layers"], width, 2 * width),
        "back": (LAYOUTS["layers"], width, 2 * width),
        "outputs_first": (2 * width, width),
        "conv": (LAYOUTS["window"], 2 * width, width),
        "keys": (width, 6),
        "values": (6, width),
        "scale": (width,),
        "out": (width, 3),
    }
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, s) for k, (name, s) in zip(keys, shapes.items(), strict=True)}, call


def call(params: Any, x: jax.Array) -> jax.Array:
    x = x @ params["in"]
    x = jnp.einsum("bthk,hkd->btd", jnp.einsum("btd,dhk->bthk", x, params["queries"]), params["merge"])

    def layer(x, weights):
        up, back = weights
        return jnp.tanh(x @ up) @ back.T, None

    x = jax.lax.scan(layer, x, (params["scanned"], params["back"]))[0]
    x = jnp.tanh(x @ params["outputs_first"].T)
    x = jax.lax.conv_general_dilated(x, params["conv"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    return (params["scale"] * (jnp.tanh(x @ params["keys"]) @ params["values"])) @ params["out"]


EXAMPLE = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)


@cache
def layouts(optimizer: str, **options: Any) -> ww.Plan:
    return ww.plan(many_layouts, width=16, base_width=8, example=EXAMPLE, optimizer=optimizer, **options)


@cache
def updates_of_random_gradients(optimizer: str) -> dict[str, np.ndarray]:
    rule, params = layouts(optimizer).muon(1.0, **EXACT), many_layouts(16, KEY)[0]
    return named_leaves(jax.jit(rule.update)(many_layouts(16, jax.random.key(1))[0], rule.init(params), params)[0])


def test_hidden_matrices_of_every_layout_are_orthogonalized():
    assert {p.path for p in layouts("muon").parameters if p.muon} == {
        *("queries", "merge", "scanned", "back", "outputs_first", "conv")
    }
    assert layouts("muon").beside_muon == ("keys",)


FACTORS = {
    "muon": lambda out, into: max(1, out / into) ** 0.5,
    "muon_max": lambda out, into: 0.2 * max(out, into) ** 0.5,
}


@pytest.mark.parametrize("optimizer", FACTORS)
@pytest.mark.parametrize(
    ("path", "out", "into"),
    [
        ("queries", (1, 2), (0,)),
        ("merge", (2,), (0, 1)),
        ("scanned", (2,), (1,)),
        ("back", (1,), (2,)),
        ("outputs_first", (0,), (1,)),
        ("conv", (2,), (0, 1)),
    ],
)
def test_singular_values_are_the_factor_of_optax_times_that_of_the_plan(optimizer: str, path: str, out, into):
    update = np.asarray(updates_of_random_gradients(optimizer)[path])
    sizes = [prod(update.shape[axis] for axis in axes) for axes in (out, into)]
    stack = tuple(axis for axis in range(update.ndim) if axis not in (*out, *into))
    matrices = np.transpose(update, (*stack, *out, *into)).reshape(-1, *sizes)
    expected = FACTORS[optimizer](*sizes) * layouts(optimizer).factors[path].learning_rate
    np.testing.assert_allclose(np.linalg.svd(matrices, compute_uv=False), expected, rtol=1e-3)


def test_sides_that_grow_differently_change_activations_by_as_much():
    """The inside of the network grows as the square of its width. Its one gradient is of rank 16, and fully aligned."""
    changes = []
    for width in (16, 64):
        plan = planned("muon", width, 16)
        params = plan.init(KEY)
        rule = plan.muon(0.01)
        updates = jax.jit(rule.update)(loss_and_gradients(params)[1], rule.init(params), params)[0]
        h = X @ params["in"]["kernel"]
        h = h - h.mean(axis=-1, keepdims=True)
        h = h / np.sqrt((h**2).mean(axis=-1, keepdims=True))
        inputs = {"up": h, "down": np.tanh(h @ params["up"]["kernel"])}
        changes.append([float(np.std(z @ updates[name]["kernel"])) for name, z in inputs.items()])
    assert changes[1] == pytest.approx(changes[0], rel=0.25)
    assert plan.factors["down/kernel"].learning_rate == 0.5  # without which its change would be twice as large


class Linear(eqx.Module):
    """Layers that store outputs first."""

    layers: list[eqx.nn.Linear]

    def __call__(self, x):
        for layer in self.layers:
            x = jax.vmap(layer)(x)
        return x


class Dense(nnx.Module):
    """The same layers, which store inputs first."""

    def __init__(self, layers: list[eqx.nn.Linear]) -> None:
        self.layers = nnx.List([])
        for layer in layers:
            dense = nnx.Linear(layer.in_features, layer.out_features, use_bias=False, rngs=nnx.Rngs(0))
            dense.kernel.set_value(layer.weight.T)
            self.layers.append(dense)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_the_way_round_in_which_weights_are_stored_makes_no_difference():
    def linear(width: int, key: jax.Array) -> Linear:
        sizes, keys = (5, width, 3 * width, width, 3), jax.random.split(key, 4)
        return Linear(
            [eqx.nn.Linear(a, b, use_bias=False, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]
        )

    found = []
    for model_of in (linear, lambda width, key: Dense(linear(width, key).layers)):
        plan = ww.plan(model_of, width=16, base_width=8, example=BATCH[0], optimizer="muon")
        model = plan.init(KEY)
        params = nnx.state(model, nnx.Param) if isinstance(model, nnx.Module) else eqx.filter(model, eqx.is_array)
        rule = plan.muon(0.02)
        updates = jax.jit(rule.update)(params, rule.init(params), params)[0]
        found.append([x if isinstance(model, nnx.Module) else x.T for x in named_leaves(updates).values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_step_removes_the_same_part_of_a_weight_at_every_width():
    rule = planned("muon_max").muon(0.02, adam_learning_rate=0.01, weight_decay=0.5, adam_weight_decay=0.1)
    start = jax.tree.map(jnp.ones_like, planned().init(KEY))
    updates = jax.jit(rule.update)(jax.tree.map(jnp.zeros_like, start), rule.init(start), start)[0]
    for path, update in named_leaves(updates).items():
        removed = {"up/kernel": 0.01, "down/kernel": 0.01, "in/kernel": 0.001, "out/kernel": 0.001}.get(path, 0.0)
        np.testing.assert_allclose(update, -removed, rtol=1e-6, err_msg=path)


def test_which_parameters_decay_can_be_given_as_a_tree():
    rule = planned().muon(
        0.02, weight_decay=0.5, mask={**is_matrix(build(8, KEY)[0]), "up": {"kernel": False, "bias": False}}
    )
    start = jax.tree.map(jnp.ones_like, planned().init(KEY))
    updates = rule.update(jax.tree.map(jnp.zeros_like, start), rule.init(start), start)[0]
    assert float(updates["up"]["kernel"].max()) == 0
    assert float(updates["down"]["kernel"].max()) == pytest.approx(-0.01)


def test_a_large_decay_of_muon_s_matrices_is_not_held_against_adam():
    """Under this rule, only the decay of hidden matrices grows with width."""
    plan = layouts("muon", decay_rule="sqrt")
    with pytest.raises(ValueError, match="of every weight"):
        plan.muon(0.02, weight_decay=2.4)
    plan.muon(0.02, adam_weight_decay=2.4)


def test_gradients_are_clipped_as_with_adam():
    clipped = [
        named_leaves(plan.clip_by_global_norm(0.1).update(plan.init(KEY), optax.EmptyState())[0])
        for plan in (planned("muon"), planned("adamw"))
    ]
    for path, gradient in clipped[0].items():
        np.testing.assert_allclose(gradient, clipped[1][path], rtol=1e-6)


def loss(model: Any, batch: Any) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(model(batch[0]), batch[1]).mean()


def mlp(width: int, key: jax.Array) -> tuple[Any, Any]:
    shapes = {"in": (5, width), "one": (width, width), "two": (width, width), "out": (width, 3)}
    keys = jax.random.split(key, len(shapes))
    params = {name: jax.random.normal(k, s) * s[0] ** -0.5 for k, (name, s) in zip(keys, shapes.items(), strict=True)}
    return (
        params,
        lambda params, x: (
            jnp.tanh(jnp.tanh(jnp.tanh(x @ params["in"]) @ params["one"]) @ params["two"]) @ params["out"]
        ),
    )


def checked(optimizer: str, make: Any = None) -> Any:
    plan = ww.plan(mlp, width=256, base_width=64, example=BATCH[0], optimizer=optimizer)
    return plan.check(loss, BATCH, widths=(64, 256), optimizer=make, seeds=2, steps=4, tolerance=0.2, show=False)


def with_rates(times: Any) -> Any:
    """Return Muon as a plan has it, with other rates for the hidden matrices."""

    def make(plan: ww.Plan) -> optax.GradientTransformation:
        def is_hidden(params: Any) -> Any:
            return {name: name in ("one", "two") for name in params}

        again = optax.masked(optax.scale(times(plan.width / plan.base_width)), is_hidden)
        return optax.chain(plan.default(), again)

    return make


@pytest.mark.parametrize(
    ("optimizer", "common"),
    [
        ("muon_max", lambda r: r**0.5),  # a constant rate, as for Adam's updates that it matches in size
        ("muon", lambda r: r**-1.0),  # the rate that Adam needs, on top of Muon's own factor
    ],
)
def test_every_factor_passes_with_its_own_exponent_and_fails_with_a_common_one(optimizer: str, common: Any):
    planned = checked(optimizer)
    assert planned.passed, planned
    assert abs(max((layer.change.value for layer in planned.layers), key=abs)) < 0.2
    assert not checked(optimizer, with_rates(common)).passed


def one_line(match: str) -> Any:
    return pytest.raises(ValueError, match=rf"^[^\n]*{match}[^\n]*$")


def test_factors_that_optax_does_not_have_are_refused():
    with one_line(r"a factor of sqrt\(out/in\), which Optax does not have: expected a plan with optimizer='muon'"):
        planned("muon_out_in").muon(0.02)
    with one_line(r"consistent_rms=0.2 multiplies updates by sqrt\(max\(out,in\)\), and the plan is for sqrt\(max\(1"):
        planned("muon").muon(0.02, consistent_rms=0.2)
    with one_line("adaptive=True makes updates proportional to gradients"):
        planned("muon").muon(0.02, adaptive=True)


def test_another_optimizer_than_planned_is_refused():
    with one_line("the plan is for optimizers of the adam family, and muon is of muon.adam: pass optimizer='muon'"):
        planned("adamw").muon(0.02)
    with one_line(r"the plan is for optimizers of the muon\+adam family, and adamw is of adam"):
        planned("muon").adamw(0.02)


def test_a_rule_decides_what_muon_trains():
    rules = {"conv": ww.Rule(muon=False), "keys": ww.Rule(muon=True)}
    plan = ww.plan(many_layouts, width=16, base_width=8, example=EXAMPLE, optimizer="muon", rules=rules)
    adam = ww.plan(many_layouts, width=16, base_width=8, example=EXAMPLE)
    trained = {p.path for p in plan.parameters if p.muon}
    assert trained == {"queries", "merge", "scanned", "back", "outputs_first", "keys"}
    assert plan.factors["conv"] == adam.factors["conv"]
    assert plan.factors["keys"].learning_rate == pytest.approx(2**-0.5)  # √(out/in), with its outputs fixed
    with one_line("'in' is to be trained by Muon, but is embedding: expected a hidden matrix"):
        ww.plan(many_layouts, width=16, base_width=8, example=EXAMPLE, rules={"in": ww.Rule(muon=True)})


def test_the_table_says_what_trains_a_parameter():
    rows = {row.path: row.optimizer for row in layouts("muon_max").explain().rows}
    assert rows["conv"] == "muon_max"
    assert rows["keys"] == rows["scale"] == "adam"
    assert "optimizer" in str(layouts("muon_max"))
    assert "optimizer" not in str(planned("adamw"))
