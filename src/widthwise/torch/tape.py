"""A tape of the operations of a forward pass, in the names of `widthwise.scaling.operations`.

An operation of PyTorch may become several here: `addmm` is a product and a sum, and a layer norm multiplies what it
normalized by its weight and adds its bias. What happens to parameters then follows as for any other framework.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from widthwise.scaling.found import Found, Value
from widthwise.scaling.operations import Operation

Shape = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Slot:
    """An array on the tape, known by its shape."""

    shape: Shape

    @property
    def aval(self) -> "Slot":
        """The array's shape, where operations look for it."""
        return self


@dataclass(frozen=True, slots=True)
class Primitive:
    """The name of an operation."""

    name: str


@dataclass(eq=False, slots=True, kw_only=True)
class Entry:
    """One operation on the tape.

    Attributes:
        primitive: Its name.
        params: What it was called with, beside arrays.
        invars: Its operands.
        outvars: Its results.
        call: The number of the call of PyTorch that it belongs to.
    """

    primitive: Primitive
    params: dict[str, Any]
    invars: list[Slot]
    outvars: list[Slot]
    call: int


@dataclass(slots=True)
class Tape:
    """The operations of a forward pass.

    Attributes:
        entries: The operations in order.
        results: The arrays that the model returns.
        call: The number of the current call of PyTorch.
        detached: Whether no gradient flows through the current call.
    """

    entries: list[Entry] = field(default_factory=list[Entry])
    results: list[Slot] = field(default_factory=list[Slot])
    call: int = 0
    detached: bool = False

    def add(self, name: str, operands: Sequence[Slot], *shapes: Sequence[int], **params: Any) -> list[Slot]:
        """Add an operation with results of these shapes."""
        results = [Slot(tuple(shape)) for shape in shapes]
        entry = Entry(primitive=Primitive(name), params=params, invars=list(operands), outvars=results, call=self.call)
        self.entries.append(entry)
        return results

    def one(self, name: str, operands: Sequence[Slot], shape: Sequence[int], **params: Any) -> Slot:
        """Add an operation with one result."""
        return self.add(name, operands, shape, **params)[0]

    def reshape(self, x: Slot, shape: Sequence[int]) -> Slot:
        """Add a reshape, unless the array has this shape."""
        return x if x.shape == tuple(shape) else self.one("reshape", [x], shape)

    def aligned(self, x: Slot, rank: int, first: int | None = None) -> Slot:
        """Add axes of size 1, so that an array can be combined with one of more axes.

        Args:
            x: The array.
            rank: The number of axes.
            first: Where its first axis goes; by default its last axis is the last one.
        """
        before = rank - len(x.shape) if first is None else first
        after = rank - len(x.shape) - before
        return self.reshape(x, (*(1,) * before, *x.shape, *(1,) * after))

    def elementwise(self, name: str, operands: Sequence[Slot], shape: Sequence[int]) -> Slot:
        """Add an operation on every element, of operands that are broadcast as PyTorch does."""
        return self.one(name, [self.aligned(x, len(shape)) for x in operands], shape)

    def dot(self, a: Slot, b: Slot, contracted: tuple[Any, Any], batched: tuple[Any, Any], shape: Shape) -> Slot:
        """Add a product of two arrays, summed over one axis of each."""
        numbers = (contracted, batched)
        return self.one("dot_general", [a, b], shape, dimension_numbers=numbers, detached=self.detached)

    def walk(self, known: dict[Slot, Value]) -> tuple[Found, list[list[Value]]]:
        """Follow parameters through the operations.

        Args:
            known: What is known of parameters and examples. All other arrays are constants.

        Returns:
            What was found, and what is known of the operands of every operation.
        """
        found, values = Found(), dict(known)
        readers: dict[Slot, set[int]] = {}
        for entry in self.entries:
            for slot in entry.invars:
                readers.setdefault(slot, set()).add(entry.call)  # several entries of one call are one reader
        for slot in self.results:
            readers.setdefault(slot, set()).add(-1)

        def value(slot: Slot) -> Value:
            got = values.get(slot, Value())
            return got.shared() if len(readers[slot]) > 1 else got

        operands: list[list[Value]] = []
        for index, entry in enumerate(self.entries):
            given = [value(slot) for slot in entry.invars]
            operands.append(given)
            values.update(zip(entry.outvars, Operation(entry, given, found, (index,)).results(), strict=True))
        found.spend([values[slot] for slot in self.results if slot in values])
        return found, operands
