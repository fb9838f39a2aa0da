"""Rates follow measured alignment within their bounds, smoothly, and not at all at the base width."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.measure import by_role, measure
from widthwise.models import MLP, draw, prescribe
from widthwise.optim import adam, follow_alignment
from widthwise.theory import ADAM, FULL, NONE, STANDARD, check, solve

MODEL = MLP(width=64, hidden_layers=2)
PARAMS = draw(MODEL, jax.random.key(0))
FULLY, NOT_AT_ALL = jnp.array([[1, 0.5, 1]] * 2), jnp.array([[0.5, 0.5, 0.5]] * 2)


def plan_for(base_width: int = 16, alignment=FULL):
    return prescribe(MODEL, solve(STANDARD, ADAM, alignment), base_width=base_width)


def factors(plan, alignments, **options):
    """Return the factors on updates of embedding, hidden and readout after each step."""
    transformation = follow_alignment(plan, **options)
    state, found = transformation.init(PARAMS), []
    ones = jax.tree.map(jnp.ones_like, PARAMS)
    update = jax.jit(lambda state, alignment: transformation.update(ones, state, PARAMS, alignment=alignment))
    for alignment in alignments:
        updates, state = update(state, alignment)
        found.append([float(updates[x][0][0]) for x in ("embedding",)])
        found[-1] += [float(updates["hidden"][1][0, 0]), float(updates["readout"][0, 0])]
    return np.array(found)


def test_the_prescribed_alignment_changes_nothing():
    np.testing.assert_allclose(factors(plan_for(), [FULLY] * 4, every=1), 1, rtol=1e-5)


def test_rates_rise_to_those_of_no_alignment_when_none_is_measured():
    """Standard under Adam: from n^-1 to n^-1/2 for hidden and readout, a factor of 4^1/2 at four times the width."""
    found = factors(plan_for(), [NOT_AT_ALL] * 3, every=1, smoothing=0.0)
    np.testing.assert_allclose(found, [[1, 2, 2]] * 3, rtol=1e-5)


def test_rates_move_every_so_many_steps_and_smoothly():
    found = factors(plan_for(), [NOT_AT_ALL] * 6, every=3, smoothing=0.5)
    np.testing.assert_allclose(found[:, 1], [1, 1, 4**0.25, 4**0.25, 4**0.25, 4**0.375], rtol=1e-5)


def test_rates_stay_within_bounds():
    nonsense = jnp.array([[-3, 0.5, -2], [-3, 0.5, -2.0]])
    np.testing.assert_allclose(factors(plan_for(), [nonsense], every=1, smoothing=0.0)[0], [1, 2, 2], rtol=1e-5)
    aligned = jnp.array([[1, 0.9, 1], [1, 1, 1.0]])  # without bounds, the embedding would slow down
    np.testing.assert_allclose(factors(plan_for(), [aligned], every=1, smoothing=0.0)[0], 1, rtol=1e-5)
    narrow = factors(plan_for(), [NOT_AT_ALL], every=1, smoothing=0.0, fastest=FULL)
    np.testing.assert_allclose(narrow[0], 1, rtol=1e-5)


def test_at_the_base_width_nothing_is_followed():
    np.testing.assert_allclose(factors(plan_for(64), [NOT_AT_ALL] * 3, every=1, smoothing=0.0), 1, rtol=1e-6)


def test_what_is_not_finite_leaves_rates_as_they_are():
    nothing = jnp.full((2, 3), jnp.nan)
    found = factors(plan_for(), [NOT_AT_ALL, nothing, nothing], every=1, smoothing=0.0)
    np.testing.assert_allclose(found[:, 1], 2, rtol=1e-5)


def test_unscaled_leaves_and_lanes_are_left_to_themselves():
    transformation = follow_alignment(plan_for(), every=1, smoothing=0.0)
    ones = jax.tree.map(jnp.ones_like, PARAMS)
    state = transformation.init(PARAMS)

    def lane(alignment):
        return transformation.update(ones, state, PARAMS, alignment=alignment)[0]["readout"][0, 0]

    np.testing.assert_allclose(jax.vmap(lane)(jnp.stack([FULLY, NOT_AT_ALL])), [1, 2], rtol=1e-5)


def test_it_trains_behind_an_optimizer_with_what_is_measured():
    plan = plan_for()
    optimizer = optax.chain(adam(1e-2, plan), follow_alignment(plan, every=2, smoothing=0.5))
    random = np.random.default_rng(1)
    x, y = (jnp.asarray(random.standard_normal((16, size), np.float32)) for size in (MODEL.inputs, MODEL.outputs))
    initial = plan.scales.initial(PARAMS)

    @jax.jit
    def step(params, state):
        loss, gradients = jax.value_and_grad(lambda p: jnp.mean((MODEL.logits(plan.effective(p), x) - y) ** 2))(params)
        found = measure(MODEL.logits, plan.effective(initial), plan.effective(params), x)
        aligned = by_role(found, plan.layout)
        updates, state = optimizer.update(gradients, state, params, alignment=aligned)
        return optax.apply_updates(params, updates), state, loss, aligned

    params, state, losses, aligned = initial, optimizer.init(initial), [], FULLY
    for _ in range(10):
        params, state, loss, aligned = step(params, state)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    assert 0.5 < float(aligned[0, 0]) <= 1
    exponents = np.asarray(state[1].exponents)
    assert exponents[0] == 0
    assert 0.5 < exponents[1] < 1


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="every is 0"):
        follow_alignment(plan_for(), every=0)
    with pytest.raises(ValueError, match=r"smoothing is 1\.0"):
        follow_alignment(plan_for(), smoothing=1.0)
    transformation = follow_alignment(plan_for())
    with pytest.raises(ValueError, match="without `alignment`"):
        transformation.update(PARAMS, transformation.init(PARAMS), PARAMS)


def test_exponents_of_ones_own_are_where_it_begins():
    plan = prescribe(MODEL, check(STANDARD, [0, "3/4", "3/4"], ADAM, NONE), base_width=16)
    found = factors(plan, [FULLY, FULLY], every=2, smoothing=0.0)
    np.testing.assert_allclose(found[0], 1, rtol=1e-5)
    np.testing.assert_allclose(found[1, 1:], 4**-0.25, rtol=1e-5)
