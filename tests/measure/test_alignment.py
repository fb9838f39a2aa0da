"""The log alignment ratio is what its definition says, in every model, at every moment."""

import functools
import math
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.measure import Product, by_role, capture, log_alignment_ratio, log_spaced, measure
from widthwise.measure.alignment import expansion
from widthwise.models import MLP, Transformer, draw, layout, prescribe
from widthwise.theory import ADAM, FULL, PARAMETERIZATIONS, solve

WIDE = Transformer(width=256, blocks=1, head_dim=64, context=32, vocabulary=256)
SMALL = Transformer(width=32, blocks=1, head_dim=16, context=8, vocabulary=16)
DENSE = ["attention/query", "attention/key", "attention/value", "attention/out", "mlp/up", "mlp/down"]


drawn = jax.jit(draw, static_argnums=0)
ratio = jax.jit(log_alignment_ratio)


def parameters(model: Transformer, name: str, seed: int = 0):
    plan = prescribe(model, solve(PARAMETERIZATIONS[name], ADAM, FULL), base_width=model.width)
    return jax.jit(lambda unit: plan.effective(plan.scales.initial(unit)))(drawn(model, jax.random.key(seed)))


@functools.partial(jax.jit, static_argnums=0)
def measured(model: MLP, before, after, x):
    return measure(model.logits, before, after, x)


def tokens(model: Transformer, batch: int = 8) -> jax.Array:
    return jnp.asarray(np.random.default_rng(9).integers(model.vocabulary, size=(batch, model.context)), jnp.int32)


def examples(model: MLP) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((6, model.inputs), np.float32)


def two_draws(model: MLP):
    """Return parameters before and after training, as NumPy arrays, so that nothing done with them is compiled."""
    return (jax.tree.map(np.asarray, drawn(model, jax.random.key(seed))) for seed in (0, 1))


@jax.jit
def measure_wide(params, scale):
    return measure(lambda p: WIDE.logits(p, tokens(WIDE), scale), params, params)


@jax.jit
def uses_of_small(params):
    return capture(lambda p: SMALL.logits(p, tokens(SMALL), 0.25), params)[1]


@pytest.mark.parametrize("name", PARAMETERIZATIONS)
def test_the_ratio_starts_at_one_half_in_every_dense_layer(name: str):
    params = parameters(WIDE, name)
    scale = WIDE.attention_scale(PARAMETERIZATIONS[name])
    found = measure_wide(params, scale)
    dense = [path for path in found.paths if float(found[path].fan_in)]
    assert dense == [*(f"blocks/0/{layer}/kernel" for layer in DENSE), "readout/kernel"]
    for path in dense:
        assert float(found[path].ratio) == pytest.approx(0.5, abs=0.02), path
    assert all(math.isnan(float(found[path].alpha)) for path in found.paths)


@given(
    fan_in=st.sampled_from([2, 601]),
    fan_out=st.sampled_from([1, 20]),
    rows=st.sampled_from([1, 7]),
    scale=st.floats(1e-6, 1e6),
    seed=st.integers(0, 100),
)
def test_a_rank_one_pair_is_aligned_completely(fan_in: int, fan_out: int, rows: int, scale: float, seed: int):
    draw = np.random.default_rng(seed)
    direction = draw.normal(size=fan_in)
    weight = jnp.asarray(scale * np.outer(direction, draw.choice([-1, 1], fan_out)), jnp.float32)
    inputs = jnp.asarray(np.outer(draw.normal(size=rows) + 2, direction), jnp.float32)
    assert float(ratio(weight, inputs)) == pytest.approx(1, abs=1e-4)


@settings(max_examples=20)
@given(fan_in=st.sampled_from([2, 7, 64, 300]), fan_out=st.sampled_from([1, 5, 40]), seed=st.integers(0, 20))
def test_for_independent_factors_the_squared_norm_ratio_is_the_fan_in_on_average(fan_in: int, fan_out: int, seed: int):
    """For inputs of one size, so that the ratio's denominator does not fluctuate: exactly fan-in in expectation."""
    random, draws = np.random.default_rng(seed), 300
    z = jnp.asarray(random.normal(size=(1, fan_in)), jnp.float32)
    # The rms of a drawn weight fluctuates: with all of its entries of size 1, it is 1 and only their signs are random.
    weights = jnp.asarray(random.choice([-1.0, 1.0], (draws, fan_in, fan_out)), jnp.float32)
    ratios = np.asarray(jax.jit(jax.vmap(log_alignment_ratio, in_axes=(0, None)))(weights, z), float)
    squares = np.where(np.isnan(ratios), 0, fan_in ** (2 * np.nan_to_num(ratios)))
    error = squares.std() / math.sqrt(draws)
    assert abs(squares.mean() - fan_in) < 5 * error + 1e-3 * fan_in


def test_roles_are_averaged_over_layers_that_can_be_measured():
    model = MLP(width=32, hidden_layers=2)
    before, after = two_draws(model)
    frozen = {**after, "hidden": [before["hidden"][0], after["hidden"][1]]}
    x = examples(model)
    found = measured(model, before, frozen, x)
    table = jax.jit(lambda: by_role(found, layout(model, PARAMETERIZATIONS["standard"])))()
    first, second, readout = (found[path] for path in ("hidden/0", "hidden/1", "readout"))
    assert math.isnan(float(first.alpha))
    mean_omega = (float(first.omega) + float(second.omega)) / 2
    np.testing.assert_allclose(table[0], [float(second.alpha), mean_omega, float(second.u)], rtol=1e-5)
    np.testing.assert_allclose(table[1], [float(readout.alpha), float(readout.omega), float(readout.u)], rtol=1e-5)
    with pytest.raises(ValueError, match="no hidden layer was measured, only readout"):
        jax.eval_shape(
            lambda: by_role(
                measure(model.logits, before, after, x, layers=["readout"]), layout(model, PARAMETERIZATIONS["mup"])
            )
        )


@pytest.mark.parametrize("shape", [(3, 64, 8), (1, 2, 1), (50, 300, 7)])
def test_the_frobenius_form_agrees(shape: tuple[int, int, int]):
    rows, fan_in, fan_out = shape
    random = np.random.default_rng(0)
    weight, inputs = random.normal(size=(fan_in, fan_out)), random.normal(size=(rows, fan_in))
    norms = [np.linalg.norm(x) for x in (inputs @ weight, weight, inputs)]
    frobenius = 1 + math.log(norms[0] / (norms[1] * norms[2])) / math.log(fan_in)
    found = ratio(weight.astype(np.float32), inputs.astype(np.float32))
    assert float(found) == pytest.approx(frobenius, abs=1e-5)


def test_a_factor_of_zero_has_no_ratio():
    assert math.isnan(float(ratio(np.zeros((4, 2)), np.ones((3, 4)))))
    assert math.isnan(float(ratio(np.ones((4, 2)), np.zeros((3, 4)))))
    assert math.isnan(float(ratio(np.ones((1, 2)), np.ones((3, 1)))))


def test_the_four_terms_add_up_to_what_leaves_the_layer():
    before, after = parameters(SMALL, "standard"), parameters(SMALL, "standard", seed=1)
    uses = [uses_of_small(params) for params in (before, after)]
    dense = [path for path, use in uses[0].items() if isinstance(use, Product)]
    assert len(dense) == 7
    for path in dense:
        terms = jax.jit(expansion)(uses[0][path], uses[1][path])
        np.testing.assert_allclose(sum(terms), uses[1][path].outputs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(terms[0], uses[0][path].outputs, rtol=1e-4, atol=1e-5)


def test_alpha_omega_and_u_are_the_ratios_of_the_three_terms_of_the_change():
    model = MLP(width=32, hidden_layers=1)
    before, after = two_draws(model)
    x = examples(model)
    found = measured(model, before, after, x)["hidden/0"]
    z, new = (np.maximum(x @ params["embedding"], 0) for params in (before, after))
    weight, update = before["hidden"][0], after["hidden"][0] - before["hidden"][0]
    assert float(found.alpha) == pytest.approx(float(ratio(update, z)), abs=1e-5)
    assert float(found.omega) == pytest.approx(float(ratio(weight, new - z)), abs=1e-5)
    assert float(found.u) == pytest.approx(float(ratio(update, new - z)), abs=1e-5)
    assert float(found.ratio) == pytest.approx(float(ratio(after["hidden"][0], new)), abs=1e-5)
    for name, term in (("updated", z @ update), ("inherited", (new - z) @ weight), ("joint", (new - z) @ update)):
        assert float(getattr(found, name)) == pytest.approx(np.sqrt(np.mean(term**2)), rel=1e-5)
    assert float(found.input_change) == pytest.approx(np.sqrt(np.mean((new - z) ** 2)), rel=1e-5)


def test_ratios_do_not_depend_on_multipliers():
    model = MLP(width=32, hidden_layers=1)
    before, after = two_draws(model)
    doubled = [{**params, "readout": 2 * params["readout"]} for params in (before, after)]
    x = examples(model)
    plain, scaled = measured(model, before, after, x), measured(model, *doubled, x)
    for name in ("ratio", "alpha", "omega", "u"):
        np.testing.assert_allclose(getattr(plain.values, name), getattr(scaled.values, name), atol=1e-5)


def test_only_what_is_named_is_measured():
    model = MLP(width=16, hidden_layers=2)
    params, x = model.shapes(), jax.ShapeDtypeStruct((2, model.inputs), jnp.float32)
    named = functools.partial(measure, model.logits, layers=["hidden/*"])
    assert jax.eval_shape(named, params, params, x).paths == ("hidden/0", "hidden/1")
    with pytest.raises(ValueError, match="nothing to measure"):
        jax.eval_shape(lambda *given: measure(lambda params, x: x, *given), params, params, x)


@given(st.integers(1, 10**6), st.integers(1, 4))
def test_steps_are_spaced_logarithmically_and_include_both_ends(steps: int, per_doubling: int):
    spaced = log_spaced(steps, per_doubling=per_doubling)
    assert (spaced[0], spaced[-1]) == (0, steps)
    assert list(spaced) == sorted(set(spaced))
    assert len(spaced) <= 3 + per_doubling * math.log2(steps) + per_doubling
    assert all(later <= 2 * earlier for earlier, later in pairwise(spaced[1:]))


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="0 steps"):
        log_spaced(0)
