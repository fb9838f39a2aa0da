"""A mixture-of-experts transformer in plain JAX: nested dicts, head-split projections, stacked experts, a router."""

import jax
import jax.numpy as jnp

VOCABULARY = 29
LAYERS = 2
HEAD_DIM = 16
EXPERTS = 5
CHOSEN = 2


def dense(key, fan_in, shape):
    return jax.random.normal(key, shape) / jnp.sqrt(fan_in)


def init_layer(key, width):
    keys = jax.random.split(key, 7)
    heads = width // HEAD_DIM
    return {
        "norm1": jnp.ones(width),
        "attention": {
            "wq": dense(keys[0], width, (width, heads, HEAD_DIM)),
            "wk": dense(keys[1], width, (width, heads, HEAD_DIM)),
            "wv": dense(keys[2], width, (width, heads, HEAD_DIM)),
            "wo": dense(keys[3], width, (heads, HEAD_DIM, width)),
        },
        "norm2": jnp.ones(width),
        "moe": {
            "router": dense(keys[4], width, (width, EXPERTS)),
            "w_up": dense(keys[5], width, (EXPERTS, width, 4 * width)),
            "b_up": jnp.zeros((EXPERTS, 4 * width)),
            "w_down": dense(keys[6], 4 * width, (EXPERTS, 4 * width, width)),
        },
    }


def build(width, key):
    embed, head, *layers = jax.random.split(key, 2 + LAYERS)
    params = {
        "embed": 0.02 * jax.random.normal(embed, (VOCABULARY, width)),
        "layers": [init_layer(key, width) for key in layers],
        "norm": jnp.ones(width),
        "head": dense(head, width, (width, VOCABULARY)),
    }
    return params, forward


def rms_norm(scale, x):
    return scale * x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def attend(params, x):
    q = jnp.einsum("btn,nhd->bthd", x, params["wq"])
    k = jnp.einsum("btn,nhd->bthd", x, params["wk"])
    v = jnp.einsum("btn,nhd->bthd", x, params["wv"])
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * HEAD_DIM**-0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
    y = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return jnp.einsum("bthd,hdn->btn", y, params["wo"])


def mixture(params, x):
    probabilities = jax.nn.softmax(x @ params["router"], axis=-1)
    weights, chosen = jax.lax.top_k(probabilities, CHOSEN)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    gates = jnp.einsum("btk,btke->bte", weights, jax.nn.one_hot(chosen, EXPERTS))
    up = jnp.einsum("btn,enf->ebtf", x, params["w_up"]) + params["b_up"][:, None, None]
    down = jnp.einsum("ebtf,efn->ebtn", jax.nn.gelu(up), params["w_down"])
    return jnp.einsum("bte,ebtn->btn", gates, down)


def forward(params, tokens):
    x = params["embed"][tokens]
    for layer in params["layers"]:
        x = x + attend(layer["attention"], rms_norm(layer["norm1"], x))
        x = x + mixture(layer["moe"], rms_norm(layer["norm2"], x))
    return rms_norm(params["norm"], x) @ params["head"]
