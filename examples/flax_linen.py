"""Parameterize a Flax Linen model: three lines around the unchanged model."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import widthwise as ww

BASE_WIDTH = 32  # where the learning rate was tuned


class Model(nn.Module):
    width: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(16, self.width)(tokens)
        x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(16)(nn.LayerNorm()(x))


TOKENS = jax.random.randint(jax.random.key(1), (32, 8), 0, 16)
TARGETS = (3 * TOKENS + 1) % 16


def build(width: int):
    return Model(width).init(jax.random.key(0), TOKENS)["params"]


def train(width: int, learning_rate: float = 3e-3, steps: int = 100) -> float:
    params = build(width)
    exponents = ww.solve(ww.STANDARD, ww.ADAM, ww.FULL)
    other = jax.eval_shape(lambda: build(2 * width))
    sizes = {"width": width, "base_width": BASE_WIDTH}
    plan = ww.prescribe(
        params, exponents=exponents, **sizes, other=other, base=build(BASE_WIDTH), convention=ww.flax
    )  # 1
    params = plan.rescale(params)
    optimizer = ww.optim.adam(learning_rate, plan)  # 2

    @jax.jit
    def step(params, state):
        def loss(params):
            logits = Model(width).apply({"params": plan.effective(params)}, TOKENS)  # 3
            return optax.softmax_cross_entropy_with_integer_labels(logits, TARGETS).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state, value = optimizer.init(params), jnp.inf
    for _ in range(steps):
        params, state, value = step(params, state)
    return float(value)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
