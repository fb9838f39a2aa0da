"""Llama in Flax NNX: grouped queries, rotary positions and SwiGLU; blocks in a list, or stacked and scanned.

The number of key/value heads is the same at every width, as in the published family, so keys and values do not grow.
"""

import jax
import jax.numpy as jnp
from flax import nnx

VOCABULARY = 19
LAYERS = 3
HEAD_DIM = 8
KV_HEADS = 2

normal = nnx.initializers.normal(0.02)


def linear(inputs, outputs, rngs):
    return nnx.Linear(inputs, outputs, use_bias=False, kernel_init=nnx.initializers.lecun_normal(), rngs=rngs)


def rotate(x):
    """Apply rotary positions to (batch, time, heads, dim)."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None] * frequencies
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Attention(nnx.Module):
    def __init__(self, width, *, rngs):
        self.heads = width // HEAD_DIM
        self.q_proj = linear(width, width, rngs)
        self.k_proj = linear(width, KV_HEADS * HEAD_DIM, rngs)
        self.v_proj = linear(width, KV_HEADS * HEAD_DIM, rngs)
        self.o_proj = linear(width, width, rngs)

    def __call__(self, x):
        batch, time, width = x.shape
        q = rotate(self.q_proj(x).reshape(batch, time, self.heads, HEAD_DIM))
        k = rotate(self.k_proj(x).reshape(batch, time, KV_HEADS, HEAD_DIM))
        v = self.v_proj(x).reshape(batch, time, KV_HEADS, HEAD_DIM)
        k, v = (jnp.repeat(each, self.heads // KV_HEADS, axis=2) for each in (k, v))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.reshape(batch, time, width))


class MLP(nnx.Module):
    def __init__(self, width, *, rngs):
        self.gate_proj = linear(width, 3 * width, rngs)
        self.up_proj = linear(width, 3 * width, rngs)
        self.down_proj = linear(3 * width, width, rngs)

    def __call__(self, x):
        return self.down_proj(nnx.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nnx.Module):
    def __init__(self, width, *, rngs):
        self.input_norm = nnx.RMSNorm(width, rngs=rngs)
        self.attention = Attention(width, rngs=rngs)
        self.post_norm = nnx.RMSNorm(width, rngs=rngs)
        self.mlp = MLP(width, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Llama(nnx.Module):
    def __init__(self, width, *, rngs):
        self.embed = nnx.Embed(VOCABULARY, width, embedding_init=normal, rngs=rngs)
        self.blocks = nnx.List([Block(width, rngs=rngs) for _ in range(LAYERS)])
        self.norm = nnx.RMSNorm(width, rngs=rngs)
        self.lm_head = linear(width, VOCABULARY, rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


class ScannedLlama(nnx.Module):
    def __init__(self, width, *, rngs):
        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap
        def stack(rngs):
            return Block(width, rngs=rngs)

        self.embed = nnx.Embed(VOCABULARY, width, embedding_init=normal, rngs=rngs)
        self.blocks = stack(rngs)
        self.norm = nnx.RMSNorm(width, rngs=rngs)
        self.lm_head = linear(width, VOCABULARY, rngs)

    def __call__(self, tokens):
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        @nnx.remat
        def forward(block, x):
            return block(x)

        return self.lm_head(self.norm(forward(self.blocks, self.embed(tokens))))


def build_looped(width, key):
    return Llama(width, rngs=nnx.Rngs(key))


def build_scanned(width, key):
    return ScannedLlama(width, rngs=nnx.Rngs(key))
