"""Layers are found in any model, whatever it does to its weights before they act."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from widthwise.measure import Product, capture

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


def test_a_weight_for_each_member_of_a_batch_or_scaled_by_a_vector_is_not_taken_for_a_layer():
    params = {"w": weight(5, 6, 4), "v": weight(6, 4)}
    assert not capture(lambda p, x: jnp.einsum("bi,bio->bo", x, p["w"]), params, X)[1]
    assert not capture(lambda p, x: x @ (p["v"] * jnp.arange(4.0)), params, X)[1]


def test_what_cannot_be_found_is_refused_by_name():
    def stacked(params, x):
        return jax.lax.scan(lambda x, w: (x @ w, None), x, params["layers"])[0] @ params["out"]

    params = {"layers": weight(3, 6, 6), "out": weight(6, 2)}
    assert list(capture(stacked, params, X)[1]) == ["out"]
    with pytest.raises(ValueError, match=r"'layers' was not seen in a matrix product .* inside `lax.scan`"):
        capture(stacked, params, X, layers=["out", "layers"])
    with pytest.raises(ValueError, match="no parameter matches 'head': expected a path or pattern, of layers, out"):
        capture(stacked, params, X, layers=["head"])
