"""A random language with known entropy, which is a lower bound of the loss of any model.

The next token depends on the previous one through a fixed random matrix. The batch of every step is drawn on the device
from the seed and the number of the step, so the stream never ends and never repeats.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from widthwise.data.batches import Evaluation

MOST_TOKENS = 8192
"""The largest vocabulary; the language is a square matrix of this size."""


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """An endless stream of sentences in a random language.

    Attributes:
        vocabulary: The number of tokens.
        context: The sequence length.
        batch: The number of sequences per step.
        seed: The seed of the stream.
        language: The seed of the language.
        sharpness: How uneven the probabilities of the next token are; with 0, all are equal.
    """

    vocabulary: int = 32
    context: int = 64
    batch: int = 16
    seed: int = 0
    language: int = 0
    sharpness: float = 2.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "context", "batch"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if self.vocabulary > MOST_TOKENS:
            raise ValueError(
                f"vocabulary is {self.vocabulary}: expected at most {MOST_TOKENS}, "
                "since a synthetic language is a square matrix of that size"
            )

    @functools.cached_property
    def log_probabilities(self) -> np.ndarray:
        """The log probability of each token (column) after each token (row)."""
        logits = self.sharpness * np.random.default_rng(self.language).normal(size=(self.vocabulary,) * 2)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    @functools.cached_property
    def stationary(self) -> np.ndarray:
        """The stationary probability of each token."""
        # π P = π. One of these equations is redundant; it is replaced by the sum of π being 1.
        equations = np.exp(self.log_probabilities).T - np.eye(self.vocabulary)
        equations[-1] = 1
        often = np.linalg.solve(equations, np.arange(self.vocabulary) == self.vocabulary - 1)
        return np.maximum(often, np.finfo(np.float32).tiny)  # rounding may make a probability negative

    @property
    def entropy(self) -> float:
        """The entropy of the next token given the previous one, in nats: the smallest possible loss."""
        p = np.exp(self.log_probabilities)
        return float(-(self.stationary[:, None] * p * self.log_probabilities).sum())

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The language and the seed."""
        following, first = self.log_probabilities.astype(np.float32), np.log(self.stationary).astype(np.float32)
        return following, first, np.asarray(self.seed, np.int32)

    def chunk(self, start: int, count: int) -> np.ndarray:
        """Return the step numbers."""
        return np.arange(start, start + count, dtype=np.int32)

    @property
    def reader(self) -> "Speaker":
        """The reader that draws sentences."""
        return Speaker(self.context, self.batch)

    def held_out(self, batches: int) -> Evaluation:
        """Draw sequences that training never sees."""
        key = jax.random.fold_in(jax.random.key(self.language), 0x7FFFFFFF)
        following, first, _ = (jnp.asarray(x) for x in self.data)
        tokens = jax.vmap(lambda k: self.reader.draw(following, first, k))(jax.random.split(key, batches))
        return Evaluation(np.asarray(tokens), np.ones((batches, self.batch, self.context), np.float32))


@dataclass(frozen=True)
class Speaker:
    """Draws sentences of a language."""

    context: int
    batch: int

    def at(self, data: tuple[jax.Array, jax.Array, jax.Array], item: jax.Array) -> jax.Array:
        """Draw the sentences of one step."""
        following, first, seed = data
        return self.draw(following, first, jax.random.fold_in(jax.random.key(seed), item))

    def draw(self, following: jax.Array, first: jax.Array, key: jax.Array) -> jax.Array:
        """Draw a batch of sentences, given the log probabilities of following tokens and of the first token."""
        keys = jax.random.split(key, self.context + 1)
        start = jax.random.categorical(keys[0], first, shape=(self.batch,))

        def next_token(token: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            token = jax.random.categorical(key, following[token], axis=-1)
            return token, token

        _, rest = jax.lax.scan(next_token, start, keys[1:])
        return jnp.concatenate([start[None], rest]).T.astype(jnp.int32)
