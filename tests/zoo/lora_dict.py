"""A classifier in plain JAX with low-rank additions to frozen weights, and with a weight-normalized layer."""

import jax
import jax.numpy as jnp

FEATURES = 13
CLASSES = 9
RANK = 3
ALPHA = 6.0

he_normal = jax.nn.initializers.he_normal(in_axis=-1, out_axis=-2)


def init_lora(key, width):
    w, a, b = jax.random.split(key, 3)
    return {
        "W": he_normal(w, (width, width)),
        "A": he_normal(a, (RANK, width)),
        "B": 0.02 * jax.random.normal(b, (width, RANK)),
        "bias": jnp.zeros(width),
    }


def build(width, key):
    keys = jax.random.split(key, 5)
    params = {
        "input": {"W": he_normal(keys[0], (width, FEATURES)), "bias": jnp.zeros(width)},
        "lora": [init_lora(key, width) for key in keys[1:3]],
        "normalized": {"v": jax.random.normal(keys[3], (width, width)), "g": jnp.ones(width), "bias": jnp.zeros(width)},
        "output": {"W": 0.02 * jax.random.normal(keys[4], (CLASSES, width)), "bias": jnp.zeros(CLASSES)},
    }
    return params, predict


def lora(params, x):
    weight = jax.lax.stop_gradient(params["W"]) + ALPHA / RANK * params["B"] @ params["A"]
    return x @ weight.T + params["bias"]


def weight_normalized(params, x):
    direction = params["v"] / jnp.linalg.norm(params["v"], axis=1, keepdims=True)
    return x @ (params["g"][:, None] * direction).T + params["bias"]


def predict(params, x):
    x = jax.nn.relu(x @ params["input"]["W"].T + params["input"]["bias"])
    for layer in params["lora"]:
        x = x + jax.nn.relu(lora(layer, x))
    x = jax.nn.relu(weight_normalized(params["normalized"], x))
    return x @ params["output"]["W"].T + params["output"]["bias"]
