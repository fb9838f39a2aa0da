"""The cost of a large run on many devices, from a program that is compiled but never run.

There are two kinds of numbers, which must not be mixed up. *Analytic* numbers are parameters, optimizer state and FLOPs
computed from shapes, and activations by a rule of thumb. The *compiler's* numbers are XLA's analysis of the program,
split over that many simulated devices. It compiles for a CPU here, so its buffers differ from those on a GPU, and it
counts the body of a loop once.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from widthwise.models import Transformer, count_parameters
from widthwise.optim import Optimizer
from widthwise.optim.muon import LARGEST_BATCH, orthogonalization_flops
from widthwise.parameterize import PyTree
from widthwise.train.program import Lane, Program, State
from widthwise.train.sharding import Placement, make_mesh

_STATE_BYTES = 16
"""Bytes per parameter during training: the parameter, its gradient, and Adam's two moments, in float32."""
GPU_FLOPS = 4e14
"""Sustained bf16 FLOP/s of training on one H200-class device: about half of its matmul peak."""
CORE_FLOPS = 3e10
"""Sustained float32 FLOP/s of training on a core of a CPU: two cores reached 64e9 at width 256, half their peak."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of one training run.

    Attributes:
        devices: The number of devices.
        parameter_bytes: Parameters on each device, analytic.
        optimizer_bytes: Optimizer state on each device, analytic.
        activation_bytes: Activations stored for the backward pass on each device, analytic, by a rule of thumb.
        compiled_argument_bytes: Arguments of a step on each device, according to the compiler; None if not compiled.
        compiled_temporary_bytes: Temporary memory of a step on each device, according to the compiler.
        flops_per_step: FLOPs of a step over all devices, analytic: 6 per parameter and token, plus causal attention and
            the matrix products of the optimizer.
        compiled_flops: FLOPs of a step on each device, according to the compiler.
        tokens: The number of training tokens.
        gpu_hours: The time that the FLOPs of the run take at the assumed speed of one device.
    """

    devices: int
    parameter_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    compiled_argument_bytes: int | None
    compiled_temporary_bytes: int | None
    flops_per_step: float
    compiled_flops: float | None
    tokens: int
    gpu_hours: float


def estimate(program: Program, lane: Lane, *, batch: int, devices: int, compile_it: bool) -> Cost:
    """Estimate the cost of a run; with `compile_it`, also compile it, which needs that many simulated devices."""
    model = program.model
    if batch % devices:
        raise ValueError(f"batch is {batch}: expected a multiple of the {devices} devices")
    mesh = make_mesh(fsdp=devices) if compile_it else None
    shapes = jax.eval_shape(program.start, lane)
    tokens = jax.ShapeDtypeStruct((batch, model.context + 1), jnp.int32)
    arguments = temporary = flops = None
    if mesh is not None:
        arguments, temporary, flops = _compiled(program, lane, shapes, tokens, Placement(mesh, side_by_side=False))
    per_step = flops_per_step(model, batch, program.optimizer)
    return Cost(
        devices=devices,
        parameter_bytes=_bytes(shapes.params, devices),
        optimizer_bytes=_bytes(shapes.optimizer, devices),
        activation_bytes=activation_bytes(model, batch) // devices,
        compiled_argument_bytes=arguments,
        compiled_temporary_bytes=temporary,
        flops_per_step=per_step,
        compiled_flops=flops,
        tokens=program.steps * batch * model.context,
        gpu_hours=per_step * program.steps / GPU_FLOPS / 3600,
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


def activation_bytes(model: Transformer, batch: int) -> int:
    """Estimate the memory for the backward pass: 12 to 16 widths per token and block, and the logits."""
    size = 2 if model.dtype == "bfloat16" else 4
    tokens, widths = batch * model.context, 16 if model.recomputes == "none" else 12
    return tokens * (model.blocks * widths * model.width * size + model.vocabulary * (size + 4))


def _compiled(
    program: Program, lane: Lane, state: State, tokens: jax.ShapeDtypeStruct, placement: Placement
) -> tuple[int, int, float]:
    def with_sharding(x: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    states = jax.tree.map(lambda x: with_sharding(x, placement.state(x.shape)), state)
    batch = with_sharding(tokens, placement.batch)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: State, lane: Lane, tokens: jax.Array) -> tuple[State, jax.Array]:
        state, loss, _ = program.step(state, lane, tokens, devices=placement)
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, placement.state(x.shape)), state), loss

    compiled = step.lower(states, lane, batch).compile()
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis()
    assert memory is not None
    return memory.argument_size_in_bytes, memory.temp_size_in_bytes, float((costs or {}).get("flops", np.nan))


def _bytes(tree: PyTree, devices: int) -> int:
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)) // devices
