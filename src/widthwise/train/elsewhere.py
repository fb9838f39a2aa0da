"""What training takes on devices that are not here: a chunk of steps is compiled for them, and never run.

Where JAX's CUDA plugin is installed, XLA compiles for GPUs that it is only told about: it takes neither a GPU nor a
driver. It cannot time kernels then, and takes its default for each. Elsewhere the devices are simulated on the CPU,
whose compiler plans memory in another way.
"""

import importlib.util
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from widthwise.data.batches import AsRead
from widthwise.parameterize import PyTree
from widthwise.train.compiling import FOR_GPUS
from widthwise.train.gpus import Gpu
from widthwise.train.lanes import Setup, take_steps
from widthwise.train.program import Lane, Program
from widthwise.train.sharding import Placement

PER_HOST = 8
STEPS = 20
"""Steps of a chunk, as `widthwise train` takes them by default."""


@dataclass(frozen=True)
class Memory:
    """The memory that training takes on each device, in bytes, by the compiler.

    Attributes:
        arguments: Parameters, optimizer state and a batch.
        temporaries: Everything else.
    """

    arguments: int
    temporaries: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.arguments + self.temporaries


@dataclass(frozen=True)
class Target:
    """A kind of device to compile for.

    Attributes:
        gpu: The GPU that the compiler is told about; None for simulated devices on the CPU.
    """

    gpu: Gpu | None

    def several(self, count: int) -> str:
        """Name so many of them."""
        name = "simulated CPU" if self.gpu is None else f"mocked {self.gpu.model}"
        return f"{count} {name}{'' if count == 1 else 's'}"

    def memory(self, program: Program, lane: Lane, *, batch: int, devices: int) -> Memory:
        """Compile a chunk of steps that is split over so many devices, and return what it takes on each."""
        found = jax.devices()[:devices] if self.gpu is None else _mocked(self.gpu, devices)
        program = replace(program, model=replace(program.model, for_gpu=self.gpu is not None))
        options = None if self.gpu is None else FOR_GPUS
        return _memory(program, lane, batch, found, options)


def mocked(gpu: Gpu) -> Target | None:
    """Return the target for a kind of GPU; None if no compiler for GPUs is installed.

    To be called before JAX first looks for devices, so that GPUs in this machine are left alone.
    """
    jax.config.update("jax_platforms", "cpu")
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "1":  # JAX's default
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # of a lack of memory the result will tell
    if importlib.util.find_spec("jax_plugins") is None:
        return None
    installed = any(importlib.util.find_spec(f"jax_plugins.xla_cuda{version}") for version in (12, 13))
    return Target(gpu) if installed else None


def simulated(count: int) -> Target:
    """Return the target of devices simulated on the CPU, to be called before JAX first looks for devices."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    jax.config.update("jax_platforms", "cpu")
    if jax.device_count() < count:
        raise ValueError(f"{count} devices cannot be simulated: this process has {jax.device_count()} already")
    return Target(None)


def _memory(program: Program, lane: Lane, batch: int, devices: Sequence[Any], options: dict[str, Any] | None) -> Memory:
    placement = Placement(Mesh(np.array(devices).reshape(1, -1), ("lanes", "fsdp")), side_by_side=False)

    def like(x: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    def whole(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: like(x, placement.replicated), jax.eval_shape(lambda x: x, tree))

    state = jax.tree.map(lambda x: like(x, placement.state(x.shape)), jax.eval_shape(program.start, lane))
    items = like(jax.ShapeDtypeStruct((STEPS, batch, program.model.context + 1), jnp.int32), placement.batches)
    setup = Setup(program, placement if len(devices) > 1 else None, None)
    lowered = take_steps.lower(state, whole(lane), (), items, None, setup=setup, reader=AsRead())
    found = lowered.compile(options).memory_analysis()
    new = found.output_size_in_bytes - found.alias_size_in_bytes  # the new state takes the place of the old one
    return Memory(found.argument_size_in_bytes, found.temp_size_in_bytes + new)


def _mocked(gpu: Gpu, count: int) -> list[Any]:
    """Return devices that can be compiled for, in hosts of eight where that is possible."""
    from jax.experimental import topologies

    jax.devices()  # finds the plugin
    host = math.gcd(count, PER_HOST)
    shape = f"1x{count // host}x{host}"
    return list(topologies.get_topology_desc("", "cuda", target_config=_described(gpu), topology=shape).devices)


def _described(gpu: Gpu) -> str:
    """Return the description that XLA reads, a `GpuTargetConfigProto` as text."""
    return f"""
        gpu_device_info {{
          threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
          block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
          registers_per_core_limit: 65536 registers_per_block_limit: 65536
          shared_memory_per_block: 49152 shared_memory_per_block_optin: {gpu.shared - 1024}
          shared_memory_per_core: {gpu.shared} l2_cache_size: {gpu.cache}
          core_count: {gpu.cores} fpus_per_core: {gpu.units} clock_rate_ghz: {gpu.clock}
          memory_bandwidth: {gpu.bandwidth} device_memory_size: {gpu.memory}
          cuda_compute_capability {{ major: {gpu.capability} }}
        }}
        platform_name: "CUDA"
        dnn_version_info {{ major: 9 minor: 20 }}
        runtime_version {{ major: 12 minor: 9 }}
        device_description_str: "{gpu.model}"
    """
