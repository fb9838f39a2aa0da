"""Many devices, or many processes, compute what one does."""

import logging
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.train.runs import LANGUAGE, MODEL, lane, program
from widthwise.train import Checkpoints, Lanes, make_mesh, train
from widthwise.train.sharding import place

EVALUATION = LANGUAGE.held_out(2)


def losses(chosen, *, optimizer: str = "adam", model=MODEL, checkpoints=None, **options) -> list[list[float]]:
    lanes = Lanes(program(optimizer=optimizer, model=model), chosen, LANGUAGE, **options)
    results = train(lanes, EVALUATION, checkpoints=checkpoints)
    return [[*result.train_loss, result.eval_loss] for result in results]


@pytest.mark.parametrize("optimizer", ["adafactor", "muon"])
def test_eight_devices_equal_one(optimizer: str):
    """With Adafactor, whose state is factored and so split differently from its parameters; with products, in Muon."""
    one = losses([lane()], optimizer=optimizer, side_by_side=False)
    eight = losses([lane()], optimizer=optimizer, side_by_side=False, mesh=make_mesh(fsdp=8))
    np.testing.assert_allclose(eight, one, rtol=1e-4)


@pytest.mark.parametrize("remat", ["none", "block", "full"])
def test_eight_devices_equal_one_whatever_is_computed_again(remat: str):
    """With two blocks, over which split weights go in a loop."""
    deep = replace(MODEL, blocks=2)
    one = losses([lane(model=deep)], model=deep, side_by_side=False)
    deep = replace(deep, remat=remat)
    eight = losses([lane(model=deep)], model=deep, side_by_side=False, mesh=make_mesh(fsdp=8))
    np.testing.assert_allclose(eight, one, rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_lanes_over_two_groups_of_four_devices_equal_single_runs(optimizer: str):
    chosen = [lane(1e-2), lane(3e-3, seed=1)]
    alone = losses(chosen, optimizer=optimizer, side_by_side=False)
    meshed = losses(chosen, optimizer=optimizer, side_by_side=True, mesh=make_mesh(lanes=2, fsdp=4))
    np.testing.assert_allclose(meshed, alone, rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "adafactor", "muon"])
def test_parameters_and_optimizer_state_are_split(optimizer: str):
    mesh = make_mesh(fsdp=8)
    (state,) = Lanes(program(optimizer=optimizer), [lane()], LANGUAGE, side_by_side=False, mesh=mesh).start()
    for array in jax.tree.leaves((state.params, state.optimizer)):
        if any(size % 8 == 0 and size for size in array.shape):
            assert not array.is_fully_replicated, array.shape
            assert array.addressable_shards[0].data.size * 8 == array.size


def test_a_checkpoint_goes_on_on_another_number_of_devices(tmp_path: Path):
    """What was saved by eight devices is read by one."""
    whole = losses([lane()], side_by_side=False)
    calls = iter(range(100))
    checkpoints = Checkpoints(tmp_path)
    eight = Lanes(program(), [lane()], LANGUAGE, side_by_side=False, mesh=make_mesh(fsdp=8))
    train(eight, EVALUATION, checkpoints=checkpoints, stop=lambda: next(calls) >= 0)
    checkpoints.close()
    checkpoints = Checkpoints(tmp_path)
    resumed = losses([lane()], side_by_side=False, checkpoints=checkpoints)
    checkpoints.close()
    np.testing.assert_allclose(resumed, whole, rtol=1e-4)


def test_batches_that_the_devices_cannot_share_are_refused():
    lanes = Lanes(program(), [lane()], LANGUAGE, side_by_side=False, mesh=make_mesh(fsdp=4))
    states, uneven = lanes.start(), replace(LANGUAGE, batch=6)
    with pytest.raises(ValueError, match="a batch of 6 sequences: expected a multiple of the 4 devices"):
        lanes.evaluate(states, uneven.held_out(1))
    lanes = Lanes(program(), [lane()], uneven, side_by_side=False, mesh=make_mesh(fsdp=4))
    with pytest.raises(ValueError, match="a batch of 6 sequences: expected a multiple of the 4 devices"):
        lanes.chunk(states, 0, 1)


def test_a_mesh_larger_than_the_machine_is_refused():
    with pytest.raises(ValueError, match="a mesh of 4 lanes × 4 devices each: there are 8 devices"):
        make_mesh(lanes=4, fsdp=4)


def test_putting_arrays_on_the_device_compiles_nothing(caplog):
    """A program for every new shape would delay the first step, most of all on a GPU."""
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        placed = place({"steps": np.arange(7), "rates": np.full((7, 3), 0.5), "scale": 2.0}, None)
    assert "ompil" not in caplog.text
    assert {name: str(x.aval) for name, x in placed.items()} == {
        "steps": "int32[7]",
        "rates": "float32[7,3]",
        "scale": "~float32[]",
    }
