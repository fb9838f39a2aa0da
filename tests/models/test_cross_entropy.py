"""The cross-entropy with a gradient of its own is the plain one, in every precision and under vmap."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.models.cross_entropy import cross_entropy

TOKENS, WIDTH, VOCABULARY = 24, 16, 201


def arrays(dtype=jnp.float32, seed: int = 0):
    random = np.random.default_rng(seed)
    hidden, kernel = (jnp.asarray(random.normal(size=shape), dtype) for shape in ((TOKENS, WIDTH), (WIDTH, VOCABULARY)))
    labels = random.integers(VOCABULARY, size=TOKENS)
    labels[0] = VOCABULARY - 1
    weights = jnp.asarray(random.uniform(size=TOKENS), jnp.promote_types(dtype, jnp.float32))
    return hidden, kernel, jnp.asarray(labels, jnp.int32), weights


def plain(hidden, kernel, labels):
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ kernel, labels)


@functools.partial(jax.jit, static_argnums=0, compiler_options={"xla_allow_excess_precision": False})
def with_gradients(function, hidden, kernel, labels, weights):
    """Return the losses of all tokens, and the gradients of a sum in which each has a weight of its own."""
    losses, back = jax.vjp(lambda hidden, kernel: function(hidden, kernel, labels), hidden, kernel)
    return losses, *back(weights.astype(losses.dtype))


def relative_error(found, expected) -> float:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)])
def test_losses_and_gradients_are_the_plain_ones(dtype: str, tolerance: float):
    with jax.enable_x64(dtype == "float64"):
        given = arrays(jnp.dtype(dtype))
        for found, expected in zip(with_gradients(cross_entropy, *given), with_gradients(plain, *given), strict=True):
            assert found.dtype == expected.dtype == jnp.dtype(dtype)
            assert relative_error(found, expected) < tolerance


def test_in_half_precision_only_logits_and_their_gradient_are_rounded():
    """The vocabulary is no multiple of what matrix products like: columns that fill it up must not count."""
    hidden, kernel, labels, weights = arrays(jnp.bfloat16)
    found = with_gradients(cross_entropy, hidden, kernel, labels, weights)
    exact = with_gradients(plain, hidden.astype(jnp.float32), kernel.astype(jnp.float32), labels, weights)
    assert [x.dtype for x in found] == [jnp.float32, jnp.bfloat16, jnp.bfloat16]
    assert [x.shape for x in found] == [x.shape for x in exact]
    assert relative_error(found[0], exact[0]) < 3e-3
    assert max(relative_error(x, y) for x, y in zip(found[1:], exact[1:], strict=True)) < 1e-2


def test_logits_are_not_kept_in_float32():
    hidden, kernel, labels, _ = arrays(jnp.bfloat16)
    _, back = jax.vjp(lambda hidden, kernel: cross_entropy(hidden, kernel, labels), hidden, kernel)
    logits = [x for x in jax.tree.leaves(back) if x.size >= TOKENS * VOCABULARY]
    assert [x.dtype for x in logits] == [jnp.bfloat16]


def test_lanes_under_vmap_are_single_ones():
    lanes = [arrays(seed=seed) for seed in range(3)]
    together = jax.vmap(lambda *given: with_gradients(cross_entropy, *given))(
        *(jnp.stack(column) for column in zip(*lanes, strict=True))
    )
    for index, given in enumerate(lanes):
        for found, expected in zip(together, with_gradients(cross_entropy, *given), strict=True):
            np.testing.assert_allclose(found[index], expected, rtol=1e-5, atol=1e-5)


def test_logits_too_large_for_exp_have_a_loss():
    hidden, kernel, labels, weights = arrays()
    losses, *gradients = with_gradients(cross_entropy, 1e4 * hidden, kernel, labels, weights)
    np.testing.assert_allclose(losses, plain(1e4 * hidden, kernel, labels), rtol=1e-5)
    assert all(np.isfinite(x).all() for x in gradients)
