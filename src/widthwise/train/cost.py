"""The cost of training a transformer, by rules that need neither a compiler nor a device.

FLOPs, parameters and optimizer state are counted. What else a step needs is estimated: what is in memory at the moment
when most is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from widthwise.models import Transformer, count_parameters
from widthwise.models.attention import cudnn_takes
from widthwise.models.cross_entropy import SLICE
from widthwise.models.storing import Rematerialization
from widthwise.optim import Optimizer
from widthwise.optim.muon import LARGEST_BATCH, orthogonalization_flops
from widthwise.parameterize import PyTree
from widthwise.train.gpus import GPUS
from widthwise.train.program import Lane, Program
from widthwise.train.sharding import split_axis

_STATE_BYTES = 16
"""Bytes per parameter during training: the parameter, its gradient, and Adam's two moments, in float32."""
GPU_FLOPS = GPUS["h200"].flops
"""Sustained bf16 FLOP/s of training on one H200-class device."""
CORE_FLOPS = 3e10
"""Sustained float32 FLOP/s of training on a core of a CPU: two cores reached 64e9 at width 256, half their peak."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of one training run, by rules.

    Attributes:
        devices: The number of devices.
        remat: What the backward pass computes again.
        parameter_bytes: Parameters on each device.
        optimizer_bytes: Optimizer state on each device.
        temporary_bytes: What else a step needs on each device, by what it is.
        flops_per_step: FLOPs of a step over all devices: 6 per parameter and token, plus causal attention and the
            matrix products of the optimizer.
        computed_again: FLOPs in addition, for what the backward pass computes again.
        steps: The number of steps.
        tokens: The number of training tokens.
    """

    devices: int
    remat: Rematerialization
    parameter_bytes: int
    optimizer_bytes: int
    temporary_bytes: dict[str, int]
    flops_per_step: float
    computed_again: float
    steps: int
    tokens: int

    @property
    def bytes(self) -> int:
        """The memory of each device in all."""
        return self.parameter_bytes + self.optimizer_bytes + sum(self.temporary_bytes.values())

    def seconds_at(self, flops: float) -> float:
        """Return the time of all steps on one device that computes so many FLOP/s."""
        return (self.flops_per_step + self.computed_again) * self.steps / flops


def estimate(program: Program, lane: Lane, *, batch: int, devices: int) -> Cost:
    """Estimate the cost of a run on so many devices."""
    model = program.model
    if batch % devices:
        raise ValueError(f"batch is {batch}: expected a multiple of the {devices} devices")
    shapes = jax.eval_shape(program.start, lane)
    return Cost(
        devices=devices,
        remat="activation" if devices > 1 and model.recomputes == "none" else model.recomputes,
        parameter_bytes=_bytes(shapes.params, devices),
        optimizer_bytes=_bytes(shapes.optimizer, devices),
        temporary_bytes=temporary_bytes(model, batch, program.optimizer, devices=devices),
        flops_per_step=flops_per_step(model, batch, program.optimizer),
        computed_again=_again(model, batch),
        steps=program.steps,
        tokens=program.steps * batch * model.context,
    )


def flops_per_step(model: Transformer, batch: int, optimizer: Optimizer | None = None) -> float:
    """Count the FLOPs of a forward and a backward pass: matrices and causal attention, not lookups.

    With an optimizer, also count its matrix products, which Muon has.
    """
    matrices = count_parameters(model).non_embedding - model.context * model.width
    tokens = batch * model.context
    attention = 6 * model.blocks * tokens * model.context * model.width  # two products, half of them masked, times 3·2
    products = 0.0 if optimizer is None or not optimizer.orthogonalizes else _orthogonalization(model)
    return 6.0 * matrices * tokens + attention + products


def _orthogonalization(model: Transformer) -> float:
    width = model.width
    return model.blocks * (4 * orthogonalization_flops(width, width) + 2 * orthogonalization_flops(4 * width, width))


def state_bytes(model: Transformer, optimizer: Optimizer) -> int:
    """Estimate the memory for parameters, gradients and optimizer state.

    Muon has one moment less for hidden matrices, and orthogonalizes a batch of them at a time: a stack of matrices, its
    square, and the products of both, in the precision of the model. A batch is limited, but at least one matrix.
    """
    total = _STATE_BYTES * count_parameters(model).total
    if not optimizer.orthogonalizes:
        return total
    return total - 48 * model.blocks * model.width**2 + _orthogonalization_bytes(model)


def _orthogonalization_bytes(model: Transformer) -> int:
    batch = min(max(LARGEST_BATCH, 4 * model.width**2), 12 * model.blocks * model.width**2)
    return 4 * batch * (2 if model.dtype == "bfloat16" else 4)


def temporary_bytes(
    model: Transformer, batch: int, optimizer: Optimizer | None = None, *, devices: int = 1
) -> dict[str, int]:
    """Estimate what a step needs on each device besides parameters and optimizer state, by what it is.

    Most is needed while the loss is computed, while the backward pass is in a block, or by Muon. The factors are those
    at which XLA's compiler for GPUs arrives in bfloat16.
    """
    width, blocks, vocabulary = model.width, model.blocks, model.vocabulary
    several, size = devices > 1, jnp.dtype(model.dtype).itemsize
    hidden, tables = [(width, width)] * 4 + [(width, 4 * width)] * 2, [(width, vocabulary), (vocabulary, width)]

    def part(shapes: Sequence[tuple[int, int]]) -> int:
        return sum(math.prod(shape) // (devices if split_axis(shape, devices) is not None else 1) for shape in shapes)

    def gathered(shapes: Sequence[tuple[int, int]]) -> int:
        return sum(math.prod(shape) for shape in shapes if split_axis(shape, devices) is not None)

    tokens = batch * model.context // devices
    row, sliced = size * tokens * width, min(tokens, SLICE) if model.recomputes == "full" else tokens
    weights = 0  # of plain attention, which has one for each pair of tokens
    if not cudnn_takes((1, model.context, 1, model.head_dim), jnp.dtype(model.dtype)):
        weights = tokens * model.heads * model.context
    keeps_all = not several and model.recomputes in ("none", "activation")
    kept = blocks * (row * _kept(model.recomputes, several=several) + (6 * weights if keeps_all else 0))
    loss = {
        "activations": kept + 5 * row,
        "logits and their gradient": 2 * size * sliced * vocabulary,
        "gathered weights": size * gathered(tables[:1]),
        "gradients": 4 * width * vocabulary * (3 if sliced < tokens else 1),  # a loop over slices carries their sum
    }
    # Gradients of split matrices are whole until they have been summed over the devices, and a loop over blocks has the
    # parts of all of them in one array.
    parts = 4 * (blocks * part(hidden) + part(tables))
    backward = {
        "activations": (0 if keeps_all else kept) + (24 if several else 20) * row + 12 * weights,
        "gathered weights": size * gathered(hidden) + (4 * blocks * part(hidden) if several else 0),
        "gradients": parts + 4 * (gathered(hidden) + gathered(tables[:1])),
    }
    moments = [loss, backward]
    if optimizer is not None and optimizer.orthogonalizes:
        matrices = size * blocks * part(hidden) + _orthogonalization_bytes(model)
        moments.append({"orthogonalized matrices": matrices, "gradients": parts})
    return max(moments, key=lambda one: sum(one.values()))


def _kept(recomputes: Rematerialization, *, several: bool) -> int:
    """Return how many numbers of each token a block stores, over the width."""
    if recomputes in ("block", "full"):
        return 1
    return 11 if several else 12 if recomputes == "activation" else 16


def _again(model: Transformer, batch: int) -> float:
    """Count the FLOPs that the backward pass recomputes: a forward pass, except for the last product of each block.

    No gradient needs the result of that product.
    """
    if model.recomputes not in ("block", "full"):
        return 0.0
    tokens = batch * model.context
    last = 2.0 * 4 * model.width**2 * model.blocks * tokens
    readout = 2.0 * model.width * model.vocabulary * tokens if model.recomputes == "block" else 0.0
    return flops_per_step(model, batch) / 3 - last - readout


def _bytes(tree: PyTree, devices: int) -> int:
    """Return the bytes of a tree on each device; what does not divide is whole on all of them."""
    return sum(
        x.size * x.dtype.itemsize // (1 if split_axis(x.shape, devices) is None else devices)
        for x in jax.tree.leaves(tree)
    )
