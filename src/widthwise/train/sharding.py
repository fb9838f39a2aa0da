"""Sharding of runs and their parameters over many devices.

A mesh has two axes. Lanes are sharded over `lanes`. The parameters, gradients, optimizer state and batch of each lane
are sharded over `fsdp` (fully sharded data parallelism), arrays along their largest evenly divisible axis. A single run
uses both axes for its batch. The sharding depends only on shapes, so it works for every optimizer.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from widthwise.parameterize import PyTree


@dataclass(frozen=True)
class Placement:
    """How runs are sharded over a mesh of `lanes` × `fsdp` devices.

    Attributes:
        mesh: The devices.
        side_by_side: Whether arrays have a leading axis of lanes.
    """

    mesh: Mesh
    side_by_side: bool

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of an array that is the same on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def batch(self) -> NamedSharding:
        """The sharding of a batch of sequences, over the devices of a run."""
        return NamedSharding(self.mesh, PartitionSpec("fsdp" if self.side_by_side else ("lanes", "fsdp")))

    def state(self, shape: tuple[int, ...]) -> NamedSharding:
        """Return the sharding of an array of parameters or optimizer state; scalars are replicated."""
        lead = 1 if self.side_by_side else 0
        if len(shape) <= lead:
            return self.replicated
        names: list[str | None] = [None] * len(shape)
        if self.side_by_side and shape[0] % self.mesh.shape["lanes"] == 0:
            names[0] = "lanes"
        size = self.mesh.shape["fsdp"]
        dividing = [axis for axis in range(lead, len(shape)) if shape[axis] and shape[axis] % size == 0]
        if dividing and size > 1:
            names[max(dividing, key=lambda axis: shape[axis])] = "fsdp"
        return NamedSharding(self.mesh, PartitionSpec(*names))


def make_mesh(*, lanes: int = 1, fsdp: int | None = None) -> Mesh:
    """Return a mesh over all devices of all processes."""
    devices = jax.devices()
    if fsdp is None:
        fsdp = len(devices) // lanes
    if lanes < 1 or fsdp < 1 or lanes * fsdp > len(devices):
        raise ValueError(f"a mesh of {lanes} lanes × {fsdp} devices each: there are {len(devices)} devices")
    return Mesh(np.array(devices[: lanes * fsdp]).reshape(lanes, fsdp), ("lanes", "fsdp"))


def place(tree: PyTree, sharding: NamedSharding | None) -> PyTree:
    """Put host arrays, the same in every process, on the devices of a sharding, or on the default device."""
    if sharding is None:
        return jax.device_put(tree)  # `jnp.asarray` would compile a program for every new shape

    def one(x: Any) -> jax.Array:
        host = np.asarray(x)
        host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype))
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(one, tree)
