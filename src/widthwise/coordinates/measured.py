"""What is measured of a layer, whatever framework measures it."""

import re
from dataclasses import dataclass
from typing import Any, Protocol

FIELDS = (
    "ratio",
    "alpha",
    "omega",
    "u",
    "output",
    "output_change",
    "input_change",
    "updated",
    "inherited",
    "joint",
    "fan_in",
)
"""The names of the measurements; see `widthwise.measure.LayerMeasurement`."""


class Measured(Protocol):
    """The measurements of all layers at one step: `values` has an array over layers for every field."""

    @property
    def paths(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def values(self) -> Any: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class AlignmentPoint:
    """The measurements of the dense layers at one step.

    Attributes:
        step: The number of steps taken.
        layers: The fields by layer, in the order of the forward pass.
    """

    step: int
    layers: dict[str, dict[str, float]]


def weights_of(name: str) -> tuple[str, ...]:
    """Return the paths of the weights of a captured use.

    >>> weights_of("blocks/kernel#2[3]"), weights_of("hi/kernel+hf/kernel")
    (('blocks/kernel',), ('hi/kernel', 'hf/kernel'))
    """
    return tuple(re.sub(r"(#\d+)?(\[\d+\])*$", "", name).split("+"))
