"""What orthogonalized updates of hidden layers change does not depend on width, with the rates of the theory."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.fit import exponent
from widthwise.measure import measure
from widthwise.models import MLP, draw, prescribe
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants
from widthwise.theory import FULL, MUP, solve

WIDTHS = (64, 256)


def slopes(optimizer: str) -> list[float]:
    """Return the slope of rms(ΔW z⁰) against width after three steps, for every hidden layer."""
    exponents = solve(MUP, OPTIMIZERS[optimizer].family, FULL)
    sizes = []
    for width in WIDTHS:
        model = MLP(width=width)
        keys = jax.random.split(jax.random.key(9))
        x, y = (jax.random.normal(key, (32, n)) for key, n in zip(keys, (model.inputs, model.outputs), strict=True))
        plan = prescribe(model, exponents, base_width=64, constants=Constants(embedding=0.01))
        rule = OPTIMIZERS[optimizer].build(0.03, plan)

        @jax.jit
        def updated(seed, model=model, x=x, y=y, plan=plan, rule=rule):
            initial = plan.scales.initial(draw(model, jax.random.key(seed)))

            def loss(params):
                return jnp.mean(jnp.square(model.logits(plan.effective(params), x) - y))

            params, state = initial, rule.init(initial)
            for _ in range(3):
                updates, state = rule.update(jax.grad(loss)(params), state, params)
                params = optax.apply_updates(params, updates)
            found = measure(lambda params: model.logits(params, x), plan.effective(initial), plan.effective(params))
            return jnp.stack([found[path].updated for path in found.paths if path.startswith("hidden")])

        sizes.append(np.mean([np.log(updated(seed)) for seed in range(3)], axis=0))
    return [exponent(WIDTHS, np.exp([at[layer] for at in sizes]).tolist()) for layer in range(len(sizes[0]))]


@pytest.mark.parametrize("optimizer", ["muon", "muon_out_in", "muon_max"])
def test_with_derived_exponents_it_stays(optimizer: str):
    """With √max(out, in) and a rate for all widths it would grow as n^1/2."""
    assert slopes(optimizer) == pytest.approx([0, 0], abs=0.15)
