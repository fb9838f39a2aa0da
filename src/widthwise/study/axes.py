"""The axes along which a sweep may grow a run: width, depth, batch size, training length, and all of them together.

What is searched and fitted is the optimal learning rate against one number, the size along an axis. Only this module
knows which fields of a specification that number stands for. Batch size and tokens are independent of each other: a
larger batch takes fewer steps, because with fixed steps it would also mean more tokens. Warm-up keeps its share of the
steps, so that the schedule keeps its shape, and evaluations keep their number of sequences.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One direction in which runs grow.

    Attributes:
        name: Its name.
        plural: How several sizes are called.
        fields: The fields of a specification that change along it.
        size: Returns the size of a specification, given by field.
        change: Returns the fields that give a specification another size.
        grows: Whether the model grows along it, in parameters.
        cost: What a run costs in relation to others along it, as far as that follows from the size.
    """

    name: str
    plural: str
    fields: frozenset[str]
    size: Callable[[Mapping[str, Any]], int]
    change: Callable[[Mapping[str, Any], int], dict[str, int]]
    grows: bool = False
    cost: Callable[[int], float] = float


def _in_batches_of(spec: Mapping[str, Any], batch: int, longer: float = 1) -> dict[str, int]:
    ratio = spec["batch"] / batch
    evaluations = max(1, round(spec["eval_batches"] * ratio))
    return {"batch": batch, **_with_steps(spec, spec["steps"] * ratio * longer), "eval_batches": evaluations}


def _with_steps(spec: Mapping[str, Any], steps: float) -> dict[str, int]:
    return {"steps": max(1, round(steps)), "warmup": round(spec["warmup"] * steps / spec["steps"])}


def _everything(spec: Mapping[str, Any], width: int) -> dict[str, int]:
    ratio = width / spec["width"]
    blocks = max(1, round(spec["blocks"] * ratio ** (2 / 3)))
    return {"width": width, "blocks": blocks, **_in_batches_of(spec, max(1, round(spec["batch"] * ratio)), ratio)}


def _tokens_per_step(spec: Mapping[str, Any]) -> int:
    return spec["batch"] * spec["context"]


WIDTH = Axis(
    name="width",
    plural="widths",
    fields=frozenset({"width"}),
    size=lambda spec: spec["width"],
    change=lambda _, size: {"width": size},
    grows=True,
    cost=lambda size: size**2,  # the weights of a layer, and with them a step, grow with both of its sides
)
DEPTH = Axis(
    name="depth",
    plural="depths",
    fields=frozenset({"blocks"}),
    size=lambda spec: spec["blocks"],
    change=lambda _, size: {"blocks": size},
    grows=True,
)
BATCH = Axis(
    name="batch",
    plural="batches",
    fields=frozenset({"batch", "steps", "warmup", "eval_batches"}),
    size=lambda spec: spec["batch"],
    change=_in_batches_of,
    cost=lambda _: 1,  # the number of tokens stays
)
TOKENS = Axis(
    name="tokens",
    plural="tokens",
    fields=frozenset({"steps", "warmup"}),
    size=lambda spec: spec["steps"] * _tokens_per_step(spec),
    change=lambda spec, size: _with_steps(spec, size / _tokens_per_step(spec)),
)
TOGETHER = Axis(
    name="together",
    plural="widths",
    fields=WIDTH.fields | DEPTH.fields | BATCH.fields,
    size=WIDTH.size,
    change=_everything,
    grows=True,
    cost=lambda size: size ** (2 + 2 / 3 + 1),  # width, depth and tokens
)
"""Width, batch size and tokens in proportion, and depth as their power 2/3, so that width x 8 is depth x 4."""

OWN = "settings"
"""What a request has in place of a specification if its run is that of a training function of one's own. Its
size has the name of its axis."""
AXES: Mapping[str, Axis] = MappingProxyType({axis.name: axis for axis in (WIDTH, DEPTH, BATCH, TOKENS, TOGETHER)})
"""The axes by name."""


def axis_of(request: Mapping[str, Any]) -> Axis:
    """Return the axis that a request was made for: width unless it says otherwise, as in studies from before."""
    return AXES[request.get("axis", WIDTH.name)]


def size_of(request: Mapping[str, Any]) -> int:
    """Return the size of a request along its axis."""
    axis = axis_of(request)
    return request[axis.name] if OWN in request else axis.size(request)


def changing(request: Mapping[str, Any]) -> frozenset[str]:
    """Return the names in a request that change along its axis."""
    axis = axis_of(request)
    return frozenset({axis.name}) if OWN in request else axis.fields
