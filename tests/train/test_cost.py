"""What a run costs, by rules that need neither data nor a device."""

import jax
import numpy as np
import pytest

from tests.train.runs import MODEL, lane, program
from widthwise.models import Transformer
from widthwise.optim import OPTIMIZERS
from widthwise.optim.muon import orthogonalization_flops
from widthwise.theory import Role
from widthwise.train.cost import flops_per_step, state_bytes

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


def test_what_orthogonalization_needs_is_limited_so_that_large_models_take_less_with_muon():
    large = Transformer(width=4096, dtype="bfloat16")
    assert 0.8 < state_bytes(large, MUON) / state_bytes(large, ADAM) < 0.9
