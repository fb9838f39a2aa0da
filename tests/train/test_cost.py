"""What a run costs, by rules that need neither data nor a device."""

import csv
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.train.runs import MODEL, lane, program
from widthwise.models import Transformer
from widthwise.optim import OPTIMIZERS
from widthwise.optim.muon import orthogonalization_flops
from widthwise.theory import Role
from widthwise.train.cost import estimate, flops_per_step, state_bytes, temporary_bytes

ADAM, MUON = OPTIMIZERS["adam"], OPTIMIZERS["muon"]


def test_muon_adds_the_products_of_every_hidden_matrix():
    hidden = [leaf.shape for leaf in program(optimizer="muon").layout.leaves if leaf.role is Role.HIDDEN]
    added = flops_per_step(MODEL, 8, MUON) - flops_per_step(MODEL, 8, ADAM)
    assert added == sum(orthogonalization_flops(outputs, inputs) for inputs, outputs in hidden)
    assert flops_per_step(MODEL, 8, ADAM) == flops_per_step(MODEL, 8)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_state_is_parameters_gradients_and_moments_and_what_orthogonalization_needs(optimizer: str):
    shapes = jax.eval_shape(program(optimizer=optimizer).start, lane())
    parameters, state = (sum(x.size * 4 for x in jax.tree.leaves(tree)) for tree in (shapes.params, shapes.optimizer))
    hidden = sum(np.prod(leaf.shape) for leaf in program().layout.leaves if leaf.role is Role.HIDDEN)
    products = 4 * hidden * 4 if optimizer == "muon" else 0
    assert state_bytes(MODEL, OPTIMIZERS[optimizer]) == pytest.approx(2 * parameters + state + products, abs=100)


with open(Path(__file__).with_name("compiler-memory.csv")) as file:
    COMPILED = [*csv.DictReader(file)]
"""What XLA's compiler (JAX 0.10.2, and 0.11.2 in three rows) says for H200s that it is told about: bytes on each."""


@pytest.mark.parametrize("row", COMPILED, ids=lambda row: "-".join([*row.values()][:-2]))
def test_the_estimate_is_close_to_what_the_compiler_for_gpus_says(row: dict[str, str]):
    sizes = {name: int(row[name]) for name in ("width", "head_dim", "blocks", "context", "vocabulary")}
    model = Transformer(**sizes, dtype="bfloat16", remat=row["remat"])
    batch, devices, optimizer = int(row["batch"]), int(row["devices"]), OPTIMIZERS[row["optimizer"]]
    estimated = sum(temporary_bytes(model, batch, optimizer, devices=devices).values())
    assert estimated == pytest.approx(int(row["temporaries"]), rel=0.25)


def test_what_is_computed_again_costs_what_the_compiler_says_and_the_logits():
    model = Transformer(width=256, blocks=2, head_dim=64, context=32, vocabulary=401)
    tokens = jax.ShapeDtypeStruct((8, model.context), np.int32)

    def flops(remat: str) -> float:
        chosen = replace(model, remat=remat)
        gradients = jax.jit(jax.grad(lambda params, x: chosen.losses(params, x, x, 0.25).mean()))
        return (gradients.lower(model.shapes(), tokens).compile().cost_analysis() or {})["flops"]

    def again(remat: str) -> float:
        return estimate(
            program(model=replace(model, remat=remat)), lane(model=model), batch=8, devices=1
        ).computed_again

    assert again("none") == again("activation") == 0
    assert again("block") == pytest.approx(flops("block") - flops("none"), rel=0.05)
    assert again("full") - again("block") == pytest.approx(2 * 8 * 32 * 256 * 401)


def test_the_sizes_of_the_largest_model_can_be_measured():
    """It has more parameters than fit into 32 bits."""
    model = Transformer(width=16384, dtype="bfloat16")
    large = program(model=model)
    state = jax.eval_shape(large.start, lane(model=model))
    assert jax.eval_shape(large.sizes, state.params, state.params).params["hidden"].shape == ()


def test_what_orthogonalization_needs_is_limited_so_that_large_models_take_less_with_muon():
    large = Transformer(width=4096, dtype="bfloat16")
    assert 0.8 < state_bytes(large, MUON) / state_bytes(large, ADAM) < 0.9
