"""The cost of training a transformer, by rules that need neither a compiler nor a device.

FLOPs, parameters and optimizer state are counted. What else a step needs is estimated: what is in memory at the moment
when most is.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from widthwise.models import Transformer, count_parameters
from widthwise.models.cross_entropy import SLICE
from widthwise.optim import Optimizer
from widthwise.optim.muon import LARGEST_BATCH, orthogonalization_flops
from widthwise.parameterize import PyTree
from widthwise.train.gpus import GPUS
from widthwise.train.program import Lane, Program

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
    remat: str
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
        remat=model.recomputes,
        parameter_bytes=_bytes(shapes.params) // devices,
        optimizer_bytes=_bytes(shapes.optimizer) // devices,
        temporary_bytes=temporary_bytes(model, batch, devices=devices),
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
    hidden = 12 * model.blocks * model.width**2
    batch = min(max(LARGEST_BATCH, 4 * model.width**2), hidden)
    return total - 4 * hidden + 4 * batch * (2 if model.dtype == "bfloat16" else 4)


def temporary_bytes(model: Transformer, batch: int, *, devices: int = 1) -> dict[str, int]:
    """Estimate what a step needs on each device besides parameters and optimizer state, by what it is.

    Most is needed while the loss is computed, or while the backward pass is in a block. The factors are those at which
    XLA's compiler for GPUs arrives in bfloat16.
    """
    width, blocks, vocabulary = model.width, model.blocks, model.vocabulary
    size, split = jnp.dtype(model.dtype).itemsize, devices > 1
    tokens = batch * model.context // devices
    row, block, readout = size * tokens * width, 12 * width**2, vocabulary * width
    sliced = min(tokens, SLICE) if model.recomputes == "full" else tokens
    kept = row * blocks * _kept(model.recomputes, split=split)
    loss = {
        "activations": kept + 5 * row,
        "logits and their gradient": 2 * size * sliced * vocabulary,
        "gathered weights": size * readout if split else 0,
        "gradients": 4 * readout,
    }
    # Where matrices are split, gradients are whole until they have been summed over devices.
    backward = {
        "activations": (kept if split or model.recomputes in ("block", "full") else 0) + 20 * row,
        "gathered weights": size * block + 4 * blocks * block // devices if split else 0,
        "gradients": 4 * count_parameters(model).total // devices + (4 * (block + readout) if split else 0),
    }
    return max(loss, backward, key=lambda parts: sum(parts.values()))


def _kept(recomputes: str, *, split: bool) -> int:
    """Return how many numbers of each token a block stores, over the width."""
    if recomputes in ("block", "full"):
        return 1
    return 11 if split else 12 if recomputes == "activation" else 16


def _again(model: Transformer, batch: int) -> float:
    """Count the FLOPs of what the backward pass computes again: the products of a forward pass, or none."""
    if model.recomputes not in ("block", "full"):
        return 0.0
    readout = 6.0 * model.width * model.vocabulary * batch * model.context
    return (flops_per_step(model, batch) - (readout if model.recomputes == "block" else 0)) / 3


def _bytes(tree: PyTree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
