"""The first update of a wide model: what docs/width-4096.md found, at a size for a CPU."""

import functools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from widthwise.theory import ADAM, FULL, TENSOR_PROGRAMS, check
from widthwise.train import Lane, Program, Spec, load_inputs, resolve

NARROW, WIDE = 64, 1024
SPEC = Spec(
    data="synthetic",
    vocabulary=64,
    width=NARROW,
    base_width=NARROW,
    blocks=1,
    head_dim=16,
    context=8,
    batch=16,
    learning_rate=1e-3,
    eval_batches=1,
)


@functools.cache
def slope(small_readout: bool) -> float:
    """Return the exponent of width with which one update changes the logits through the initial readout."""
    tokens = jnp.asarray(load_inputs(SPEC).evaluation.tokens[0])
    narrow, wide = (_moved(replace(SPEC, width=width, small_readout=small_readout), tokens) for width in (NARROW, WIDE))
    return math.log(wide / narrow) / math.log(WIDE / NARROW)


def _moved(spec: Spec, tokens: jax.Array) -> float:
    run = resolve(replace(spec, warmup=0), vocabulary=64, data={})
    return float(_logits_moved(run.lane, tokens, program=run.program))


@functools.partial(jax.jit, static_argnames="program")
def _logits_moved(lane: Lane, tokens: jax.Array, *, program: Program) -> jax.Array:
    """Return the size of W⁰Δz: the logits' change after one update, with the readout as it was."""
    start = program.start(lane)
    params = program.step(start, lane, tokens)[0].params
    kept = jax.tree_util.tree_map_with_path(
        lambda path, before, after: before if "readout" in jax.tree_util.keystr(path) else after, start.params, params
    )
    before, after = (
        program.model.logits(lane.scales.effective(x), tokens[:, :-1], lane.attention_scale)
        for x in (start.params, kept)
    )
    return jnp.sqrt(jnp.mean(jnp.square(after - before)))


def test_the_first_update_of_a_standard_model_moves_logits_more_the_wider_it_is():
    assert slope(small_readout=False) > 0.15


def test_with_a_small_readout_the_first_update_does_not():
    assert slope(small_readout=True) < 0


def test_a_small_readout_changes_nothing_at_the_base_width_and_only_the_readout_elsewhere():
    def parameters(width: int, small_readout: bool) -> dict[str, list[float]]:
        spec = replace(SPEC, width=width, small_readout=small_readout)
        return resolve(spec, vocabulary=64, data={}).identity["parameters"]

    assert parameters(NARROW, True) == parameters(NARROW, False)
    usual, small = parameters(WIDE, False), parameters(WIDE, True)
    assert {path for path in usual if usual[path] != small[path]} == {"readout/kernel"}
    assert small["readout/kernel"] == [pytest.approx(usual["readout/kernel"][0] / 4), *usual["readout/kernel"][1:]]


def test_specifications_without_a_small_readout_are_stored_as_they_always_were():
    assert "small_readout" not in SPEC.to_json()
    small = replace(SPEC, small_readout=True)
    assert Spec.from_json(small.to_json()) == small


@pytest.mark.parametrize("parameterization", ["standard", "ntk"])
def test_a_small_readout_is_what_makes_full_alignment_of_the_readout_stable(parameterization: str):
    for small_readout in (False, True):
        found = replace(SPEC, parameterization=parameterization, small_readout=small_readout).exponents()
        assert found.rates is not None
        under_full, under_both = (
            check(found.parameterization, found.rates, ADAM, alignment) for alignment in (FULL, TENSOR_PROGRAMS)
        )
        assert under_full.verdict.stable
        assert under_both.verdict.stable is small_readout


@pytest.mark.parametrize("parameterization", ["mup", "mean_field"])
def test_a_readout_that_is_small_already_is_not_made_smaller(parameterization: str):
    with pytest.raises(ValueError, match="small_readout is for standard and ntk"):
        replace(SPEC, parameterization=parameterization, small_readout=True)
