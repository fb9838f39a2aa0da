"""Training data on its way to the devices: what stays there, and what each chunk of steps needs in addition.

A corpus that is read from disk is read by rows: each process reads those of its devices, and each device gets its own.
"""

import functools
from dataclasses import replace

import jax
import numpy as np

from widthwise.data import Batches, Reader, Streamed
from widthwise.parameterize import PyTree
from widthwise.train.sharding import Placement, place, place_rows


class Feed:
    """The training data of a run, or of several that share it.

    Attributes:
        reader: The function that combines data and items into tokens, when compiled.
    """

    def __init__(self, batches: Batches, devices: Placement | None) -> None:
        self._devices, self._everywhere = devices, None if devices is None else devices.replicated
        self._rows_of: int | None = None
        if devices is not None and isinstance(batches, Streamed):
            self._rows_of = batches.order.batch
            devices.check(self._rows_of)
            batches = replace(batches, rows=devices.rows(self._rows_of))
        self._batches = batches
        self.reader: Reader = batches.reader

    @functools.cached_property
    def data(self) -> PyTree:
        """What stays on the devices."""
        return place(self._batches.data, self._everywhere)

    def items(self, start: int, count: int, *, size: int | None = None) -> PyTree:
        """Return what `count` steps from `start` on need, on the devices; with `size`, filled up to as many steps."""
        items = self._batches.chunk(start, count)
        if size is not None:
            items = jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], size - count, axis=0)]), items)
        if self._devices is None or self._rows_of is None:
            return place(items, self._everywhere)
        return place_rows(items, self._devices, batch=self._rows_of)

    def like(self, count: int) -> tuple[PyTree, PyTree]:
        """Return data and items of `count` steps as they are on one device, to compile for; nothing is put there."""
        items = jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape[1:])), self._one_step)
        return self._batches.data, items

    @functools.cached_property
    def tokens_per_step(self) -> int:
        """The number of tokens that a step predicts."""
        item = jax.tree.map(lambda x: x[0], self._one_step)
        batch, length = jax.eval_shape(self.reader.at, self._batches.data, item).shape
        return (self._rows_of or batch) * (length - 1)

    @functools.cached_property
    def _one_step(self) -> PyTree:
        return self._batches.chunk(0, 1)  # read once, because streamed data starts over
