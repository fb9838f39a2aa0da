"""Batches: what each training step sees, and what evaluation sees.

Training sequences are packed: the corpus end to end, cut into windows of context + 1 tokens that overlap by one, so
that every token but the first is predicted once. Evaluation sequences are documents cut into pieces and padded, with a
weight of 0 where there is nothing to predict.

A corpus that fits lives on the device, and a step gathers its windows there; a larger one is read through Grain, ahead
of time. Both give the same batches, and so the engine need not know which it has: `data` stays on the device, `chunk`
is what several steps need in addition, and the `reader` makes one step's tokens of both, inside the compiled step. It
compares equal for all batches that are read alike, whatever their content and seed, so they share one compilation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from widthwise.data.corpus import Corpus, Tokens
from widthwise.data.order import Order

PyTree: TypeAlias = Any


class Batches(Protocol):
    """What the engine needs of training data."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        ...

    @property
    def data(self) -> PyTree:
        """Give what stays on the device."""
        ...

    def chunk(self, start: int, count: int) -> PyTree:
        """Give what `count` steps from `start` on need in addition, each leaf with a leading axis of steps."""
        ...

    @property
    def reader(self) -> "Reader":
        """Give what makes tokens of both."""
        ...


class Reader(Protocol):
    """The part of batches that is compiled: a hashable value."""

    def at(self, data: PyTree, item: PyTree) -> jax.Array:
        """Give one step's tokens, of shape (batch, context + 1); `item` is one step of a chunk."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Padded sequences to evaluate on.

    Attributes:
        tokens: Of shape (batches, batch, context + 1).
        weights: 1 where a token is to be predicted, of shape (batches, batch, context).
    """

    tokens: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Resident:
    """Training batches of a corpus that lives on the device."""

    tokens: np.ndarray
    order: Order
    context: int
    vocabulary: int

    @property
    def data(self) -> np.ndarray:
        """Give the whole corpus."""
        return np.asarray(self.tokens)

    def chunk(self, start: int, count: int) -> np.ndarray:
        """Give the window numbers of each step."""
        return self.order.steps(start, count).astype(np.int32)

    @property
    def reader(self) -> "Windows":
        """Give what gathers windows."""
        return Windows(self.context)


@dataclass(frozen=True)
class Windows:
    """Gathers windows of a corpus by their numbers."""

    context: int

    def at(self, data: jax.Array, item: jax.Array) -> jax.Array:
        """Gather one step's windows."""
        starts = item * self.context
        return data[starts[:, None] + jnp.arange(self.context + 1)].astype(jnp.int32)


@dataclass(frozen=True)
class Streamed:
    """Training batches of a corpus that is read from disk through Grain, ahead of time.

    Attributes:
        tokens: The corpus, memory-mapped.
        order: Which windows each step takes.
        context: The length of sequences.
        vocabulary: The number of tokens.
        rows: The rows of each batch that this process reads; None for all.
        threads: How many threads read.
    """

    tokens: np.ndarray
    order: Order
    context: int
    vocabulary: int
    rows: slice | None = None
    threads: int = 4
    _open: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    @property
    def data(self) -> tuple[()]:
        """Nothing stays on the device."""
        return ()

    def chunk(self, start: int, count: int) -> np.ndarray:
        """Read the windows of each step; chunks in sequence were read ahead."""
        if self._open.get("next") != start:
            self._open["iterator"] = self._read_from(start)
        steps = [next(self._open["iterator"]) for _ in range(count)]
        self._open["next"] = start + count
        return np.stack(steps)

    @property
    def reader(self) -> "AsRead":
        """Give what takes windows as they come."""
        return AsRead()

    def _read_from(self, start: int) -> Iterator[np.ndarray]:
        import grain

        source = _Steps(self.tokens, self.order, self.context, start, self.rows or slice(None))
        options = grain.ReadOptions(num_threads=self.threads, prefetch_buffer_size=4 * self.threads)
        return iter(grain.MapDataset.source(source).to_iter_dataset(options))


@dataclass(frozen=True)
class AsRead:
    """Takes windows as they were read."""

    def at(self, data: PyTree, item: jax.Array) -> jax.Array:
        """Give the step's windows."""
        del data
        return item.astype(jnp.int32)


@dataclass(frozen=True)
class _Steps:
    """The steps of a run as Grain wants them: a sequence with random access."""

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
    """Give the training batches of a corpus: on the device if it has at most `resident_up_to` bytes, else streamed."""
    tokens = corpus.train.tokens
    windows = max(0, len(tokens) - 1) // context
    order = Order(sequences=windows, batch=batch, seed=seed)
    kind = Resident if tokens.nbytes <= resident_up_to else Streamed
    return kind(tokens, order, context, corpus.vocabulary)


def evaluation_batches(corpus: Corpus, *, context: int, batch: int, batches: int) -> Evaluation:
    """Give the first `batches` batches of held-out pieces, spread over its documents; fewer where there are fewer."""
    tokens, weights = pad_documents(corpus.held_out, context)
    if not len(tokens):
        raise ValueError("the corpus has no held-out text to evaluate on: more text is needed")
    wanted = min(batches * batch, -(-len(tokens) // batch) * batch)
    chosen = np.linspace(0, len(tokens) - 1, min(wanted, len(tokens))).astype(np.int64)
    short = wanted - len(chosen)
    tokens = np.concatenate([tokens[chosen], np.zeros((short, context + 1), tokens.dtype)])
    weights = np.concatenate([weights[chosen], np.zeros((short, context), weights.dtype)])
    return Evaluation(tokens.reshape(-1, batch, context + 1), weights.reshape(-1, batch, context))


def pad_documents(split: Tokens, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut documents into pieces of context + 1 tokens that overlap by one, and pad the last piece of each."""
    ends = [*split.starts[1:], *([len(split.tokens)] if len(split.starts) else [])]
    pieces, lengths = [], []
    for start, end in zip(split.starts, ends, strict=True):
        for begin in range(start, max(start + 1, end - 1), context):
            piece = np.asarray(split.tokens[begin : min(begin + context + 1, end)], np.int32)
            pieces.append(np.pad(piece, (0, context + 1 - len(piece))))
            lengths.append(len(piece) - 1)
    if not pieces:
        return np.zeros((0, context + 1), np.int32), np.zeros((0, context), np.float32)
    weights = np.arange(context) < np.array(lengths)[:, None]
    return np.stack(pieces), weights.astype(np.float32)
