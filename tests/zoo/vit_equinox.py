"""A vision transformer in Equinox, for one image: patches, a class token, positions, and the layers of `eqx.nn`."""

import equinox as eqx
import jax
import jax.numpy as jnp

CLASSES = 11
PATCH = 4
PATCHES = 9
HEAD_DIM = 16


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, width, *, key):
        attention, mlp = jax.random.split(key)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(width // HEAD_DIM, width, use_output_bias=True, key=attention)
        self.norm2 = eqx.nn.LayerNorm(width)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, depth=1, activation=jax.nn.gelu, key=mlp)

    def __call__(self, x):
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


class ViT(eqx.Module):
    patch_embedding: eqx.nn.Conv2d
    class_token: jax.Array
    positions: jax.Array
    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, width, *, key):
        keys = jax.random.split(key, 6)
        self.patch_embedding = eqx.nn.Conv2d(3, width, PATCH, stride=PATCH, key=keys[0])
        self.class_token = 0.02 * jax.random.normal(keys[1], (1, width))
        self.positions = 0.02 * jax.random.normal(keys[2], (PATCHES + 1, width))
        self.blocks = tuple(Block(width, key=key) for key in keys[3:5])
        self.norm = eqx.nn.LayerNorm(width)
        self.head = eqx.nn.Linear(width, CLASSES, key=keys[5])

    def __call__(self, image):
        patches = self.patch_embedding(image)
        x = patches.reshape(patches.shape[0], -1).T
        x = jnp.concatenate([self.class_token, x]) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[0]))


def build(width, key):
    return ViT(width, key=key)
