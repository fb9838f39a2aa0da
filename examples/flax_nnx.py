"""Parameterize a Flax NNX model: three lines around the unchanged model."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import widthwise as ww

BASE_WIDTH = 32  # where the learning rate was tuned


class Model(nnx.Module):
    def __init__(self, width: int, *, rngs: nnx.Rngs):
        self.embed = nnx.Linear(8, width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(width // 8, width, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x)
        return self.head(self.norm(x + self.attention(x)))


def build(width: int):
    return nnx.split(Model(width, rngs=nnx.Rngs(0)), nnx.Param)


def train(width: int, learning_rate: float = 1e-2, steps: int = 100) -> float:
    graph, params = build(width)
    exponents = ww.solve(ww.MUP, ww.ADAM, ww.FULL)
    other, base = jax.eval_shape(lambda: build(2 * width)[1]), build(BASE_WIDTH)[1]
    sizes = {"width": width, "base_width": BASE_WIDTH}
    plan = ww.prescribe(params, exponents=exponents, **sizes, other=other, base=base, convention=ww.flax)  # 1
    params = plan.rescale(params)
    optimizer = ww.optim.adam(learning_rate, plan)  # 2
    x = jax.random.normal(jax.random.key(1), (32, 4, 8))
    y = jnp.sin(x.sum(axis=2, keepdims=True))

    @jax.jit
    def step(params, state):
        def loss(params):
            return jnp.mean((nnx.merge(graph, plan.effective(params))(x) - y) ** 2)  # 3

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state, value = optimizer.init(params), jnp.inf
    for _ in range(steps):
        params, state, value = step(params, state)
    return float(value)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
