"""Parameterize an Equinox model: three lines around the unchanged model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import widthwise as ww

BASE_WIDTH = 32  # where the learning rate was tuned


def build(width: int):
    model = eqx.nn.MLP(in_size=8, out_size=1, width_size=width, depth=3, key=jax.random.key(0))
    return eqx.partition(model, eqx.is_inexact_array)


def train(width: int, learning_rate: float = 0.05, steps: int = 200) -> float:
    params, static = build(width)
    exponents = ww.solve(ww.MUP, ww.SGD, ww.FULL)
    other, base = jax.eval_shape(lambda: build(2 * width)[0]), build(BASE_WIDTH)[0]
    sizes = {"width": width, "base_width": BASE_WIDTH}
    plan = ww.prescribe(params, exponents=exponents, **sizes, other=other, base=base, convention=ww.equinox)  # 1
    params = plan.rescale(params)
    optimizer = ww.optim.sgd(learning_rate, plan)  # 2
    x = jax.random.normal(jax.random.key(1), (64, 8))
    y = jnp.sin(x.sum(axis=1, keepdims=True))

    @jax.jit
    def step(params, state):
        def loss(params):
            model = eqx.combine(plan.effective(params), static)  # 3
            return jnp.mean((jax.vmap(model)(x) - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state, value = optimizer.init(params), jnp.inf
    for _ in range(steps):
        params, state, value = step(params, state)
    return float(value)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
