"""Rules for depth, batch size and tokens: what they change in a run, and that nothing changes without them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import ones_like
from widthwise.train import Spec, resolve

SPEC = Spec(parameterization="mup", width=64, base_width=32, head_dim=16, weight_decay=1e-4)
"""With the depth, the batch and the tokens of the base."""


def run(**changes):
    return resolve(replace(SPEC, **changes), vocabulary=257, data={})


def test_at_the_base_rules_change_nothing_and_a_run_stays_the_same_run():
    rules = {"depth_rule": "completep", "batch_rule": "sde", "token_rule": "horizon"}
    assert run(**rules).id == run().id
    assert run(**rules, blocks=8).id != run(blocks=8).id
    assert run(**rules, batch=64, steps=150).id != run(batch=64, steps=150).id
    assert run(**rules, steps=600).id != run(steps=600).id


def test_without_rules_the_base_makes_no_difference():
    assert run(blocks=8, base_blocks=2, batch=64, base_batch=8, base_tokens=10).id == run(blocks=8, batch=64).id


def test_options_with_their_defaults_are_not_part_of_a_request():
    added = {"depth_rule", "base_blocks", "batch_rule", "base_batch", "token_rule", "base_tokens"}
    assert added.isdisjoint(SPEC.to_json())
    changed = replace(SPEC, depth_rule="sqrt", base_blocks=2)
    assert added & changed.to_json().keys() == {"depth_rule", "base_blocks"}
    assert Spec.from_json(changed.to_json()) == changed


def test_a_batch_four_times_as_large_follows_the_sde_rule():
    """At the same number of tokens, so that only the batch grows."""
    before, after = run(), run(batch=128, steps=75, batch_rule="sde", token_rule="horizon")
    assert after.lane.learning_rate == pytest.approx(2 * before.lane.learning_rate)
    assert after.lane.epsilon == pytest.approx(before.lane.epsilon / 2)
    assert after.program.b2 == pytest.approx(1 - 4 * 0.02)
    assert after.identity["b2"] == pytest.approx(0.92)
    decays = (jax.tree.leaves(each.lane.weight_decay)[0] for each in (before, after))
    assert next(decays) * 2 == pytest.approx(next(decays))  # λ stays, and a step removes the learning rate times λ


def test_four_times_the_tokens_and_a_power_of_ones_own():
    assert run(steps=1200, token_rule="horizon").lane.learning_rate == pytest.approx(3e-3 * 4**-0.32)
    assert run(steps=1200, token_rule="-1/2").lane.learning_rate == pytest.approx(3e-3 / 2)


def test_an_epsilon_next_to_squared_gradients_changes_twice_as_fast():
    before, after = (run(optimizer="adafactor", batch=batch, batch_rule="sde") for batch in (32, 128))
    assert after.lane.epsilon == pytest.approx(before.lane.epsilon / 4)
    assert after.program.b2 is None  # it has none


def test_rules_that_leave_b2_alone_share_the_program():
    programs = {run(blocks=8, depth_rule=rule).program for rule in ("completep", "sqrt", "constant", "3/4")}
    programs |= {run(blocks=8, token_rule=rule, base_tokens=10**5).program for rule in ("horizon", "constant")}
    assert len(programs) == 1


@pytest.mark.parametrize("name", ["adam", "adam_atan2"])
def test_an_optimizer_is_built_with_the_b2_of_a_rule(name):
    """After gradients 1 and 2, the second moment is a weighted mean of their squares."""
    params = {"w": jnp.ones(3)}
    optimizer = OPTIMIZERS[name].build(1.0, ones_like(params), b2=0.5)
    state = optimizer.init(params)
    for size in (1.0, 2.0):
        _, state = optimizer.update({"w": jnp.full(3, size)}, state, params)
    second = next(leaf for leaf in jax.tree.leaves(state[0].nu))
    np.testing.assert_allclose(second, 0.5 * 0.5 * 1 + 0.5 * 4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth_rule": "deep"}, "depth_rule is 'deep'"),
        ({"depth_rule": "1/4"}, "no learning rate is stable"),
        ({"batch_rule": "big"}, "batch_rule is 'big'"),
        ({"token_rule": "long"}, "token_rule is 'long'"),
        ({"base_blocks": 0}, "base_blocks is 0"),
        ({"batch": 3200, "batch_rule": "sde"}, "makes β₂ -1, expected a number from 0 to 1"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        replace(SPEC, **values)
