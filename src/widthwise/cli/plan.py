"""`widthwise plan`: how large a transformer is and what training it takes, before anything is allocated."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import jax

from widthwise.cli.arguments import count, named, unset
from widthwise.cli.output import Output
from widthwise.cli.status_line import StatusLine
from widthwise.models import Transformer, compute_optimal_steps, count_parameters
from widthwise.optim import OPTIMIZERS, Optimizer
from widthwise.train import Spec, resolve
from widthwise.train.cost import GPU_FLOPS, Cost, estimate


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parameters and compute-optimal steps of the paper's transformer, and what it takes on many devices.

    Nothing is allocated. The defaults are the paper's. Compute-optimal is 20 tokens for each non-embedding parameter.
    """

    width: Annotated[int, count("N", least=1)]
    """The model's width, a multiple of the head dimension."""
    blocks: Annotated[int, count("N", least=1)] = 8
    """The number of blocks."""
    head_dim: Annotated[int, count("N", least=1)] = 128
    """The dimension of a head."""
    context: Annotated[int, count("N", least=1)] = 512
    """The length of sequences."""
    vocabulary: Annotated[int, count("N", least=1)] = 32101
    """The number of tokens in the vocabulary."""
    batch: Annotated[int, count("N", least=1)] = 256
    """Sequences in a batch."""
    steps: Annotated[int | None, count("N", least=1), unset("compute-optimal")] = None
    """Training steps."""
    optimizer: Annotated[Optimizer, named(OPTIMIZERS)] = OPTIMIZERS["adam"]
    """Which optimizer, for the size of its state."""
    devices: Annotated[int | None, count("N", least=1, most=1024), unset("do not")] = None
    """Compile a step, split over this many simulated devices, and say what it takes."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Print the counts, and the cost if devices are named."""
        model = Transformer(
            width=self.width,
            blocks=self.blocks,
            head_dim=self.head_dim,
            context=self.context,
            vocabulary=self.vocabulary,
        )
        parameters, optimal = count_parameters(model), compute_optimal_steps(model, batch=self.batch)
        cost = None if self.devices is None else self._cost(self.steps or optimal)
        if self.json:
            counts = {name: getattr(parameters, name) for name in ("embedding", "non_embedding", "total")}
            values: dict[str, Any] = {"parameters": counts, "steps": {"compute_optimal": optimal}}
            print(json.dumps(values if cost is None else {**values, "cost": asdict(cost)}, indent=2))
            return 0
        output = Output()
        output.lines(
            f"transformer of width {self.width}: {self.blocks} blocks, {model.heads} heads, "
            f"context {self.context}, vocabulary {self.vocabulary}",
            f"  embedding parameters      {parameters.embedding:>18,}",
            f"  non-embedding parameters  {parameters.non_embedding:>18,}",
            f"  total parameters          {parameters.total:>18,}",
            f"  compute-optimal steps     {optimal:>18,}   at batch {self.batch}",
        )
        if cost is not None:
            output.lines("", *_describe(cost, self.optimizer.name, self.steps or optimal))
        output.write()
        return 0

    def _cost(self, steps: int) -> Cost:
        assert self.devices is not None
        _simulate(self.devices)
        spec = Spec(
            width=self.width,
            blocks=self.blocks,
            head_dim=self.head_dim,
            context=self.context,
            vocabulary=self.vocabulary,
            data="synthetic",
            batch=self.batch,
            steps=steps,
            warmup=min(1000, steps),
            optimizer=self.optimizer.name,
            dtype="bfloat16",
        )
        run = resolve(spec, vocabulary=self.vocabulary, data={})
        status = StatusLine(quiet=self.json)
        status.say(f"compiling for {self.devices} simulated devices ...")
        return estimate(run.program, run.lane, batch=self.batch, devices=self.devices, compile_it=True)


def _simulate(devices: int) -> None:
    """Have JAX simulate devices on the CPU, which has to be said before it first looks for any."""
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
        "on each device, by the compiler (for a CPU: its buffers are not a GPU's, and a loop's body counts once):",
        f"  arguments of a step       {gigabytes(cost.compiled_argument_bytes)}",
        f"  temporaries of a step     {gigabytes(cost.compiled_temporary_bytes)}",
        f"  FLOPs of a step           {cost.compiled_flops or 0:>15.3g}",
        "in all:",
        f"  FLOPs of a step           {cost.flops_per_step:>15.3g}   analytic",
        f"  tokens                    {cost.tokens:>15,}   in {steps:,} steps",
        f"  GPU-hours                 {cost.gpu_hours:>15,.1f}   at {GPU_FLOPS / 1e12:.0f} TFLOP/s each",
    ]
