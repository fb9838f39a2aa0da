"""A transformer in plain JAX for long compilations: the blocks' parameters have a leading axis, which is scanned over.

Queries and keys are normalized per head, and the two halves of the gated MLP are one kernel of three axes.
"""

from functools import partial

import jax
import jax.numpy as jnp

VOCABULARY = 25
LAYERS = 3
HEAD_DIM = 16


def truncated(key, fan_in, shape):
    return jax.random.truncated_normal(key, -2, 2, shape) * fan_in**-0.5


def init_block(width, key):
    keys = jax.random.split(key, 4)
    heads = width // HEAD_DIM
    return {
        "attention": {
            "norm": jnp.ones(width),
            "qkv": truncated(keys[0], width, (3, width, heads, HEAD_DIM)),
            "q_norm": jnp.ones(HEAD_DIM),
            "k_norm": jnp.ones(HEAD_DIM),
            "out": truncated(keys[1], width, (heads, HEAD_DIM, width)),
        },
        "mlp": {
            "norm": jnp.ones(width),
            "wi": truncated(keys[2], width, (width, 2, 2 * width)),
            "bi": jnp.zeros((2, 2 * width)),
            "wo": truncated(keys[3], 2 * width, (2 * width, width)),
        },
    }


def build(width, key):
    embedder, blocks, logits = jax.random.split(key, 3)
    params = {
        "embedder": jax.random.normal(embedder, (VOCABULARY, width)),
        "blocks": jax.vmap(partial(init_block, width))(jax.random.split(blocks, LAYERS)),
        "final_norm": jnp.ones(width),
        "logits": {"kernel": truncated(logits, width, (width, VOCABULARY)), "bias": jnp.zeros(VOCABULARY)},
    }
    return params, forward


def rms_norm(scale, x):
    return scale * x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def attention(params, x):
    q, k, v = jnp.einsum("btn,snhd->sbthd", rms_norm(params["norm"], x), params["qkv"])
    q, k = rms_norm(params["q_norm"], q), rms_norm(params["k_norm"], k)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(HEAD_DIM)
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, where=causal), v)
    return jnp.einsum("bqhd,hdn->bqn", y, params["out"])


def mlp(params, x):
    up = jnp.einsum("btn,ngf->btgf", rms_norm(params["norm"], x), params["wi"]) + params["bi"]
    return (jax.nn.silu(up[..., 0, :]) * up[..., 1, :]) @ params["wo"]


@jax.checkpoint
def block(params, x):
    x = x + attention(params["attention"], x)
    return x + mlp(params["mlp"], x)


def forward(params, tokens):
    x = params["embedder"][tokens]
    x, _ = jax.lax.scan(lambda x, layer: (block(layer, x), None), x, params["blocks"])
    return rms_norm(params["final_norm"], x) @ params["logits"]["kernel"] + params["logits"]["bias"]
