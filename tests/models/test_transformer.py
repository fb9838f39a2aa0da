"""The transformer is the paper's: its sizes, its roles, its attention."""

import csv
import functools
import itertools
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.models import (
    Transformer,
    compute_optimal_steps,
    count_parameters,
    cross_entropy,
    draw,
    layout,
    prescribe,
)
from widthwise.models.attention import causal_attention, cudnn_takes, plain_attention
from widthwise.parameterize import find_roles, flax
from widthwise.theory import ADAM, FULL, MEAN_FIELD, MUP, NTK, PARAMETERIZATIONS, STANDARD, Parameterization, solve
from widthwise.trace.paths import named_leaves

SMALL = Transformer(width=32, blocks=2, head_dim=8, context=12, vocabulary=17)
SIZES = list(csv.DictReader(Path(__file__).with_name("model_sizes.csv").read_text().splitlines()))


def test_the_paper_lists_fourteen_sizes():
    assert len(SIZES) == 14


@pytest.mark.parametrize("row", SIZES, ids=lambda row: row["heads"])
def test_parameters_are_counted_as_in_the_paper_without_allocating(row: dict[str, str]):
    model = Transformer(width=int(row["model"]))
    count = count_parameters(model)
    assert model.heads == int(row["heads"])
    assert (count.embedding, count.non_embedding, count.total) == tuple(
        int(row[name]) for name in ("embedding", "non_embedding", "total")
    )
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(model.shapes()))


def test_parameters_are_those_of_the_shapes():
    count, sizes = count_parameters(SMALL), {path: leaf.size for path, leaf in named_leaves(SMALL.shapes()).items()}
    assert count.total == sum(sizes.values())
    assert count.embedding == sizes["tokens/embedding"]


def test_the_smallest_model_is_trained_for_fewer_steps_than_its_warm_up():
    assert compute_optimal_steps(Transformer(width=128), batch=256) == 877
    assert compute_optimal_steps(Transformer(width=256), batch=256) == 2234  # 2234.6: whole steps


@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=list(PARAMETERIZATIONS))
def test_shapes_at_two_widths_tell_the_roles_that_the_model_states(network: Parameterization):
    stated = layout(SMALL, network)
    other = Transformer(width=64, blocks=2, head_dim=8, context=12, vocabulary=17)
    inferred = find_roles(SMALL.shapes(), other=other.shapes(), convention=flax)
    assert {leaf.path: (leaf.role, leaf.axes) for leaf in stated.leaves} == {
        leaf.path: (leaf.role, leaf.axes) for leaf in inferred.leaves
    }


def test_roles_are_the_papers():
    by_role: dict[str, set[str]] = {}
    for leaf in layout(SMALL, STANDARD).leaves:
        assert leaf.role is not None
        by_role.setdefault(leaf.role.value, set()).add(leaf.path.replace("blocks/0/", "").replace("blocks/1/", ""))
    assert by_role == {
        "embedding": {
            "tokens/embedding",
            "positions/embedding",
            "norm/scale",
            "attention_norm/scale",
            "mlp_norm/scale",
        },
        "hidden": {
            *(f"attention/{x}/kernel" for x in ("query", "key", "value", "out")),
            "mlp/up/kernel",
            "mlp/down/kernel",
        },
        "readout": {"readout/kernel"},
    }


@pytest.mark.parametrize(
    ("network", "token_std", "scale_std", "multiplier"),
    [
        (STANDARD, 0.01, 1.0, 1.0),
        (NTK, 0.01, 1.0, 1.0),
        (MUP, 32**-0.5, 32**-0.5, 32**0.5),
        (MEAN_FIELD, 0.01, 1.0, 1.0),
    ],
    ids=lambda value: value.name if isinstance(value, Parameterization) else "",
)
def test_constants_of_the_embedding(network: Parameterization, token_std: float, scale_std: float, multiplier: float):
    scales = prescribe(SMALL, solve(network, ADAM, FULL), base_width=32).scales
    embedding = scales.init_std["tokens"]["embedding"].get_value(), scales.multiplier["tokens"]["embedding"].get_value()
    norm = scales.init_std["norm"]["scale"].get_value(), scales.multiplier["norm"]["scale"].get_value()
    assert embedding == pytest.approx((token_std, multiplier))
    assert norm == pytest.approx((scale_std, multiplier))
    assert norm[0] * norm[1] == pytest.approx(1.0)


def test_attention_scale_follows_the_class():
    scales = {network.name: SMALL.attention_scale(network) for network in PARAMETERIZATIONS.values()}
    assert scales == {"standard": 8**-0.5, "ntk": 8**-0.5, "mup": 1 / 8, "mean_field": 1 / 8}


drawn = jax.jit(draw, static_argnums=0)
rounded = functools.partial(jax.jit, static_argnums=0, compiler_options={"xla_allow_excess_precision": False})
logits, losses = rounded(Transformer.logits), rounded(Transformer.losses)
"""Compiled for all tests at once, and rounded wherever the model says so."""


@functools.cache
def initial(model: Transformer, network: Parameterization = STANDARD):
    plan = prescribe(model, solve(network, ADAM, FULL), base_width=32)
    return jax.jit(lambda unit: plan.effective(plan.scales.initial(unit)))(drawn(model, jax.random.key(0)))


def tokens(model: Transformer, batch: int = 3) -> np.ndarray:
    return np.random.default_rng(1).integers(model.vocabulary, size=(batch, model.context), dtype=np.int32)


@pytest.mark.parametrize("pair", [(STANDARD, NTK)], ids=["standard-ntk"])
def test_standard_and_ntk_start_as_the_same_function(pair):
    x = tokens(SMALL)
    first, second = (logits(SMALL, initial(SMALL, network), x, SMALL.attention_scale(network)) for network in pair)
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def reference(params, tokens: np.ndarray, attention_scale: float) -> np.ndarray:
    """The paper's transformer once more, in NumPy and float64, straight from its description."""
    p = {path: np.asarray(leaf, np.float64) for path, leaf in named_leaves(params).items()}

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * p[f"{name}/scale"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    batch, time = tokens.shape
    x = p["tokens/embedding"][tokens] + p["positions/embedding"][:time]
    for block in range(SMALL.blocks):
        here = f"blocks/{block}"
        y = norm(x, f"{here}/attention_norm")
        q, k, v = (
            (y @ p[f"{here}/attention/{name}/kernel"]).reshape(batch, time, SMALL.heads, -1).swapaxes(1, 2)
            for name in ("query", "key", "value")
        )
        scores = np.where(np.tril(np.ones((time, time), bool)), q @ k.swapaxes(2, 3) * attention_scale, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v
        x = x + mixed.swapaxes(1, 2).reshape(x.shape) @ p[f"{here}/attention/out/kernel"]
        y = norm(x, f"{here}/mlp_norm")
        x = x + gelu(y @ p[f"{here}/mlp/up/kernel"]) @ p[f"{here}/mlp/down/kernel"]
    return norm(x, "norm") @ p["readout/kernel"]


def test_it_is_the_papers_transformer():
    x = tokens(SMALL)
    params = jax.tree.map(np.asarray, drawn(SMALL, jax.random.key(3)))
    params = jax.tree.map(lambda w: w * np.float32(0.3 if w.ndim == 2 else 1 + 0.1 * np.arange(w.size)), params)
    np.testing.assert_allclose(logits(SMALL, params, x, 0.2), reference(params, x, 0.2), rtol=1e-3, atol=1e-3)


def test_bfloat16_rounds_activations_and_little_else():
    """An error of more than a few roundings would mean that a sum or a scale was made in bfloat16."""
    half = replace(SMALL, dtype="bfloat16")
    params, x = initial(SMALL), tokens(SMALL)
    exact, rough = (np.asarray(logits(model, params, x, 0.3)) for model in (SMALL, half))
    error = np.sqrt(np.mean((rough - exact) ** 2)) / np.std(exact)
    assert error < 0.02


def test_drawn_parameters_have_standard_deviation_one_and_are_all_different():
    leaves = jax.tree.leaves(drawn(SMALL, jax.random.key(0)))
    matrices = [np.asarray(leaf) for leaf in leaves if leaf.ndim == 2]
    for matrix in matrices:
        assert np.std(matrix) == pytest.approx(1, rel=0.1)
        assert abs(np.mean(matrix)) < 0.1
    assert all((np.asarray(leaf) == 1).all() for leaf in leaves if leaf.ndim == 1)
    corners = [float(matrix[0, 0]) for matrix in matrices]
    assert len(set(corners)) == len(corners)


def test_positions_start_as_small_as_tokens():
    scales = prescribe(SMALL, solve(STANDARD, ADAM, FULL), base_width=32).scales
    assert scales.init_std["positions"]["embedding"].get_value() == pytest.approx(0.01)


def test_float64_is_refused_where_jax_would_make_it_float32():
    double = replace(SMALL, dtype="float64")
    with pytest.raises(ValueError, match=r"within jax\.enable_x64"):
        double.shapes()
    with jax.enable_x64(True):
        assert {leaf.dtype for leaf in jax.tree.leaves(double.shapes())} == {jnp.dtype(jnp.float64)}


def test_a_sequence_longer_than_the_context_is_refused():
    long = jnp.zeros((1, 13), int)
    for function, given in ((SMALL.logits, (long,)), (SMALL.losses, (long, long))):
        with pytest.raises(ValueError, match="a sequence of 13 tokens: expected at most the context, 12"):
            jax.eval_shape(function, SMALL.shapes(), *given, 0.3)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 1e-6), ("float64", 1e-14)])
def test_losses_are_those_of_the_logits(dtype: str, tolerance: float):
    with jax.enable_x64(dtype == "float64"):
        model = replace(SMALL, dtype=dtype)
        params = jax.tree.map(lambda leaf, like: np.asarray(leaf, like.dtype), initial(SMALL), model.shapes())
        x, labels = tokens(model), tokens(model) % 5
        expected = optax.softmax_cross_entropy_with_integer_labels(logits(model, params, x, 0.3), labels)
        np.testing.assert_allclose(losses(model, params, x, labels, 0.3), expected, rtol=tolerance, atol=tolerance)


def test_no_token_sees_the_future():
    x = tokens(SMALL)
    changed = np.where(np.arange(SMALL.context) == 7, (x + 1) % SMALL.vocabulary, x)
    params = initial(SMALL)
    before, after = (np.asarray(logits(SMALL, params, y, 0.3)) for y in (x, changed))
    np.testing.assert_allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert np.abs(before[:, 7:] - after[:, 7:]).max(axis=(0, 2)).min() > 1e-6


def test_attention_scale_is_data_and_matters():
    before = logits._cache_size()
    found = [logits(SMALL, initial(SMALL), tokens(SMALL), scale) for scale in (0.1, 1.0)]
    assert not np.allclose(*found)
    assert logits._cache_size() - before <= 1


def test_attention_agrees_with_jaxs_own():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 6, 4, 8), np.float32)
    ours, causal = jax.jit(plain_attention), jax.jit(causal_attention)
    theirs = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, scale=0.3, is_causal=True))
    np.testing.assert_allclose(ours(q * 0.3, k, v), theirs(q, k, v), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(causal(q, k, v), ours(q, k, v))


def test_the_softmax_of_attention_is_computed_in_float32():
    half = jax.ShapeDtypeStruct((2, 6, 4, 8), jnp.bfloat16)
    written = str(jax.make_jaxpr(plain_attention)(half, half, half))
    assert set(re.findall(r":(\w+)\[[\d,]*\] = exp ", written)) == {"f32"}


@pytest.mark.parametrize(
    ("shape", "dtype", "taken"),
    [
        ((4, 512, 8, 128), jnp.bfloat16, True),
        ((4, 512, 8, 128), jnp.float32, False),
        ((4, 7, 8, 64), jnp.bfloat16, False),  # seen on an H200: forward runs, backward is not implemented
        ((4, 60, 8, 64), jnp.bfloat16, True),
        ((4, 512, 8, 256), jnp.bfloat16, False),
        ((4, 512, 8, 20), jnp.bfloat16, False),
    ],
)
def test_cudnn_is_asked_only_for_what_it_can_do(shape: tuple[int, ...], dtype, taken: bool):
    assert cudnn_takes(shape, jnp.dtype(dtype)) is taken


def test_bfloat16_computes_what_float32_does_roughly_with_float32_parameters_and_logits():
    half = replace(SMALL, dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(half.shapes())} == {jnp.dtype(jnp.float32)}
    params, x = initial(SMALL), tokens(SMALL)
    exact, rough = (logits(model, params, x, 0.3) for model in (SMALL, half))
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(rough, exact, atol=0.1)
    assert not np.array_equal(rough, exact)


def test_what_is_recomputed_need_not_be_stored(monkeypatch: pytest.MonkeyPatch):
    model = Transformer(width=64, blocks=2, head_dim=16, context=32, vocabulary=401)
    params = jax.tree.map(lambda x: np.float32(0.1) * x, drawn(model, jax.random.key(0)))
    tokens = np.random.default_rng(1).integers(401, size=(8, 33))
    monkeypatch.setattr(cross_entropy, "SLICE", 100)  # of 256 tokens: in three slices, the last one filled up

    def gradients(remat: str) -> tuple[dict[str, jax.Array], int]:
        """Return the gradients, and the bytes that are stored for the backward pass."""
        chosen = replace(model, remat=remat)

        def loss(params):
            return chosen.losses(params, tokens[:, :-1], tokens[:, 1:], 0.25).mean()

        stored = jax.tree.leaves(jax.eval_shape(lambda params: jax.vjp(loss, params)[1], params))
        return named_leaves(jax.jit(jax.grad(loss))(params)), sum(x.size * x.dtype.itemsize for x in stored)

    found = {remat: gradients(remat) for remat in ("none", "activation", "block", "full")}
    one_activation, logits = 8 * 32 * 4 * model.width * 4, 8 * 32 * 401 * 4
    activation, block, full = (before - after for (_, before), (_, after) in itertools.pairwise(found.values()))
    assert activation > 0.9 * model.blocks * one_activation
    assert block > 3 * model.blocks * one_activation
    assert full > 0.9 * logits
    for again, _ in found.values():
        for path, expected in found["none"][0].items():
            np.testing.assert_allclose(
                again[path], expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max(), err_msg=path
            )


def test_wide_models_in_half_precision_recompute_the_activation():
    assert Transformer(width=4096, dtype="bfloat16").recomputes == "activation"
    assert Transformer(width=4096, dtype="bfloat16", remat="none").recomputes == "none"
    assert Transformer(width=2048, dtype="bfloat16").recomputes == "none"
    assert Transformer(width=4096).recomputes == "none"


def test_drawn_parameters_do_not_depend_on_how_many_runs_are_drawn_at_once():
    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.jit(jax.vmap(lambda key: draw(SMALL, key)))(keys)
    alone = drawn(SMALL, keys[1])
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x)[1], y), together, alone)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"width": 100}, "width is 100: expected a multiple of the head dimension 128"),
        ({"width": 128, "blocks": 0}, "blocks is 0"),
        ({"width": 0}, "width is 0"),
        ({"width": 128, "dtype": "int8"}, "dtype is 'int8'"),
        ({"width": 128, "remat": "all"}, "remat is 'all': expected one of none, activation, block, full"),
    ],
)
def test_nonsense_is_refused(options, named: str):
    with pytest.raises(ValueError, match=named):
        Transformer(**options)


def test_parameters_that_are_drawn_together_are_those_of_their_own_keys():
    """Otherwise runs would no longer be those that studies have kept."""
    key = jax.random.key(3)
    for index, leaf in list(enumerate(jax.tree.leaves(drawn(SMALL, key))))[3:7]:
        if leaf.ndim > 1:
            np.testing.assert_array_equal(leaf, jax.random.normal(jax.random.fold_in(key, index), leaf.shape))
