"""A model that is a dict and a function: tuned at width 32, trained at any width."""

import jax
import jax.numpy as jnp
import optax

import widthwise as ww


def build(width: int, key: jax.Array):
    sizes = [8, width, width, 1]
    keys = jax.random.split(key, 3)
    shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [jax.random.normal(key, (n, m)) / n**0.5 for key, n, m in shapes], predict


def predict(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    first, second, last = weights
    return jnp.tanh(jnp.tanh(x @ first) @ second) @ last


def train(width: int, learning_rate: float = 1e-2, steps: int = 200) -> float:
    x = jax.random.normal(jax.random.key(1), (64, 8))
    y = jnp.sin(x.sum(axis=1, keepdims=True))
    plan = ww.plan(build, width=width, base_width=32, example=x)
    params = plan.init(jax.random.key(0))
    optimizer = plan.adamw(learning_rate)

    @jax.jit
    def step(params, state):
        loss, gradients = jax.value_and_grad(lambda params: jnp.mean((predict(params, x) - y) ** 2))(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, loss = optimizer.init(params), jnp.inf
    for _ in range(steps):
        params, state, loss = step(params, state)
    return float(loss)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
