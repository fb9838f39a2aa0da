"""A selective state space model in plain JAX, after Mamba: a depthwise convolution, a scan over time, tied embeddings.

The rank of the step sizes and the size of the state do not grow with the width.
"""

import jax
import jax.numpy as jnp
from jax import lax

VOCABULARY = 27
LAYERS = 2
EXPAND = 2
KERNEL = 4
DT_RANK = 3
STATE = 5


def init_layer(key, width):
    inner = EXPAND * width
    keys = jax.random.split(key, 6)
    steps = jnp.exp(jax.random.uniform(keys[4], (inner,), minval=jnp.log(1e-3), maxval=jnp.log(1e-1)))
    return {
        "norm": jnp.ones(width),
        "in_proj": jax.random.normal(keys[0], (width, 2 * inner)) / jnp.sqrt(width),
        "conv_kernel": jax.random.normal(keys[1], (inner, 1, KERNEL)) / jnp.sqrt(KERNEL),
        "conv_bias": jnp.zeros(inner),
        "x_proj": jax.random.normal(keys[2], (inner, DT_RANK + 2 * STATE)) / jnp.sqrt(inner),
        "dt_proj": {
            "kernel": jax.random.normal(keys[3], (DT_RANK, inner)) / jnp.sqrt(DT_RANK),
            "bias": jnp.log(jnp.expm1(steps)),
        },
        "A_log": jnp.log(jnp.tile(jnp.arange(1.0, STATE + 1), (inner, 1))),
        "D": jnp.ones(inner),
        "out_proj": jax.random.normal(keys[5], (inner, width)) / jnp.sqrt(inner),
    }


def build(width, key):
    embed, *layers = jax.random.split(key, 1 + LAYERS)
    params = {
        "embed": 0.02 * jax.random.normal(embed, (VOCABULARY, width)),
        "layers": [init_layer(key, width) for key in layers],
        "norm_f": jnp.ones(width),
    }
    return params, forward


def rms_norm(scale, x):
    return scale * x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-5)


def causal_convolution(kernel, bias, x):
    x = lax.conv_general_dilated(
        x,
        kernel,
        window_strides=(1,),
        padding=[(KERNEL - 1, 0)],
        dimension_numbers=("NWC", "OIW", "NWC"),
        feature_group_count=x.shape[-1],
    )
    return x + bias


def selective_scan(x, dt, a, b, c):
    """Return the outputs of h' = exp(dt a) h + dt b x, y = c h, one state per channel of x (batch, time, inner)."""

    def step(h, inputs):
        x, dt, b, c = inputs
        h = jnp.exp(dt[..., None] * a) * h + (dt * x)[..., None] * b[:, None, :]
        return h, jnp.einsum("bis,bs->bi", h, c)

    start = jnp.zeros((x.shape[0], x.shape[2], a.shape[-1]))
    _, y = lax.scan(step, start, [jnp.swapaxes(each, 0, 1) for each in (x, dt, b, c)])
    return jnp.swapaxes(y, 0, 1)


def mixer(params, x):
    x, gate = jnp.split(x @ params["in_proj"], 2, axis=-1)
    x = jax.nn.silu(causal_convolution(params["conv_kernel"], params["conv_bias"], x))
    dt, b, c = jnp.split(x @ params["x_proj"], [DT_RANK, DT_RANK + STATE], axis=-1)
    dt = jax.nn.softplus(dt @ params["dt_proj"]["kernel"] + params["dt_proj"]["bias"])
    y = selective_scan(x, dt, -jnp.exp(params["A_log"]), b, c) + params["D"] * x
    return (y * jax.nn.silu(gate)) @ params["out_proj"]


def forward(params, tokens):
    x = jnp.take(params["embed"], tokens, axis=0)
    for layer in params["layers"]:
        x = x + mixer(layer, rms_norm(layer["norm"], x))
    return rms_norm(params["norm_f"], x) @ params["embed"].T
