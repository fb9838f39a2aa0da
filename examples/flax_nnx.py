"""A Flax NNX model: tuned at width 32, trained at any width."""

import jax
import jax.numpy as jnp
from flax import nnx

import widthwise as ww


class Model(nnx.Module):
    def __init__(self, width: int, *, rngs: nnx.Rngs):
        self.embed = nnx.Linear(8, width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(width // 8, width, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x)
        return self.head(self.norm(x + self.attention(x)))


def build(width: int, key: jax.Array) -> Model:
    return Model(width, rngs=nnx.Rngs(key))


def train(width: int, learning_rate: float = 1e-2, steps: int = 100) -> float:
    x = jax.random.normal(jax.random.key(1), (32, 4, 8))
    y = jnp.sin(x.sum(axis=2, keepdims=True))
    plan = ww.plan(build, width=width, base_width=32, example=x)
    model = plan.init(jax.random.key(0))
    optimizer = nnx.Optimizer(model, plan.adamw(learning_rate), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        loss, gradients = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, gradients)
        return loss

    loss = jnp.inf
    for _ in range(steps):
        loss = step(model, optimizer)
    return float(loss)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
