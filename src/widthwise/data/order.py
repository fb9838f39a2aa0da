"""The order of training sequences, which depends only on the seed and the step.

Each pass over the data is a new permutation, computed entry by entry (a Feistel network, iterated until the result is
in range), so any process can compute the sequences of any step without going through the previous ones.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

_ROUNDS = 6


@dataclass(frozen=True, kw_only=True)
class Order:
    """The sequences of each step.

    Attributes:
        sequences: The number of sequences.
        batch: The number of sequences per step.
        seed: The seed of the order.
    """

    sequences: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}: expected 1 or more")
        if self.sequences < self.batch:
            raise ValueError(
                f"the corpus has {self.sequences} training sequences, fewer than a batch of {self.batch}: "
                "use a smaller batch, a shorter context or more text"
            )

    def steps(self, start: int, count: int) -> np.ndarray:
        """Return the sequences of `count` steps from `start` on, of shape (count, batch).

        >>> Order(sequences=4, batch=2, seed=0).steps(0, 2).ravel().tolist() != [0, 1, 2, 3]
        True
        >>> sorted(Order(sequences=4, batch=2, seed=0).steps(0, 2).ravel().tolist())
        [0, 1, 2, 3]
        """
        position = np.arange(start * self.batch, (start + count) * self.batch, dtype=np.int64)
        epoch, index = np.divmod(position, self.sequences)
        return self._permuted(index, epoch).reshape(count, self.batch)

    def _permuted(self, index: np.ndarray, epoch: np.ndarray) -> np.ndarray:
        half = max(1, (int(self.sequences - 1).bit_length() + 1) // 2)
        found = self._feistel(index, epoch, half)
        while (outside := found >= self.sequences).any():
            found = np.where(outside, self._feistel(found, epoch, half), found)
        return found

    def _feistel(self, value: np.ndarray, epoch: np.ndarray, half: int) -> np.ndarray:
        mask = np.uint64((1 << half) - 1)
        whole = value.astype(np.uint64)
        left, right = whole >> np.uint64(half), whole & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (_hash(right, epoch, self.seed, turn) & mask)
        return (left << np.uint64(half) | right).astype(np.int64)


def _hash(value: Any, epoch: Any, seed: int, turn: int) -> Any:
    """Mix numbers into 64 bits (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = value * np.uint64(0x9E3779B97F4A7C15) + epoch.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = x + np.uint64((seed * 0xA0761D6478BD642F + turn * 0xE7037ED1A0B428DB) % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
