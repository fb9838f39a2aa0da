"""On a GPU, what is fast computes what is plain: half precision, cuDNN, lanes, checkpoints."""

import functools
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.data import Synthetic
from widthwise.models.attention import causal_attention, cudnn_takes, plain_attention
from widthwise.models.cross_entropy import cross_entropy
from widthwise.models.gelu import gelu
from widthwise.sweeps.packs import Pack
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.worker import train_pack
from widthwise.train import Checkpoints, Lanes, Spec, resolve, train
from widthwise.train.compiling import Compiled

SPEC = Spec(
    width=128, base_width=128, blocks=2, head_dim=64, context=64, batch=16, steps=60, warmup=6, data="synthetic"
)
LANGUAGE = Synthetic(vocabulary=32, context=64, batch=16)
ROUNDING = 2.0**-8
"""The relative spacing of bfloat16."""


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def apart(one: jax.Array, other: jax.Array) -> float:
    """Return the relative distance of two arrays, in the root mean square."""
    found, expected = (np.asarray(x, np.float64) for x in (one, other))
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


def test_this_is_a_gpu():
    assert jax.default_backend() == "gpu"


@pytest.mark.parametrize("classes", [1000, 32101])
def test_the_cross_entropy_in_half_precision_is_that_in_float32(classes: int):
    hidden, kernel = normal(0, 512, 256), normal(1, 256, classes) / 16
    labels = jnp.asarray(np.random.default_rng(2).integers(0, classes, 512))

    def plain(hidden: jax.Array, kernel: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):
            return optax.softmax_cross_entropy_with_integer_labels(hidden @ kernel, labels).mean()

    def fast(hidden: jax.Array, kernel: jax.Array) -> jax.Array:
        half = jnp.bfloat16
        return cross_entropy(hidden.astype(half), kernel.astype(half), labels).mean()

    expected, gradients = jax.jit(jax.value_and_grad(plain, (0, 1)))(hidden, kernel)
    found, fast_gradients = jax.jit(jax.value_and_grad(fast, (0, 1)))(hidden, kernel)
    assert float(found) == pytest.approx(float(expected), rel=ROUNDING / 4)
    for one, other in zip(fast_gradients, gradients, strict=True):
        assert apart(one, other) < 3 * ROUNDING


def test_cudnn_attention_is_the_plain_one():
    inputs = [normal(seed, 4, 128, 4, 64).astype(jnp.bfloat16) for seed in range(3)]
    assert cudnn_takes(inputs[0].shape, inputs[0].dtype)
    scaled = [inputs[0] / 8, *inputs[1:]]
    in_one_kernel = functools.partial(causal_attention, on_gpu=True)
    found, expected = jax.jit(in_one_kernel)(*scaled), jax.jit(plain_attention)(*scaled)
    assert apart(found, expected) < 3 * ROUNDING
    gradients = [
        jax.jit(jax.grad(lambda *x, f=f: jnp.sum(f(*x).astype(jnp.float32) ** 2), (0, 1, 2)))(*scaled)
        for f in (in_one_kernel, plain_attention)
    ]
    for one, other in zip(*gradients, strict=True):
        assert apart(one, other) < 5 * ROUNDING


def test_gelu_computed_again_has_the_gradient_of_gelu():
    x = normal(0, 4096)
    expected = jax.grad(lambda x: jnp.sum(jax.nn.gelu(x) ** 2))(x)
    found = jax.jit(jax.grad(lambda x: jnp.sum(gelu(x.astype(jnp.bfloat16), on_gpu=True).astype(jnp.float32) ** 2)))(x)
    assert apart(found, expected) < 3 * ROUNDING


def test_gelu_is_part_of_the_product_before_it():
    x, kernel = normal(0, 512, 256), normal(1, 256, 1024) / 16
    program = Compiled(lambda x, kernel: gelu(x @ kernel, on_gpu=True), static=())
    half = [y.astype(jnp.bfloat16) for y in (x, kernel)]
    assert "GELU" in program.jitted.lower(*half).compile().as_text()
    with jax.default_matmul_precision("highest"):
        expected = jax.nn.gelu(half[0].astype(jnp.float32) @ half[1].astype(jnp.float32))
    assert apart(program(*half), expected) < ROUNDING


def runs(count: int, **changes):
    specs = [replace(SPEC, learning_rate=2.0 ** (-8 - k), seed=k, **changes) for k in range(count)]
    return [resolve(spec, vocabulary=32, data={}) for spec in specs]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-3), ("bfloat16", 2e-2)])
def test_lanes_side_by_side_end_as_runs_by_themselves(dtype: str, tolerance: float):
    three = runs(3, dtype=dtype)
    evaluation = LANGUAGE.held_out(2)
    together = train(Lanes(three[0].program, [run.lane for run in three], LANGUAGE), evaluation)
    for run, result in zip(three, together, strict=True):
        (alone,) = train(Lanes(run.program, [run.lane], LANGUAGE), evaluation)
        assert result.eval_loss == pytest.approx(alone.eval_loss, rel=tolerance)


def test_half_precision_trains_as_float32_does():
    evaluation = LANGUAGE.held_out(2)
    losses = []
    for dtype in ("float32", "bfloat16"):
        (run,) = runs(1, dtype=dtype)
        (result,) = train(Lanes(run.program, [run.lane], LANGUAGE), evaluation)
        losses.append(result.eval_loss)
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)


def test_training_goes_on_from_a_checkpoint(tmp_path: Path):
    (run,) = runs(1)
    evaluation = LANGUAGE.held_out(2)
    (whole,) = train(Lanes(run.program, [run.lane], LANGUAGE), evaluation)
    for stop in (lambda: True, lambda: False):
        checkpoints = Checkpoints(tmp_path)
        (result,) = train(Lanes(run.program, [run.lane], LANGUAGE), evaluation, checkpoints=checkpoints, stop=stop)
        checkpoints.close()
    assert (result.status, result.steps) == ("finished", 60)
    assert result.eval_loss == pytest.approx(whole.eval_loss, rel=1e-2)


def test_packs_that_are_filled_up_tell_of_their_own_runs():
    data = SweepData(SPEC)
    wanted = [data.run(replace(SPEC, learning_rate=2.0 ** (-8 - k))) for k in range(5)]
    outcomes = train_pack(Pack.of(wanted), lambda _: False)
    assert outcomes is not None
    assert [outcome.run for outcome in outcomes] == [one.id for one in wanted]
    assert all(outcome.status == "finished" for outcome in outcomes)
