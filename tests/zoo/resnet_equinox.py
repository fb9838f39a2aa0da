"""A pre-activation ResNet in Equinox, for one image; the batch is mapped over outside."""

import equinox as eqx
import jax
import jax.numpy as jnp

CLASSES = 7
GROUPS = 4


def convolution(inputs, outputs, size, stride=1, *, key):
    return eqx.nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, use_bias=False, key=key)


class Block(eqx.Module):
    norm1: eqx.nn.GroupNorm
    conv1: eqx.nn.Conv2d
    norm2: eqx.nn.GroupNorm
    conv2: eqx.nn.Conv2d
    shortcut: eqx.nn.Conv2d | None

    def __init__(self, inputs, outputs, stride, *, key):
        keys = jax.random.split(key, 3)
        self.norm1 = eqx.nn.GroupNorm(GROUPS, inputs)
        self.conv1 = convolution(inputs, outputs, 3, stride, key=keys[0])
        self.norm2 = eqx.nn.GroupNorm(GROUPS, outputs)
        self.conv2 = convolution(outputs, outputs, 3, key=keys[1])
        self.shortcut = None if inputs == outputs else convolution(inputs, outputs, 1, stride, key=keys[2])

    def __call__(self, x):
        y = jax.nn.relu(self.norm1(x))
        x = x if self.shortcut is None else self.shortcut(y)
        y = self.conv1(y)
        return x + self.conv2(jax.nn.relu(self.norm2(y)))


class ResNet(eqx.Module):
    stem: eqx.nn.Conv2d
    blocks: list[Block]
    norm: eqx.nn.GroupNorm
    head: eqx.nn.Linear

    def __init__(self, width, *, key):
        keys = jax.random.split(key, 4)
        self.stem = eqx.nn.Conv2d(3, width, 3, padding=1, key=keys[0])
        self.blocks = [Block(width, width, 1, key=keys[1]), Block(width, 2 * width, 2, key=keys[2])]
        self.norm = eqx.nn.GroupNorm(GROUPS, 2 * width)
        self.head = eqx.nn.Linear(2 * width, CLASSES, key=keys[3])

    def __call__(self, image):
        x = self.stem(image)
        for block in self.blocks:
            x = block(x)
        x = jnp.mean(jax.nn.relu(self.norm(x)), axis=(1, 2))
        return self.head(x)


def build(width, key):
    return ResNet(width, key=key)
