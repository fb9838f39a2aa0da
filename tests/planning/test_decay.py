"""Weights of a network that is trained under a plan settle where the theory says for each rule of weight decay."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import widthwise as ww
from widthwise.theory import ALIGNED_UPDATES, DECAY_RULES, INDEPENDENT_UPDATES, equilibria, without_multipliers

BASE, WIDTHS = 16, (16, 32, 64)
RATE, PART = 0.1, 0.04
"""The learning rate, and what a step removes at the base width."""
INPUTS, OUTPUTS, BATCH = 16, 8, 8
LAYERS = ("embedding", "hidden", "readout")


def build(width: int, key: jax.Array):
    shapes = {"embedding": (INPUTS, width), "hidden": (width, width), "readout": (width, OUTPUTS)}
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, s) / s[0] ** 0.5 for k, (name, s) in zip(keys, shapes.items(), strict=True)}, act


def act(params, x, activation=jnp.tanh):
    return activation(activation(x @ params["embedding"]) @ params["hidden"]) @ params["readout"]


@cache
def settled(rule: str, width: int, *, agree: bool) -> dict[str, tuple[float, float]]:
    """Return the size that weights have after training, and the part of it that the update of a step changes.

    The loss is a random combination of the logits, so there is nothing to learn that would end this. Updates are
    independent if it is another one at every step. They agree if it is always the same and no activation saturates.
    """
    plan = ww.plan(build, width=width, base_width=BASE, example=jnp.ones((2, INPUTS)), decay_rule=rule)
    optimizer = plan.adamw(RATE, weight_decay=PART / RATE, b1=0.0, b2=0.9, eps=1e-20)
    removed = {name: PART * plan.factors[name].decay for name in LAYERS}

    def step(carried, key):
        params, state = carried
        data, combination = jax.random.split(jax.random.key(1) if agree else key)
        x, signs = jax.random.normal(data, (BATCH, INPUTS)), jax.random.normal(combination, (BATCH, OUTPUTS))
        activation = (lambda z: z) if agree else jnp.tanh
        gradients = jax.grad(lambda params: jnp.mean(signs * act(params, x, activation)))(params)
        updates, state = optimizer.update(gradients, state, params)
        without_decay = jax.tree.map(lambda u, w, part: u + part * w, updates, params, removed)
        return (optax.apply_updates(params, updates), state), jax.tree.map(rms, (params, without_decay))

    params = plan.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(2), int(60 / min(part for part in removed.values() if part)))
    start = (params, optimizer.init(params))
    weights, updates = jax.jit(lambda start: jax.lax.scan(step, start, keys)[1])(start)
    late = slice(-len(keys) // 2, None)
    sizes = {name: (float(rms(weights[name][late])), float(rms(updates[name][late]))) for name in LAYERS}
    return {name: (weight, update / weight) for name, (weight, update) in sizes.items()}


def rms(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.square(x)))


def slope(values: list[float]) -> float:
    return float(np.polyfit(np.log(WIDTHS), np.log(values), 1)[0])


@pytest.mark.parametrize("agree", [False, True], ids=["independent updates", "updates that agree"])
@pytest.mark.parametrize("rule", DECAY_RULES)
def test_weights_settle_at_the_derived_size_and_effective_rate(rule: str, agree: bool):
    case = without_multipliers(ww.solve(ww.MUP, ww.ADAM, ww.FULL))
    derived = equilibria(case, DECAY_RULES[rule], persistence=ALIGNED_UPDATES if agree else INDEPENDENT_UPDATES)
    for name, expected in zip(LAYERS, derived, strict=True):
        if expected is None:  # no decay, no equilibrium
            continue
        sizes, rates = zip(*(settled(rule, width, agree=agree)[name] for width in WIDTHS), strict=True)
        assert expected.size is not None
        assert slope(sizes) == pytest.approx(-float(expected.size), abs=0.08)
        assert slope(rates) == pytest.approx(-float(expected.effective_rate), abs=0.08)
        assert rates[0] == pytest.approx(PART if agree else (2 * PART) ** 0.5, rel=0.1)
