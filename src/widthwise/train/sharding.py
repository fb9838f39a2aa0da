"""Sharding: runs and their parameters over many devices.

A mesh has two axes. Lanes are split over `lanes`; parameters, gradients and optimizer state of each are split over
`fsdp` (fully sharded data parallelism), along their largest axis that divides evenly, and so is the batch. A single
run uses both axes for its batch. Where to split follows from shapes alone, so it holds for every optimizer.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PyTree: TypeAlias = Any


@dataclass(frozen=True)
class Placement:
    """How runs lie on a mesh of `lanes` × `fsdp` devices.

    Attributes:
        mesh: The devices.
        side_by_side: Whether arrays have a leading axis of lanes.
    """

    mesh: Mesh
    side_by_side: bool

    @property
    def replicated(self) -> NamedSharding:
        """The same on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def batch(self) -> NamedSharding:
        """A batch of sequences, split over the devices that share a run."""
        return NamedSharding(self.mesh, PartitionSpec("fsdp" if self.side_by_side else ("lanes", "fsdp")))

    def state(self, shape: tuple[int, ...]) -> NamedSharding:
        """One array of parameters or optimizer state; scalars are the same everywhere."""
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
    """Give a mesh over all devices of all processes."""
    devices = jax.devices()
    if fsdp is None:
        fsdp = len(devices) // lanes
    if lanes < 1 or fsdp < 1 or lanes * fsdp > len(devices):
        raise ValueError(f"a mesh of {lanes} lanes × {fsdp} devices each: there are {len(devices)} devices")
    return Mesh(np.array(devices[: lanes * fsdp]).reshape(lanes, fsdp), ("lanes", "fsdp"))


def place(tree: PyTree, sharding: NamedSharding | None) -> PyTree:
    """Put host arrays, the same in every process, on the devices of a mesh; on the default device without one."""
    if sharding is None:
        return jax.tree.map(jax.numpy.asarray, tree)

    def one(x: Any) -> jax.Array:
        host = np.asarray(x)
        host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype))
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(one, tree)
