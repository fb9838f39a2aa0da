"""A small network in plain JAX with biases and a norm, and data for it, for tests of plans."""

import jax
import jax.numpy as jnp
import numpy as np
import optax


def build(width, key):
    """A network whose inside grows as the square of its width, so that growth differs between layers."""
    keys = jax.random.split(key, 4)
    inside = width * width // 8
    params = {
        "in": {"kernel": jax.random.normal(keys[0], (5, width)), "bias": jnp.zeros(width)},
        "norm": {"scale": jnp.ones(width), "bias": jnp.zeros(width)},
        "up": {"kernel": jax.random.normal(keys[1], (width, inside)) * width**-0.5, "bias": jnp.zeros(inside)},
        "down": {"kernel": jax.random.normal(keys[2], (inside, width)) * inside**-0.5, "bias": jnp.zeros(width)},
        "out": {"kernel": jax.random.normal(keys[3], (width, 3)) * width**-0.5, "bias": jnp.zeros(3)},
    }
    return params, apply


def apply(params, x):
    def linear(name, x):
        return x @ params[name]["kernel"] + params[name]["bias"]

    x = linear("in", x)
    centered = x - x.mean(axis=-1, keepdims=True)
    normalized = centered * jax.lax.rsqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-6)
    x = params["norm"]["scale"] * normalized + params["norm"]["bias"]
    return linear("out", x + linear("down", jnp.tanh(linear("up", x))))


# JAX keeps constants that a function closes over, in the precision in which it first met them. With 32 bits it is the
# same whether or not some test enables 64.
X = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)
Y = np.random.default_rng(1).integers(3, size=16).astype(np.int32)


def loss(params):
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, X), Y).mean()


loss_and_gradients = jax.jit(jax.value_and_grad(loss))


def train(params, optimizer, steps=5):
    """Return the parameters after some steps."""
    state = optimizer.init(params)
    update = jax.jit(optimizer.update)
    for _ in range(steps):
        updates, state = update(loss_and_gradients(params)[1], state, params)
        params = optax.apply_updates(params, updates)
    return params
