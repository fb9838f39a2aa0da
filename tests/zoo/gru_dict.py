"""A gated recurrent network in plain JAX: one cell, scanned over time from a learned first state."""

import jax
import jax.numpy as jnp

VOCABULARY = 17


def build(width, key):
    keys = jax.random.split(key, 5)
    glorot = jax.nn.initializers.glorot_normal()
    params = {
        "embed": 0.1 * jax.random.normal(keys[0], (VOCABULARY, width)),
        "h0": 0.1 * jax.random.normal(keys[1], (width,)),
        "w_x": glorot(keys[2], (width, 3 * width)),
        "w_h": glorot(keys[3], (width, 3 * width)),
        "b_x": jnp.zeros(3 * width),
        "b_h": jnp.zeros(3 * width),
        "out": {"w": glorot(keys[4], (width, VOCABULARY)), "b": jnp.zeros(VOCABULARY)},
    }
    return params, forward


def cell(params, h, x):
    reset_x, update_x, new_x = jnp.split(x @ params["w_x"] + params["b_x"], 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(h @ params["w_h"] + params["b_h"], 3, axis=-1)
    reset = jax.nn.sigmoid(reset_x + reset_h)
    update = jax.nn.sigmoid(update_x + update_h)
    return (1 - update) * jnp.tanh(new_x + reset * new_h) + update * h


def forward(params, tokens):
    def step(h, token):
        h = cell(params, h, params["embed"][token])
        return h, h

    start = jnp.broadcast_to(params["h0"], (tokens.shape[0], params["h0"].shape[0]))
    _, states = jax.lax.scan(step, start, tokens.T)
    return jnp.swapaxes(states, 0, 1) @ params["out"]["w"] + params["out"]["b"]
