"""A Flax Linen model: tuned at width 32, trained at any width."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

import widthwise as ww


class Model(nn.Module):
    width: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(16, self.width)(tokens)
        x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(16)(nn.LayerNorm()(x))


def train(width: int, learning_rate: float = 3e-3, steps: int = 100) -> float:
    tokens = jax.random.randint(jax.random.key(1), (32, 8), 0, 16)
    targets = (3 * tokens + 1) % 16
    plan = ww.plan(Model, width=width, base_width=32, example=tokens)
    params = plan.init(jax.random.key(0))
    state = TrainState.create(apply_fn=Model(width).apply, params=params, tx=plan.adamw(learning_rate))

    @jax.jit
    def step(state):
        def loss(params):
            logits = state.apply_fn({"params": params}, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

        value, gradients = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    value = jnp.inf
    for _ in range(steps):
        state, value = step(state)
    return float(value)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
