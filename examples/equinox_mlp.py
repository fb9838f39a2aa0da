"""An Equinox model: tuned at width 32, trained at any width."""

import equinox as eqx
import jax
import jax.numpy as jnp

import widthwise as ww


def build(width: int, key: jax.Array) -> eqx.nn.MLP:
    return eqx.nn.MLP(in_size=8, out_size=1, width_size=width, depth=3, key=key)


def train(width: int, learning_rate: float = 0.05, steps: int = 200) -> float:
    x = jax.random.normal(jax.random.key(1), (64, 8))
    y = jnp.sin(x.sum(axis=1, keepdims=True))
    plan = ww.plan(build, width=width, base_width=32, example=x[0], optimizer="sgd")
    model = plan.init(jax.random.key(0))
    optimizer = plan.sgd(learning_rate, momentum=0.9)

    @eqx.filter_jit
    def step(model, state):
        loss, gradients = eqx.filter_value_and_grad(lambda model: jnp.mean((jax.vmap(model)(x) - y) ** 2))(model)
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state, loss

    state, loss = optimizer.init(eqx.filter(model, eqx.is_inexact_array)), jnp.inf
    for _ in range(steps):
        model, state, loss = step(model, state)
    return float(loss)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
