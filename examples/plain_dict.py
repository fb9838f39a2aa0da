"""Parameterize a model that is a dict and a function: three lines, and rules instead of a framework convention."""

import jax
import jax.numpy as jnp
import optax

import widthwise as ww

BASE_WIDTH = 32  # where the learning rate was tuned
RULES = {"w*": ww.Rule(axes=ww.Axes(inputs=(0,), outputs=(1,)))}


def build(width: int) -> dict[str, jax.Array]:
    sizes = [8, width, width, 1]
    keys = jax.random.split(jax.random.key(0), len(sizes))
    shapes = zip(keys, sizes, sizes[1:], strict=False)
    return {f"w{i}": jax.random.normal(key, (n, m)) / n**0.5 for i, (key, n, m) in enumerate(shapes)}


def predict(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.tanh(x @ params["w0"]) @ params["w1"]) @ params["w2"]


def train(width: int, learning_rate: float = 1e-2, steps: int = 200) -> float:
    params = build(width)
    exponents = ww.solve(ww.MEAN_FIELD, ww.ADAM, ww.FULL)
    other, base = jax.eval_shape(lambda: build(2 * width)), build(BASE_WIDTH)
    sizes = {"width": width, "base_width": BASE_WIDTH}
    plan = ww.prescribe(params, exponents=exponents, **sizes, other=other, base=base, rules=RULES)  # 1
    params = plan.rescale(params)
    optimizer = ww.optim.adam_atan2(learning_rate, plan)  # 2
    x = jax.random.normal(jax.random.key(1), (64, 8))
    y = jnp.sin(x.sum(axis=1, keepdims=True))

    @jax.jit
    def step(params, state):
        def loss(params):
            return jnp.mean((predict(plan.effective(params), x) - y) ** 2)  # 3

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state, value = optimizer.init(params), jnp.inf
    for _ in range(steps):
        params, state, value = step(params, state)
    return float(value)


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
