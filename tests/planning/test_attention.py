"""Attention as 1/d in JAX: queries are found however a model is written, and training is that of an explicit factor."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import widthwise as ww

VOCABULARY, HEADS, LAYERS = 11, 2, 2
TOKENS = jax.random.randint(jax.random.key(3), (4, 6), 0, VOCABULARY)
BASE, WIDE = 16, 48
WEIGHTS = ("q", "k", "v", "o")


def build(width, key, *, kernel="einsum", scanned=False, explicit=False):
    """A transformer of attention alone, with a bias on queries and heads of growing size."""
    keys = jax.random.split(key, 7)
    blocks = {
        name: jax.random.normal(key, (LAYERS, width, width)) / width**0.5
        for name, key in zip(WEIGHTS, keys, strict=False)
    }
    params = {
        "embed": jax.random.normal(keys[4], (VOCABULARY, width)),
        "blocks": {**blocks, "q_bias": 0.1 * jax.random.normal(keys[5], (LAYERS, width))},
        "out": jax.random.normal(keys[6], (width, VOCABULARY)) / width**0.5,
    }
    return params, partial(forward, kernel, scanned, explicit)


def forward(kernel, scanned, explicit, params, tokens):
    x = params["embed"][tokens]
    block = jax.checkpoint(partial(attend, kernel, explicit))
    if scanned:
        x, _ = jax.lax.scan(lambda x, p: (block(x, p), None), x, params["blocks"])
    else:
        for layer in range(LAYERS):
            x = block(x, {name: p[layer] for name, p in params["blocks"].items()})
    return x @ params["out"]


def attend(kernel, explicit, x, p):
    normed = x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)

    def split(y):
        return y.reshape(*y.shape[:-1], HEADS, -1)

    q, k, v = split(normed @ p["q"] + p["q_bias"]), split(normed @ p["k"]), split(normed @ p["v"])
    if explicit:
        q = q * (q.shape[-1] / (BASE // HEADS)) ** -0.5
    if kernel == "einsum":
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    else:
        y = jax.nn.dot_product_attention(q, k, v)
    return x + y.reshape(x.shape) @ p["o"]


def changed(plan: ww.Plan, plain: ww.Plan) -> set[str]:
    return {path for path, factors in plan.factors.items() if factors != plain.factors[path]}


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("kernel", ["einsum", "fused"])
def test_one_side_of_the_scores_takes_the_factor(kernel: str, scanned: bool):
    made = partial(build, kernel=kernel, scanned=scanned)
    plain, folded = (ww.plan(made, width=4 * BASE, base_width=BASE, example=TOKENS, attention=x) for x in (None, "1/d"))
    sides = {"blocks/q", "blocks/q_bias"}, {"blocks/k"}  # JAX may exchange the two
    assert changed(folded, plain) in sides
    for path in changed(folded, plain):
        assert folded.factors[path].init == plain.factors[path].init / 2
        assert folded.factors[path].multiplier == 1
    assert changed(folded.at(BASE), plain.at(BASE)) == set()
    assert folded.explain().notes[0].startswith("attention falls as 1/d; the factor is in blocks/")


def test_attention_of_flax_takes_the_factor():
    class Model(nnx.Module):
        def __init__(self, width: int, key: jax.Array) -> None:
            rngs = nnx.Rngs(key)
            self.embed = nnx.Embed(VOCABULARY, width, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(HEADS, width, decode=False, rngs=rngs)
            self.out = nnx.Linear(width, VOCABULARY, rngs=rngs)

        def __call__(self, tokens):
            return self.out(self.attention(self.embed(tokens)))

    plain, folded = (ww.plan(Model, width=32, base_width=16, example=TOKENS, attention=x) for x in (None, "1/d"))
    assert changed(folded, plain) in [{f"attention/{x}/{y}" for y in ("kernel", "bias")} for x in ("query", "key")]


def test_folding_trains_as_the_explicit_factor_does():
    """In float64."""

    def losses(explicit: bool, attention) -> list[float]:
        made = partial(build, scanned=True, explicit=explicit)
        plan = ww.plan(made, width=WIDE, base_width=BASE, example=TOKENS, attention=attention)
        rule = plan.adamw(1e-2, eps=1e-4, weight_decay=0.1)
        params, apply = plan.init(jax.random.key(0)), made(WIDE, jax.random.key(0))[1]

        def loss(params):
            logits = apply(params, TOKENS)
            return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.roll(TOKENS, -1, 1)).mean()

        def step(carry, _):
            params, state = carry
            value, gradients = jax.value_and_grad(loss)(params)
            updates, state = rule.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), value

        return jax.jit(lambda start: jax.lax.scan(step, start, length=20)[1])((params, rule.init(params))).tolist()

    with jax.enable_x64(True):
        folded, expected = losses(False, "1/d"), losses(True, None)
    assert folded == pytest.approx(expected, rel=1e-9)
    assert folded[-1] < 0.5 * folded[0]
