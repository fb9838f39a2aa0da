"""Sharding of runs and their parameters over many devices.

A mesh has two axes. Lanes are sharded over `lanes`. The parameters, gradients, optimizer state and batch of each lane
are sharded over `fsdp` (fully sharded data parallelism), arrays along their first evenly divisible axis: then parts
mostly lie together in memory. A single run uses both axes for its batch. The sharding depends only on shapes, so it
works for every optimizer.

Losses and gradients are computed by each device for its part of the batch (`Placement.value_and_grad`). A matrix is
gathered where it acts, in the precision in which it acts, and its gradient is summed and split as soon as it is there.
What the compiler would do by itself, given only how arrays are split, takes two whole copies of the model in float32.
Matrices that Muon orthogonalizes are shared out among the devices, each a whole one (`Placement.share`). What else an
optimizer does is left to the compiler.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
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
        return NamedSharding(self.mesh, PartitionSpec(self._of_run))

    @property
    def _of_run(self) -> tuple[str, ...]:
        """The axes of the mesh over which the batch of a run is split."""
        return ("fsdp",) if self.side_by_side else ("lanes", "fsdp")

    @property
    def batches(self) -> NamedSharding:
        """The sharding of several batches, (batches, sequences, ...)."""
        return NamedSharding(self.mesh, PartitionSpec(None, self._of_run))

    @property
    def _devices_of_run(self) -> int:
        return math.prod(self.mesh.shape[name] for name in self._of_run)

    def check(self, batch: int) -> None:
        """Raise ValueError if the devices of a run cannot share a batch of so many sequences."""
        if batch % self._devices_of_run:
            raise ValueError(f"a batch of {batch} sequences: expected a multiple of the {self._devices_of_run} devices")

    def rows(self, batch: int) -> slice:
        """Return which sequences of a batch this process reads for its devices."""
        indices: Any = self.batch.addressable_devices_indices_map((batch,))
        parts = [index[0].indices(batch) for index in indices.values()]
        return slice(min(start for start, _, _ in parts), max(stop for _, stop, _ in parts))

    def state(self, shape: tuple[int, ...]) -> NamedSharding:
        """Return the sharding of an array of parameters or optimizer state; scalars are replicated."""
        lead = 1 if self.side_by_side else 0
        if len(shape) <= lead:
            return self.replicated
        names: list[str | None] = [None] * len(shape)
        if self.side_by_side and self.splits_lanes(shape[0]):
            names[0] = "lanes"
        if (axis := self._axis(shape[lead:])) is not None:
            names[lead + axis] = "fsdp"
        return NamedSharding(self.mesh, PartitionSpec(*names))

    def splits_lanes(self, count: int) -> bool:
        """Return whether that many lanes are split over the mesh."""
        return count % self.mesh.shape["lanes"] == 0

    def _axis(self, shape: tuple[int, ...]) -> int | None:
        """Return the axis along which an array of one run is split; None if it is not."""
        return split_axis(shape, self.mesh.shape["fsdp"])

    def whole(self, part: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Return a whole matrix in the precision in which it acts, from the part of it that this device has."""
        axis = self._axis(shape)
        return part.astype(dtype) if axis is None else _gather(part, axis, self._of_run, jnp.dtype(dtype))

    def value_and_grad(
        self, loss: Callable[[PyTree, PyTree, PyTree], jax.Array], params: PyTree, lane: PyTree, batch: PyTree
    ) -> tuple[jax.Array, PyTree]:
        """Return the mean loss of a batch and its gradient.

        Args:
            loss: The mean loss of a part of the batch, from the parts of matrices that a device has (see `whole`).
            params: The parameters of one run.
            lane: The run's other data.
            batch: Sequences.
        """
        specs = self._specs(params)
        count = self._devices_of_run

        def local(params: PyTree, lane: PyTree, batch: PyTree) -> tuple[jax.Array, PyTree]:
            value, gradients = jax.value_and_grad(lambda params: loss(params, lane, batch) / count)(params)
            # The gradients of gathered matrices are sums already.
            gradients = jax.tree.map(
                lambda x, spec: x if any(spec) else jax.lax.psum(x, self._of_run), gradients, specs
            )
            return jax.lax.psum(value, self._of_run), gradients

        return self._on_each(local, specs, 0, (PartitionSpec(), specs))(params, lane, batch)

    def total(
        self, function: Callable[[PyTree, PyTree, PyTree], PyTree], params: PyTree, lane: PyTree, batches: PyTree
    ) -> PyTree:
        """Return the sum of what each device computes for its part of every batch."""

        def local(params: PyTree, lane: PyTree, batches: PyTree) -> PyTree:
            return jax.lax.psum(function(params, lane, batches), self._of_run)

        return self._on_each(local, self._specs(params), 1, PartitionSpec())(params, lane, batches)

    def share(self, function: Callable[[jax.Array], jax.Array], arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Apply a function to whole arrays of one run, each device to some of them.

        Args:
            function: Returns a stack of results from a stack of arrays, of the same shapes.
            arrays: Arrays of equal shape, of which every device has a part.
        """
        if (axis := self._axis(arrays[0].shape)) is None:
            return list(function(jnp.stack(arrays)))
        missing = -len(arrays) % self.mesh.shape["fsdp"]

        def local(*parts: jax.Array) -> tuple[jax.Array, ...]:
            stack = jnp.pad(jnp.stack(parts), ((0, missing), *[(0, 0)] * parts[0].ndim))
            whole = jax.lax.all_to_all(stack, "fsdp", split_axis=0, concat_axis=axis + 1, tiled=True)
            found = jax.lax.all_to_all(function(whole), "fsdp", split_axis=axis + 1, concat_axis=0, tiled=True)
            return tuple(found[: len(parts)])

        specs = (PartitionSpec(*[None] * axis, "fsdp"),) * len(arrays)
        return list(jax.shard_map(local, mesh=self.mesh, in_specs=specs, out_specs=specs, check_vma=False)(*arrays))

    def _specs(self, params: PyTree) -> PyTree:
        """Return how the parameters of one run reach a device: matrices in parts, all else whole."""

        def one(x: jax.Array) -> PartitionSpec:
            axis = self._axis(x.shape) if x.ndim > 1 else None
            return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, "fsdp")

        return jax.tree.map(one, params)

    def _on_each(self, function: Callable[..., Any], params: PyTree, rows: int, out: PyTree) -> Callable[..., Any]:
        """Apply a function on each device to its part of a batch, of which `rows` is the axis of sequences."""
        specs = (params, PartitionSpec(), PartitionSpec(*[None] * rows, self._of_run))
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _gather(part: jax.Array, axis: int, names: tuple[str, ...], dtype: jnp.dtype) -> jax.Array:
    """Gather the parts of a matrix; the parts of its gradient are summed in float32."""
    return _gather_forward(part, axis, names, dtype)[0]


def _gather_forward(part: jax.Array, axis: int, names: tuple[str, ...], dtype: jnp.dtype) -> tuple[jax.Array, None]:
    del names
    return jax.lax.all_gather(part.astype(dtype), "fsdp", axis=axis, tiled=True), None


def _gather_backward(
    axis: int, names: tuple[str, ...], dtype: jnp.dtype, _: None, whole: jax.Array
) -> tuple[jax.Array]:
    wide = whole.astype(jnp.promote_types(dtype, jnp.float32))
    part = jax.lax.psum_scatter(wide, "fsdp", scatter_dimension=axis, tiled=True)
    others = tuple(name for name in names if name != "fsdp")
    return (jax.lax.psum(part, others) if others else part,)


_gather.defvjp(_gather_forward, _gather_backward)


def split_axis(shape: Sequence[int], devices: int) -> int | None:
    """Return the axis along which an array is split over devices: the first that divides; None if none does.

    >>> split_axis((32101, 1024), 8), split_axis((1024, 1024), 12), split_axis((1024,), 1)
    (1, None, None)
    """
    dividing = [axis for axis, length in enumerate(shape) if length and length % devices == 0]
    return dividing[0] if dividing and devices > 1 else None


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


def place_rows(rows: np.ndarray, devices: Placement, *, batch: int) -> jax.Array:
    """Put the rows of several batches that this process has read (see `Placement.rows`) on its devices."""
    shape = (len(rows), batch, *rows.shape[2:])
    return jax.make_array_from_process_local_data(devices.batches, rows, shape)
