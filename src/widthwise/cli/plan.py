"""`widthwise plan`: how large a transformer is and what it costs to train, before anything is allocated."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from widthwise.cli.arguments import count, named, size, unset
from widthwise.cli.output import duration, table
from widthwise.cli.running import StatusLine
from widthwise.models import compute_optimal_steps, count_parameters
from widthwise.models.storing import Rematerialization
from widthwise.optim import OPTIMIZERS, Optimizer
from widthwise.train import Run, Spec, resolve
from widthwise.train.elsewhere import Target, mocked, simulated
from widthwise.train.fitting import Attempt, attempt, attempts
from widthwise.train.gpus import GPUS, Gpu, gpu_here

MOST_DEVICES = 1024
DOES_NOT_FIT = 1

JAX_TAKES = 0.75
"""How much of a GPU's memory JAX takes, unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise."""

_AGAIN: dict[Rematerialization, str] = {
    "none": "nothing",
    "activation": "activations",
    "block": "whole blocks",
    "full": "whole blocks and the logits",
}
"""What the backward pass computes again, in words."""


@dataclass(frozen=True, kw_only=True)
class PlanCommand:
    """Show the parameters and compute-optimal steps of the paper's transformer, and what it takes to train.

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
    devices: Annotated[int | None, count("N", least=1, most=MOST_DEVICES), unset("none")] = None
    """Also compile a step split over this many GPUs, and show what it takes."""
    memory: Annotated[float | None, size("BYTES", least=10**6), unset("no limit")] = None
    """What each GPU has for training, such as 80G: find the fewest GPUs, and the settings, with which it is enough."""
    remat: Annotated[Rematerialization | None, unset("by --memory, or by width")] = None
    """What the backward pass computes again to save memory, as in `widthwise train`."""
    gpu: Annotated[Gpu | None, named(GPUS), unset("that of this machine, or h200")] = None
    """The kind of GPU."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Print the counts, and what training takes if --devices or --memory is given."""
        gpu = self.gpu or gpu_here() or GPUS["h200"]
        self._check(gpu)
        devices = self._numbers_of_devices()
        # Before JAX looks for devices. A CPU's compiler cannot tell what fits a GPU.
        compiler = mocked(gpu) if devices else None
        if compiler is None and devices and self.memory is None:
            compiler = simulated(devices[0])
        run = self._resolved()
        model = run.program.model
        parameters, optimal = count_parameters(model), compute_optimal_steps(model, batch=self.batch)
        counts = {name: getattr(parameters, name) for name in ("embedding", "non_embedding", "total")}
        values: dict[str, Any] = {"parameters": counts, "steps": {"compute_optimal": optimal}}
        lines = [
            f"transformer of width {self.width}: {self.blocks} blocks, {model.heads} heads, "
            f"context {self.context}, vocabulary {self.vocabulary}",
            f"  embedding parameters      {parameters.embedding:>18,}",
            f"  non-embedding parameters  {parameters.non_embedding:>18,}",
            f"  total parameters          {parameters.total:>18,}",
            f"  compute-optimal steps     {optimal:>18,}   at batch {self.batch}",
        ]
        fits = True
        if devices:
            found = self._attempts(run, compiler, devices)
            values["cost"] = _to_json(found[-1], compiler, gpu)
            if self.memory is not None:
                fits = found[-1].bytes <= self.memory
                values |= {"fits": fits, "tried": [_to_json(one, compiler, gpu) for one in found]}
                lines += ["", _tabulate(found, self.memory)]
            described = _describe(found[-1], compiler, gpu, optimizer=self.optimizer.name, width=self.width)
            lines += ["", *(described if fits else [_what_does_not_fit(found[-1], self.batch)])]
        print(json.dumps(values, indent=2) if self.json else "\n".join(lines))
        return 0 if fits else DOES_NOT_FIT

    def _resolved(self) -> Run:
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
            warmup=0,
        )
        steps = self.steps or compute_optimal_steps(spec.transformer(self.vocabulary), batch=self.batch)
        return resolve(replace(spec, steps=steps), vocabulary=self.vocabulary, data={})

    def _check(self, gpu: Gpu) -> None:
        if self.devices is None and self.memory is None and (self.remat or self.gpu) is not None:
            raise ValueError("--remat and --gpu are for what training takes: expected --devices or --memory with them")
        if self.memory is not None and self.memory > gpu.memory:
            raise ValueError(
                f"memory is {_gigabytes(self.memory)}: expected at most the {_gigabytes(gpu.memory)} of one {gpu.name}"
            )

    def _numbers_of_devices(self) -> list[int]:
        """Return the numbers of devices to try, those that can share a batch; none without a reason to compile."""
        if self.devices is not None:
            if self.batch % self.devices:  # before others are simulated
                raise ValueError(f"batch is {self.batch}: expected a multiple of the {self.devices} devices")
            return [self.devices]
        most = 0 if self.memory is None else min(self.batch, MOST_DEVICES)
        return [number for number in range(1, most + 1) if self.batch % number == 0]

    def _attempts(self, run: Run, compiler: Target | None, devices: Sequence[int]) -> list[Attempt]:
        """Return what was tried; the last one is what to do."""
        status = StatusLine()

        def compiling(devices: int, remat: Rematerialization | None) -> None:
            again = "" if remat is None else f", with {_AGAIN[remat]} computed again"
            status.say(f"compiling for {compiler and compiler.several(devices)}{again} ...")

        if self.memory is None:
            compiling(devices[0], self.remat)
            return [attempt(run, compiler, devices=devices[0], remat=self.remat)]
        remats = None if self.remat is None else (self.remat,)
        return list(attempts(run, compiler, self.memory, devices=devices, remats=remats, compiling=compiling))


def _to_json(found: Attempt, compiler: Target | None, gpu: Gpu) -> dict[str, Any]:
    cost, compiled = found.cost, found.compiled
    by_compiler = (None, None) if compiled is None else (compiled.arguments, compiled.temporaries)
    return {
        **asdict(cost),
        "compiled_for": None if compiled is None or compiler is None else compiler.several(cost.devices),
        **dict(zip(("compiled_argument_bytes", "compiled_temporary_bytes"), by_compiler, strict=True)),
        "gpu": gpu.name,
        "gpu_hours": cost.seconds_at(gpu.flops) / 3600,
    }


def _tabulate(found: Sequence[Attempt], memory: float) -> str:
    """Draw what was tried; of a number of devices that was hopeless, only the least."""
    asked = {one.cost.devices for one in found if one.compiled is not None}
    least = {one.cost.devices: one for one in found}
    rows = [
        (
            str(one.cost.devices),
            _AGAIN[one.cost.remat],
            _gigabytes(one.cost.bytes),
            "–" if one.compiled is None else _gigabytes(one.bytes),
            "yes" if one.bytes <= memory else "no",
        )
        for one in found
        if one.cost.devices in asked or one is least[one.cost.devices]
    ]
    headings = ("devices", "computed again", "estimated", "compiled", f"within {_gigabytes(memory)}")
    return table(headings, rows, right=(0, 2, 3))


def _what_does_not_fit(last: Attempt, batch: int) -> str:
    cost = last.cost
    state = {"parameters": cost.parameter_bytes, "optimizer state": cost.optimizer_bytes}
    parts = sorted({**state, **cost.temporary_bytes}.items(), key=lambda part: -part[1])
    named = ", ".join(f"{name} {_gigabytes(value)}" for name, value in parts if value)
    most = f", and no more can share a batch of {batch}" if cost.devices == batch else ""
    return f"It does not fit. On {_each_of(cost.devices)} there are, estimated: {named}{most}."


def _each_of(devices: int) -> str:
    return "one device" if devices == 1 else f"each of {devices} devices"


def _describe(found: Attempt, compiler: Target | None, gpu: Gpu, *, optimizer: str, width: int) -> list[str]:
    cost, compiled = found.cost, found.compiled
    state, temporary = cost.parameter_bytes + cost.optimizer_bytes, sum(cost.temporary_bytes.values())

    def line(name: str, estimated: int, by_compiler: int | None = None) -> str:
        return f"  {name:26}{_gigabytes(estimated):>18}" + ("" if not by_compiler else f"{_gigabytes(by_compiler):>14}")

    hours, whole = cost.seconds_at(gpu.flops) / 3600, width % cost.devices
    again = f", of which {cost.computed_again:.3g} are computed again" if cost.computed_again else ""
    return [
        f"on {_each_of(cost.devices)}, with {_AGAIN[cost.remat]} computed again"
        f" (train with --fsdp {cost.devices} --remat {cost.remat}):",
        f"  {'':26}{'estimated':>18}" + ("" if compiled is None else f"{'compiled':>14}"),
        line("parameters", cost.parameter_bytes),
        line(f"{optimizer} state", cost.optimizer_bytes),
        line("arguments of a step", state, compiled and compiled.arguments),
        *(line(name, value) for name, value in cost.temporary_bytes.items() if value),
        line("temporaries of a step", temporary, compiled and compiled.temporaries),
        line("in all", cost.bytes, compiled and compiled.total),
        _by_whom(compiler, gpu, cost.devices),
        *([f"matrices are whole on every device: {cost.devices} does not divide the width"] if whole else []),
        "",
        "in total:",
        f"  FLOPs of a step           {cost.flops_per_step + cost.computed_again:>18.3g}   estimated{again}",
        f"  tokens                    {cost.tokens:>18,}   in {cost.steps:,} steps",
        f"  GPU-hours                 {hours:>18,.1f}   at {gpu.flops / 1e12:.0f} TFLOP/s each, two fifths of the peak",
        f"  time                      {duration(3600 * hours / cost.devices):>18}   on {cost.devices}",
    ]


def _by_whom(compiler: Target | None, gpu: Gpu, devices: int) -> str:
    """Return the line that names the compiler and the memory of a GPU."""
    if compiler is not None and compiler.gpu is not None:
        takes = f"of the {_gigabytes(gpu.memory)} of each, JAX takes {_gigabytes(JAX_TAKES * gpu.memory)} by default"
        return f"compiled for {compiler.several(devices)}; {takes}"
    asking = "to compile for GPUs without having any: pip install 'widthwise[cuda]'"
    return asking if compiler is None else f"compiled for {compiler.several(devices)}, unlike GPUs; {asking}"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:,.2f} GB"
