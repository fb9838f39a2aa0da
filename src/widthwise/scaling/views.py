"""Views: which axes of an array come from which axes of a parameter.

Between its place in the tree and its use, a weight is cast, transposed, reshaped, sliced, stacked or joined with
others. A view follows the axes through this. Each axis of the array is a list of parts of parameter axes, outermost
first, so that splitting heads off an axis and merging them again loses nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple


class Piece(NamedTuple):
    """Piece of a parameter's axis; `axis` is None for an axis that does not come from the parameter."""

    axis: int | None
    size: int


@dataclass(frozen=True, slots=True)
class View:
    """An array made of a parameter.

    Attributes:
        path: The parameter.
        parts: For each axis of the array, where it comes from. An axis of size 1 comes from nowhere.
        stack: Axes of the parameter of which this is one entry.
        whole: The shape of the parameter.
        passed: Axes of the parameter that were summed over with another parameter, as in a low-rank product.
        linear: Whether the array is linear in the parameter.
        scanned: Whether it is the entry of one iteration of a scan.
    """

    path: str
    parts: tuple[tuple[Piece, ...], ...]
    whole: tuple[int, ...]
    stack: frozenset[int] = frozenset()
    passed: frozenset[int] = frozenset()
    linear: bool = True
    scanned: bool = False

    @classmethod
    def of(cls, path: str, shape: Sequence[int]) -> "View":
        """Return the view of a whole parameter."""
        return cls(path, tuple(_whole(axis, size) for axis, size in enumerate(shape)), tuple(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(prod(part.size for part in parts) for parts in self.parts)

    def axes(self, positions: Sequence[int]) -> frozenset[int]:
        """Return the axes of the parameter in these axes of the array."""
        return frozenset(part.axis for at in positions for part in self.parts[at] if part.axis is not None)

    def size(self, positions: Sequence[int]) -> int:
        """Return how many entries of the parameter these axes have; other parameters beside it are not counted."""
        parts = [part for at in positions for part in self.parts[at]]
        return prod(min(part.size, self.whole[part.axis]) for part in parts if part.axis is not None)

    @property
    def passed_size(self) -> int:
        """The number of terms of the sum over `passed`."""
        return prod(self.whole[axis] for axis in self.passed)

    @property
    def all_axes(self) -> frozenset[int]:
        """Every axis of the parameter in this array."""
        return self.axes(range(len(self.parts)))

    def transposed(self, permutation: Sequence[int]) -> "View":
        """Return the view of the transposed array."""
        return replace(self, parts=tuple(self.parts[at] for at in permutation))

    def without(self, positions: Sequence[int]) -> "View":
        """Return the view of an array without these axes."""
        return replace(self, parts=tuple(parts for at, parts in enumerate(self.parts) if at not in positions))

    def one_of(self, positions: Sequence[int], *, scanned: bool = False) -> "View":
        """Return the view of one entry along these axes."""
        return replace(
            self.without(positions), stack=self.stack | self.axes(positions), scanned=self.scanned or scanned
        )

    def broadcast(self, shape: Sequence[int], dimensions: Sequence[int]) -> "View":
        """Return the view of the array broadcast to a shape; axis i becomes axis `dimensions[i]`."""
        source = {to: at for at, to in enumerate(dimensions)}
        return replace(
            self,
            parts=tuple(
                self.parts[source[at]] if at in source and self.parts[source[at]] else _whole(None, size)
                for at, size in enumerate(shape)
            ),
        )

    def resized(self, shape: Sequence[int]) -> "View":
        """Return the view of an array with other sizes of the same axes: a slice, a shard, or a padded array.

        A part that is cut off from the outside of its axis shrinks; where several parts are cut, the axis is theirs as
        a whole.
        """
        return replace(self, parts=tuple(_resized(parts, size) for parts, size in zip(self.parts, shape, strict=True)))

    def sliced(self, shape: Sequence[int]) -> "View":
        """Return the view of a slice. Where one entry is left of an axis, it is an entry of a stack."""
        gone = [at for at, (old, new) in enumerate(zip(self.shape, shape, strict=True)) if old > 1 and new == 1]
        return replace(self.resized(shape), stack=self.stack | self.axes(gone))

    def reshaped(self, shape: Sequence[int]) -> "View | None":
        """Return the view of the reshaped array; None if an axis would have to be cut across."""
        left = [part for parts in self.parts for part in parts]
        parts: list[tuple[Piece, ...]] = []
        for size in shape:
            taken = list(_take(left, size))
            if prod(part.size for part in taken) != size:
                return None
            parts.append(tuple(taken))
        return replace(self, parts=tuple(parts))

    def nonlinear(self) -> "View":
        """Return the view of a nonlinear function of every element."""
        return replace(self, linear=False)


def _whole(axis: int | None, size: int) -> tuple[Piece, ...]:
    return () if size == 1 else (Piece(axis, size),)


def _resized(parts: tuple[Piece, ...], size: int) -> tuple[Piece, ...]:
    old = prod(part.size for part in parts)
    if size == old:
        return parts
    if size == 1:
        return ()
    known = [part for part in parts if part.axis is not None]
    if len(known) > 1 and old % size == 0 and parts[0].size % (old // size) == 0:
        first = Piece(parts[0].axis, parts[0].size // (old // size))
        return (first, *parts[1:]) if first.size > 1 else parts[1:]
    return (Piece(known[0].axis if known else None, size),)


def _take(left: list[Piece], size: int) -> Iterator[Piece]:
    """Take parts of a total size from the front of a list, splitting the last one if it is too large."""
    while size > 1 and left:
        part = left.pop(0)
        if part.size <= size and size % part.size == 0:
            size //= part.size
            yield part
        elif part.size > size and part.size % size == 0:
            left.insert(0, Piece(part.axis, part.size // size))
            yield Piece(part.axis, size)
            return
        else:
            return
