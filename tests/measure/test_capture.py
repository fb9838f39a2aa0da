"""Layers are found in any model, whatever it does to its weights before they act."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from widthwise.measure import Product, capture, weights_of

X = jnp.asarray(np.random.default_rng(0).standard_normal((5, 6), np.float32))


def products(model: Any, params: Any, *arguments: Any) -> dict[str, Product]:
    result, uses = jax.jit(lambda *args: capture(model, *args))(params, *arguments)
    np.testing.assert_allclose(result, model(params, *arguments), rtol=1e-5)
    for use in uses.values():
        if isinstance(use, Product):
            np.testing.assert_allclose(use.inputs @ use.weight, use.outputs, rtol=1e-4, atol=1e-5)
    return uses


def weight(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape, np.float32))


@pytest.mark.parametrize(
    ("shape", "model"),
    [
        ((6, 4), lambda p, x: x @ p["w"]),
        ((4, 6), lambda p, x: x @ p["w"].T),
        ((4, 6), lambda p, x: (p["w"] @ x.T).T),
        ((6, 4), lambda p, x: x @ (p["w"] * 0.5 / 3)),
        ((6, 4), lambda p, x: x @ p["w"].astype(jnp.float16).astype(jnp.float32)),
        ((6, 2, 2), lambda p, x: jnp.einsum("bi,iho->bho", x, p["w"])),
        ((2, 2, 6), lambda p, x: jnp.einsum("bi,hoi->bho", x, p["w"])),
        ((24,), lambda p, x: x @ p["w"].reshape(6, 4)),
        ((6, 4), lambda p, x: jax.checkpoint(lambda w, x: jnp.sin(x @ w))(p["w"], x)),
        ((6, 4), lambda p, x: jax.jit(jax.jit(lambda w, x: x @ w))(p["w"], x)),
        ((6, 4), lambda p, x: jax.vmap(lambda row: row @ p["w"])(x)),
    ],
    ids=["plain", "turned", "left", "scaled", "cast", "heads", "heads-first", "reshaped", "remat", "jit", "vmap"],
)
def test_a_weight_is_found_however_it_is_used(shape: tuple[int, ...], model: Any):
    use = products(model, {"w": weight(*shape)}, X)["w"]
    assert use.weight.shape == (6, 4)
    np.testing.assert_allclose(use.inputs, X, rtol=1e-6)


def test_lookups_are_found_and_have_outputs_only():
    tokens = jnp.array([[0, 2], [1, 1]])
    (use,) = capture(lambda p, t: p["table"][t].sum(), {"table": weight(3, 4)}, tokens)[1].values()
    assert not isinstance(use, Product)
    np.testing.assert_allclose(use.outputs, weight(3, 4)[tokens].reshape(4, 4))


def test_a_weight_that_is_used_twice_is_listed_twice():
    uses = products(lambda p, x: (x @ p["w"]) @ p["w"], {"w": weight(6, 6)}, X)
    assert list(uses) == ["w", "w#2"]
    np.testing.assert_allclose(uses["w#2"].inputs, X @ weight(6, 6), rtol=1e-5)


def test_layers_come_in_the_order_of_the_forward_pass():
    uses = capture(lambda p, x: x @ p["b"] @ p["a"], {"a": weight(4, 2), "b": weight(6, 4)}, X)[1]
    assert list(uses) == ["b", "a"]


def test_flax_linen_models_need_no_change():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=8, name="attention")(nn.Dense(8)(x))
            return nn.Dense(3)(nn.gelu(x))

    sequences = jnp.stack([X, 2 * X])
    params = Net().init(jax.random.key(0), sequences)["params"]
    uses = products(lambda p, x: Net().apply({"params": p}, x), params, sequences)
    assert sorted(uses) == [
        "Dense_0/kernel",
        "Dense_1/kernel",
        *(f"attention/{name}/kernel" for name in ("key", "out", "query", "value")),
    ]
    assert uses["attention/out/kernel"].weight.shape == (8, 8)


def test_flax_nnx_models_need_no_change():
    definition, params = nnx.split(nnx.MultiHeadAttention(2, 6, 8, decode=False, rngs=nnx.Rngs(0)))
    found = products(lambda p, x: nnx.merge(definition, p)(x), params, jnp.stack([X, X]))
    assert {path: use.weight.shape for path, use in found.items()} == {
        "query/kernel": (6, 8),
        "key/kernel": (6, 8),
        "value/kernel": (6, 8),
        "out/kernel": (8, 6),
    }


def test_equinox_models_need_no_change():
    params, static = eqx.partition(eqx.nn.MLP(6, 3, 8, 2, key=jax.random.key(0)), eqx.is_inexact_array)
    uses = products(lambda p, x: jax.vmap(eqx.combine(p, static))(x), params, X)
    assert {path: use.weight.shape for path, use in uses.items()} == {
        "layers/0/weight": (6, 8),
        "layers/1/weight": (8, 8),
        "layers/2/weight": (8, 3),
    }


def test_products_of_two_weights_or_of_none_are_no_layers():
    params = {"a": weight(6, 6), "b": weight(6, 6)}
    assert not capture(lambda p, x: (x @ x.T).sum() + (p["a"] @ p["b"]).sum(), params, X)[1]


def test_experts_are_one_product_each():
    params = {"w": weight(3, 6, 4)}
    use = products(lambda p, x: jnp.einsum("ebi,eio->ebo", x, p["w"]), params, jnp.stack([X, 2 * X, 3 * X]))["w"]
    assert use.weight.shape == (3, 6, 4)
    assert use.inputs.shape == (3, 5, 6)


def test_weights_that_are_joined_or_scaled_before_they_act_are_captured_as_they_act():
    params = {"v": weight(6, 4), "w": weight(6, 2), "a": weight(6, 1), "b": weight(1, 4)}
    uses = products(
        lambda p, x: x @ jnp.concatenate([p["v"] * jnp.arange(4.0) + p["a"] @ p["b"], p["w"]], axis=1), params, X
    )
    assert list(uses) == ["v+a+b+w"]
    assert weights_of("v+a+b+w") == ("v", "a", "b", "w")


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_convolution_is_a_product_with_every_patch(groups: int):
    params = {"w": weight(12, 6 // groups, 3, 3)}
    images = jnp.asarray(np.random.default_rng(0).standard_normal((2, 6, 8, 8), np.float32))

    def model(params, x):
        return jax.lax.conv_general_dilated(x, params["w"], (2, 1), "SAME", feature_group_count=groups)

    use = products(model, params, images)["w"]
    assert use.weight.shape[-2:] == (6 // groups * 9, 12 // groups)


def test_every_layer_of_a_scan_is_captured_and_equals_the_same_layer_of_a_loop():
    params = {"layers": {"w": weight(3, 6, 6)}, "out": weight(6, 2)}

    def block(x, layer):
        return jnp.tanh(x @ layer["w"])

    def scanned(params, x):
        x, _ = jax.lax.scan(jax.checkpoint(lambda x, layer: (block(x, layer), None)), x, params["layers"])
        return x @ params["out"]

    def looped(params, x):
        for index in range(3):
            x = block(x, {"w": params["layers"]["w"][index]})
        return x @ params["out"]

    scan, loop = products(scanned, params, X), products(looped, params, X)
    assert list(scan) == ["layers/w[0]", "layers/w[1]", "layers/w[2]", "out"]
    for one, other in zip(scan.values(), loop.values(), strict=True):
        np.testing.assert_allclose(one.outputs, other.outputs, rtol=1e-5)


def test_a_weight_that_a_scan_shares_over_time_has_the_rows_of_all_steps():
    params = {"w": weight(6, 6)}

    def recurrent(params, x):
        return jax.lax.scan(lambda h, row: (jnp.tanh(row + h @ params["w"]), h), jnp.zeros(6), x)[1]

    (use,) = products(recurrent, params, X).values()
    assert use.inputs.shape == (5, 6)


def test_what_cannot_be_found_is_refused_by_name():
    def model(params, x):
        x = jax.lax.while_loop(lambda x: x.sum() > 1e9, lambda x: x @ params["inside"], x)
        return x @ params["out"]

    params = {"inside": weight(6, 6), "out": weight(6, 2)}
    assert list(capture(model, params, X)[1]) == ["out"]
    with pytest.raises(ValueError, match=r"'inside' was not seen in a product .* inside `while`"):
        capture(model, params, X, layers=["out", "inside"])
    with pytest.raises(ValueError, match="no parameter matches 'head': expected a path or pattern, of inside, out"):
        capture(model, params, X, layers=["head"])
