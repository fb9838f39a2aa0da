"""Exponents in depth reach the parameters that they are for, and train as explicit multipliers of branches do."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.models import Transformer, deepen, draw, prescribe
from widthwise.models.storing import cast
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Prescription
from widthwise.theory import COMPLETEP, DEPTH_RULES, FULL, MUP, depth_exponents, solve

MODEL = Transformer(width=16, blocks=2, head_dim=8, context=8, vocabulary=13)
STEPS = 8


def planned(model: Transformer, optimizer: str, rule: str, ratio: float) -> tuple[Prescription, Prescription]:
    """Return what is prescribed without a rule for depth and with it."""
    family = OPTIMIZERS[optimizer].family
    plain = prescribe(model, solve(MUP, family, FULL), base_width=16)
    return plain, deepen(model, plain, depth_exponents(DEPTH_RULES[rule], family), ratio=ratio)


def explicit(model: Transformer, params, tokens: jax.Array, branch: float) -> jax.Array:
    """Compute logits with multipliers of branches written into the forward pass."""
    decoder = model._decoder(params, tokens)
    batch, time = tokens.shape
    x = (decoder.tokens(tokens) + decoder.positions(jnp.arange(time))).reshape(batch * time, -1)
    for block in decoder.blocks:
        x = x + branch * block.attention(block.attention_norm(x), batch, 1 / 8, cast)
        x = x + branch * block.mlp(block.mlp_norm(x), cast)
    return decoder.readout(decoder.norm(x)).reshape(batch, time, -1)


@functools.partial(jax.jit, static_argnames=("model", "optimizer", "branch"))
def train(scales, tokens, *, model: Transformer, optimizer: str, branch: float | None) -> jax.Array:
    """Return the losses of a few steps; branches are multiplied in the forward pass if a number is given."""
    rule = OPTIMIZERS[optimizer].build(0.01, scales, epsilon=1e-4 if optimizer == "adam" else None)

    def loss(params):
        effective, inputs = scales.effective(params), tokens[:, :-1]
        logits = (
            model.logits(effective, inputs, 1 / 8) if branch is None else explicit(model, effective, inputs, branch)
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(state, _):
        params, kept = state
        value, gradients = jax.value_and_grad(loss)(params)
        updates, kept = rule.update(gradients, kept, params)
        return (optax.apply_updates(params, updates), kept), value

    params = scales.initial(draw(model, jax.random.key(0)))
    return jax.lax.scan(step, (params, rule.init(params)), length=STEPS)[1]


@pytest.mark.parametrize(("optimizer", "power"), [("adam", 1), ("sgd", 2)])
def test_branches_multiplied_in_a_weight_or_folded_into_it_train_as_explicit_multipliers_do(optimizer, power):
    ratio, factor = 4.0, 1 / 4
    with jax.enable_x64(True):
        model = replace(MODEL, dtype="float64")
        plain, deep = planned(model, optimizer, "completep", ratio)
        last = plain.layout.tree(
            [factor if leaf.path.endswith(model.branch_ends) else 1.0 for leaf in plain.layout.leaves]
        )
        written = replace(deep.scales, multiplier=plain.scales.multiplier)  # the forward pass multiplies instead
        folded = replace(
            written,
            init_std=jax.tree.map(lambda x, f: x * f, written.init_std, last),
            learning_rate=jax.tree.map(lambda x, f: x * f**power, written.learning_rate, last),
            epsilon=jax.tree.map(lambda x, f: x / f, written.epsilon, last),
        )
        tokens = jnp.asarray(np.random.default_rng(0).integers(13, size=(4, 9)))
        run = functools.partial(train, tokens=tokens, model=model, optimizer=optimizer)
        expected = run(written, branch=factor)
        assert expected[-1] < expected[0] - 0.01
        np.testing.assert_allclose(run(deep.scales, branch=None), expected, rtol=1e-12)
        np.testing.assert_allclose(run(folded, branch=None), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("optimizer", "rule", "matrix", "vector"),
    [
        ("adam", "completep", 1, 1),
        ("adam", "sqrt", 1 / 2, 1 / 2),
        ("sgd", "completep", 4, 4),
        ("muon", "sqrt", 1 / 2, 1 / 2),
    ],
)
def test_rates_change_inside_of_blocks_alone_and_branches_at_their_ends(optimizer, rule, matrix, vector):
    """At four times the depth."""
    plain, deep = planned(MODEL, optimizer, rule, 4)
    branch = {"completep": 1 / 4, "sqrt": 1 / 2}[rule]
    rows = zip(plain.layout.leaves, plain.scales.by_leaf(), deep.scales.by_leaf(), strict=True)
    for leaf, before, after in rows:
        inside, ends = leaf.path.startswith("blocks/"), leaf.path.endswith(("/out/kernel", "/down/kernel"))
        rate = (matrix if leaf.axes.inputs else vector) if inside else 1
        assert after.learning_rate == pytest.approx(before.learning_rate * rate), leaf.path
        assert after.multiplier == pytest.approx(before.multiplier * (branch if ends else 1)), leaf.path
        assert after.epsilon == pytest.approx(before.epsilon * (branch if inside else 1)), leaf.path
        assert after.init_std == before.init_std, leaf.path


def test_at_the_base_depth_nothing_changes():
    plain, deep = planned(MODEL, "adam", COMPLETEP.name, 1)
    assert jax.tree.leaves(plain.scales) == jax.tree.leaves(deep.scales)
