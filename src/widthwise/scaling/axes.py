"""The axes of a parameter: which are summed over, which are produced, and which only enumerate layers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The input axes of a leaf (summed over), its output axes, and its stack axes (one entry per layer).

    Every axis belongs to exactly one of the three. A LayerNorm scale or bias has only outputs. The leading axis of
    blocks stacked for `lax.scan` is a stack axis; norms and fan-ins are computed per layer, never over it.
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    stack: tuple[int, ...] = ()

    def check(self, path: str, shape: tuple[int, ...]) -> None:
        """Raise unless the axes are a partition of the axes of this shape."""
        if sorted((*self.inputs, *self.outputs, *self.stack)) != list(range(len(shape))):
            raise ValueError(
                f"axes of {path!r} are inputs {self.inputs}, outputs {self.outputs}, stack {self.stack}: "
                f"expected each axis of shape {shape} exactly once"
            )
