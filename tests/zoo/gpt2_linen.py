"""GPT-2 in Flax Linen: learned positions, fused queries, keys and values, and a head that is tied or not."""

import flax.linen as nn
import jax
import jax.numpy as jnp

VOCABULARY = 23
CONTEXT = 12
HEAD_DIM = 16

normal = nn.initializers.normal(0.02)


class CausalSelfAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        batch, time, width = x.shape
        heads = width // HEAD_DIM
        qkv = nn.Dense(3 * width, kernel_init=normal, name="c_attn")(x)
        q, k, v = (part.reshape(batch, time, heads, HEAD_DIM) for part in jnp.split(qkv, 3, axis=-1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(HEAD_DIM)
        mask = nn.make_causal_mask(jnp.ones((batch, time)))
        weights = nn.softmax(jnp.where(mask, scores, jnp.finfo(scores.dtype).min))
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, time, width)
        return nn.Dense(width, kernel_init=normal, name="c_proj")(y)


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        x = nn.gelu(nn.Dense(4 * width, kernel_init=normal, name="c_fc")(x))
        return nn.Dense(width, kernel_init=normal, name="c_proj")(x)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + CausalSelfAttention(name="attn")(nn.LayerNorm(name="ln_1")(x))
        return x + MLP(name="mlp")(nn.LayerNorm(name="ln_2")(x))


class GPT2(nn.Module):
    width: int
    layers: int = 2
    tied: bool = True

    @nn.compact
    def __call__(self, tokens):
        wte = nn.Embed(VOCABULARY, self.width, embedding_init=normal, name="wte")
        wpe = nn.Embed(CONTEXT, self.width, embedding_init=normal, name="wpe")
        x = wte(tokens) + wpe(jnp.arange(tokens.shape[-1]))
        for layer in range(self.layers):
            x = Block(name=f"h_{layer}")(x)
        x = nn.LayerNorm(name="ln_f")(x)
        if self.tied:
            return wte.attend(x)
        return nn.Dense(VOCABULARY, use_bias=False, kernel_init=normal, name="lm_head")(x)


def build_tied(width, key):
    model = GPT2(width)
    return model.init(key, jnp.zeros((1, CONTEXT), jnp.int32)), model.apply


def build_untied(width, key):
    model = GPT2(width, tied=False)
    params = model.init(key, jnp.zeros((1, CONTEXT), jnp.int32))["params"]

    def apply(params: dict, tokens: jax.Array):
        return model.apply({"params": params}, tokens)

    return params, apply
