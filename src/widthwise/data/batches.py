"""Batches for training and evaluation.

Training sequences are packed: the concatenated corpus is cut into windows of context + 1 tokens that overlap by one, so
that every token but the first is predicted once. Evaluation sequences are documents cut into pieces and padded, with
weight 0 where there is nothing to predict.

A corpus that fits on the device stays there, and each step gathers its windows from it. A larger one is read ahead of
time through Grain. Both produce the same batches, and the engine need not know which one it uses: `data` stays on the
device, `chunk` is what several steps need in addition, and the `reader` combines them into the tokens of one step,
inside the compiled step. Readers of the same kind compare equal, whatever the content and the seed, so they share one
compilation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from widthwise.data.corpus import Corpus, Tokens
from widthwise.data.order import Order
from widthwise.parameterize import PyTree


class Batches(Protocol):
    """The interface of training data."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        ...

    @property
    def data(self) -> PyTree:
        """The arrays that stay on the device."""
        ...

    def chunk(self, start: int, count: int) -> PyTree:
        """Return what `count` steps from `start` on need in addition; each leaf has a leading axis of steps."""
        ...

    @property
    def reader(self) -> "Reader":
        """The function that combines both into tokens."""
        ...


class Reader(Protocol):
    """The part of batches that is compiled; a hashable value."""

    def at(self, data: PyTree, item: PyTree) -> jax.Array:
        """Return the tokens of one step, of shape (batch, context + 1); `item` is one step of a chunk."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Padded sequences to evaluate on.

    Attributes:
        tokens: Tokens, of shape (batches, batch, context + 1).
        weights: 1 where there is a token to predict, of shape (batches, batch, context).
    """

    tokens: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Resident:
    """Training batches from a corpus on the device."""

    tokens: np.ndarray
    order: Order
    context: int
    vocabulary: int

    @property
    def data(self) -> np.ndarray:
        """The whole corpus."""
        return np.asarray(self.tokens)

    def chunk(self, start: int, count: int) -> np.ndarray:
        """Return the indices of the windows of each step."""
        return self.order.steps(start, count).astype(np.int32)

    @property
    def reader(self) -> "Windows":
        """The reader that gathers windows."""
        return Windows(self.context)


@dataclass(frozen=True)
class Windows:
    """Gathers windows of a corpus by index."""

    context: int

    def at(self, data: jax.Array, item: jax.Array) -> jax.Array:
        """Gather the windows of one step."""
        starts = item * self.context
        return data[starts[:, None] + jnp.arange(self.context + 1)].astype(jnp.int32)


@dataclass(frozen=True)
class Streamed:
    """Training batches from a corpus that is read from disk through Grain, ahead of time.

    Attributes:
        tokens: The memory-mapped corpus.
        order: The windows of each step.
        context: The sequence length.
        vocabulary: The number of tokens.
        rows: The rows of each batch that this process reads; None for all.
        threads: The number of reading threads.
    """

    tokens: np.ndarray
    order: Order
    context: int
    vocabulary: int
    rows: slice | None = None
    threads: int = 4
    _open: dict[str, Any] = field(default_factory=dict[str, Any], init=False, repr=False, compare=False)

    @property
    def data(self) -> tuple[()]:
        """Empty: nothing stays on the device."""
        return ()

    def chunk(self, start: int, count: int) -> np.ndarray:
        """Return the windows of each step; consecutive chunks are read ahead."""
        if self._open.get("next") != start:
            self._open["iterator"] = self._read_from(start)
        steps = [next(self._open["iterator"]) for _ in range(count)]
        self._open["next"] = start + count
        return np.stack(steps)

    @property
    def reader(self) -> "AsRead":
        """The reader that returns windows unchanged."""
        return AsRead()

    def _read_from(self, start: int) -> Iterator[np.ndarray]:
        import grain

        source = _Steps(self.tokens, self.order, self.context, start, self.rows or slice(None))
        options = grain.ReadOptions(num_threads=self.threads, prefetch_buffer_size=4 * self.threads)
        return iter(grain.MapDataset.source(source).to_iter_dataset(options))


@dataclass(frozen=True)
class AsRead:
    """Returns windows as they were read."""

    def at(self, data: PyTree, item: jax.Array) -> jax.Array:
        """Return the windows of one step."""
        del data
        return item.astype(jnp.int32)


@dataclass(frozen=True)
class _Steps:
    """The steps of a run as a random-access sequence, as Grain expects."""

    tokens: np.ndarray
    order: Order
    context: int
    start: int
    rows: slice

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: Any) -> np.ndarray:
        windows = self.order.steps(self.start + int(index), 1)[0][self.rows]
        return np.stack([self.tokens[w * self.context : (w + 1) * self.context + 1] for w in windows])


def training_batches(
    corpus: Corpus, *, context: int, batch: int, seed: int, resident_up_to: int = 1 << 30
) -> Resident | Streamed:
    """Return training batches: on the device if the corpus has at most `resident_up_to` bytes, otherwise streamed."""
    tokens = corpus.train.tokens
    windows = max(0, len(tokens) - 1) // context
    order = Order(sequences=windows, batch=batch, seed=seed)
    kind = Resident if tokens.nbytes <= resident_up_to else Streamed
    return kind(tokens, order, context, corpus.vocabulary)


def evaluation_batches(corpus: Corpus, *, context: int, batch: int, batches: int) -> Evaluation:
    """Return up to `batches` batches of held-out pieces, spread over the documents."""
    tokens, weights = pad_documents(corpus.held_out, context)
    if not len(tokens):
        raise ValueError("the corpus has no held-out text to evaluate on: use more text")
    wanted = min(batches * batch, -(-len(tokens) // batch) * batch)
    chosen = np.linspace(0, len(tokens) - 1, min(wanted, len(tokens))).astype(np.int64)
    short = wanted - len(chosen)
    tokens = np.concatenate([tokens[chosen], np.zeros((short, context + 1), tokens.dtype)])
    weights = np.concatenate([weights[chosen], np.zeros((short, context), weights.dtype)])
    return Evaluation(tokens.reshape(-1, batch, context + 1), weights.reshape(-1, batch, context))


def pad_documents(split: Tokens, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut documents into pieces of context + 1 tokens that overlap by one; pad the last piece of each."""
    if not len(split.tokens):
        return np.zeros((0, context + 1), np.int32), np.zeros((0, context), np.float32)
    stops = np.append(split.starts[1:], len(split.tokens))
    pieces = [
        np.arange(start, max(start + 1, end - 1), context) for start, end in zip(split.starts, stops, strict=True)
    ]
    begins, ends = np.concatenate(pieces), np.repeat(stops, [len(piece) for piece in pieces])
    positions = begins[:, None] + np.arange(context + 1)
    inside = positions < ends[:, None]
    tokens = np.where(inside, split.tokens[np.minimum(positions, len(split.tokens) - 1)], 0)
    return tokens.astype(np.int32), inside[:, 1:].astype(np.float32)
