"""Rates that follow measured alignment against fixed ones, at the same number of steps.

    python benchmarks/follow_alignment.py [--width 512] [--base-width 128] [--steps 600]

Learning rates are what they say at the base width, where all of these agree. At a larger width each is trained with
several base rates, and the held-out losses are printed: best over rates, and at the base width's best rate, which is
what reusing it gives.
"""

import argparse
import functools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax

from widthwise.measure import by_role
from widthwise.models import draw
from widthwise.optim import adam, follow_alignment, warmup_cosine
from widthwise.train import Inputs, Run, Spec, load_inputs, resolve

RATES = tuple(2.0**k for k in (-11, -10, -9, -8, -7, -6, -5))
EVERY = 25
SEEDS = 2


def run(spec: Spec, inputs: Inputs, *, follow: bool) -> list[list[float]]:
    """Train with every rate and seed, side by side; give held-out losses by rate and seed."""
    resolved = resolve(spec, vocabulary=inputs.batches.vocabulary, data={})
    held_out = jnp.asarray(inputs.evaluation.tokens), jnp.asarray(inputs.evaluation.weights)
    data = jax.tree.map(jnp.asarray, inputs.batches.data)
    items = jax.tree.map(jnp.asarray, inputs.batches.chunk(0, spec.steps))
    static = Static(resolved, inputs.batches.reader, follow)
    rates, seeds = (x.ravel() for x in jnp.meshgrid(jnp.array(RATES), jnp.arange(SEEDS), indexing="ij"))
    losses = _trained(rates, seeds, data, items, held_out, static)
    return np.asarray(losses).reshape(len(RATES), SEEDS).tolist()


class Static:
    """What is compiled for: compared by identity, one for each setting."""

    def __init__(self, run: Run, reader, follow: bool) -> None:
        self.run, self.reader, self.follow = run, reader, follow
        self.key = (run.program, run.spec.parameterization, run.spec.alignment, follow)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key


@functools.partial(jax.jit, static_argnames="static")
def _trained(rates, seeds, data, items, held_out, static: Static):
    return jax.vmap(lambda rate, seed: _one(rate, seed, data, items, held_out, static))(rates, seeds)


def _one(rate, seed, data, items, held_out, static: Static):
    program, plan, lane = static.run.program, static.run.prescription, static.run.lane
    schedule = warmup_cosine(steps=program.steps, warmup=program.warmup)
    optimizer = optax.with_extra_args_support(adam(rate, plan, schedule=schedule))
    if static.follow:
        optimizer = optax.chain(optimizer, follow_alignment(plan, every=EVERY, smoothing=0.5))
    initial = plan.scales.initial(draw(program.model, jax.random.key(seed)))
    weights = jnp.ones_like(held_out[0][0][:, 1:], jnp.float32)
    probe = held_out[0][0][:8, :-1]

    def step(carry, xs):
        params, state, aligned = carry
        index, item = xs
        tokens = static.reader.at(data, item)

        def loss(params):
            return program.loss(plan.effective(params), lane.attention_scale, tokens, weights)

        if static.follow:
            aligned = jax.lax.cond(
                (index + 1) % EVERY == 0,
                lambda: by_role(program.measure(initial, params, lane, probe), plan.layout),
                lambda: aligned,
            )
        updates, state = optimizer.update(jax.grad(loss)(params), state, params, alignment=aligned)
        return (optax.apply_updates(params, updates), state, aligned), None

    start = (initial, optimizer.init(initial), jnp.full((2, 3), jnp.nan))
    (params, _, _), _ = jax.lax.scan(step, start, (jnp.arange(program.steps), items))
    return program.evaluate(params, lane, *held_out)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--base-width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--blocks", type=int, default=4)
    chosen = parser.parse_args()
    found = {}
    for name in ("standard", "mup"):
        spec = Spec(
            width=chosen.width,
            base_width=chosen.base_width,
            blocks=chosen.blocks,
            steps=chosen.steps,
            warmup=chosen.steps // 10,
            parameterization=name,
        )
        inputs = load_inputs(spec)
        base = run(replace(spec, width=chosen.base_width), inputs, follow=False)
        best = int(np.nanargmin(np.mean(base, axis=1)))
        losses = {
            "full": run(spec, inputs, follow=False),
            "none": run(replace(spec, alignment="none"), inputs, follow=False),
            "followed": run(spec, inputs, follow=True),
        }
        print(f"{name}: width {chosen.width}, best base rate at width {chosen.base_width} is {RATES[best]:g}")
        for setting, table in losses.items():
            mean, here = np.mean(table, axis=1), int(np.nanargmin(np.mean(table, axis=1)))
            spread = np.ptp(table[best]) / 2
            print(f"  {setting:9} reused {mean[best]:.4f} ± {spread:.4f}, best {mean[here]:.4f} at {RATES[here]:g}")
        found[name] = {"base": base, **losses}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
