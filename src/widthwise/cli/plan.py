"""`widthwise plan`: how large a transformer is and what it costs to train, before anything is allocated."""

import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import jax

from widthwise.cli.arguments import count, named, unset
from widthwise.cli.running import StatusLine
from widthwise.models import compute_optimal_steps, count_parameters
from widthwise.optim import OPTIMIZERS, Optimizer
from widthwise.train import Spec, resolve
from widthwise.train.cost import GPU_FLOPS, Cost, estimate


@dataclass(frozen=True, kw_only=True)
class PlanCommand:
    """Show the parameters and compute-optimal steps of the paper's transformer, and its cost on many devices.

    Nothing is allocated. The defaults are the paper's. Compute-optimal means 20 tokens per non-embedding parameter.
    """

    width: Annotated[int, count("N", least=1)]
    """The model's width, a multiple of the head dimension."""
    blocks: Annotated[int, count("N", least=1)] = 8
    """The number of blocks."""
    head_dim: Annotated[int, count("N", least=1)] = 128
    """The head dimension."""
    context: Annotated[int, count("N", least=1)] = 512
    """The sequence length."""
    vocabulary: Annotated[int, count("N", least=1)] = 32101
    """The vocabulary size."""
    batch: Annotated[int, count("N", least=1)] = 256
    """Sequences in a batch."""
    steps: Annotated[int | None, count("N", least=1), unset("compute-optimal")] = None
    """Training steps."""
    optimizer: Annotated[Optimizer, named(OPTIMIZERS)] = OPTIMIZERS["adam"]
    """The optimizer, which decides the size of the optimizer state."""
    devices: Annotated[int | None, count("N", least=1, most=1024), unset("none")] = None
    """Also compile a step split over this many simulated devices, and show its cost."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Print the counts, and the cost if --devices is given."""
        spec = Spec(
            width=self.width,
            blocks=self.blocks,
            head_dim=self.head_dim,
            context=self.context,
            vocabulary=self.vocabulary,
            data="synthetic",
            batch=self.batch,
            optimizer=self.optimizer.name,
            dtype="bfloat16",
        )
        model = spec.transformer(self.vocabulary)
        parameters, optimal = count_parameters(model), compute_optimal_steps(model, batch=self.batch)
        steps = self.steps or optimal
        cost = None if self.devices is None else _cost(replace(spec, steps=steps, warmup=0), self.devices)
        if self.json:
            counts = {name: getattr(parameters, name) for name in ("embedding", "non_embedding", "total")}
            values: dict[str, Any] = {"parameters": counts, "steps": {"compute_optimal": optimal}}
            print(json.dumps(values if cost is None else {**values, "cost": asdict(cost)}, indent=2))
            return 0
        lines = [
            f"transformer of width {self.width}: {self.blocks} blocks, {model.heads} heads, "
            f"context {self.context}, vocabulary {self.vocabulary}",
            f"  embedding parameters      {parameters.embedding:>18,}",
            f"  non-embedding parameters  {parameters.non_embedding:>18,}",
            f"  total parameters          {parameters.total:>18,}",
            f"  compute-optimal steps     {optimal:>18,}   at batch {self.batch}",
        ]
        if cost is not None:
            lines += ["", *_describe(cost, self.optimizer.name, steps)]
        print("\n".join(lines))
        return 0


def _cost(spec: Spec, devices: int) -> Cost:
    _simulate(devices)
    run = resolve(spec, vocabulary=spec.vocabulary or 0, data={})
    StatusLine().say(f"compiling for {devices} simulated devices ...")
    return estimate(run.program, run.lane, batch=spec.batch, devices=devices, compile_it=True)


def _simulate(devices: int) -> None:
    """Make JAX simulate devices on the CPU, which works only before it first looks for devices."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    jax.config.update("jax_platforms", "cpu")
    if jax.device_count() < devices:
        raise ValueError(f"--devices {devices}: this process has {jax.device_count()} devices already")


def _describe(cost: Cost, optimizer: str, steps: int) -> list[str]:
    def gigabytes(value: int | None) -> str:
        return f"{(value or 0) / 1e9:>12,.2f} GB"

    return [
        f"on each of {cost.devices} devices, analytic:",
        f"  parameters                {gigabytes(cost.parameter_bytes)}   float32",
        f"  {optimizer + ' state':24}  {gigabytes(cost.optimizer_bytes)}",
        f"  activations               {gigabytes(cost.activation_bytes)}   bfloat16, a rule of thumb",
        "on each device, by the compiler (for a CPU: a GPU's buffers differ, and the body of a loop counts once):",
        f"  arguments of a step       {gigabytes(cost.compiled_argument_bytes)}",
        f"  temporaries of a step     {gigabytes(cost.compiled_temporary_bytes)}",
        f"  FLOPs of a step           {cost.compiled_flops or 0:>15.3g}",
        "in total:",
        f"  FLOPs of a step           {cost.flops_per_step:>15.3g}   analytic",
        f"  tokens                    {cost.tokens:>15,}   in {steps:,} steps",
        f"  GPU-hours                 {cost.gpu_hours:>15,.1f}   at {GPU_FLOPS / 1e12:.0f} TFLOP/s each",
    ]
