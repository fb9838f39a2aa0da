"""How many runs a device has memory for, side by side."""

import jax

from widthwise.models import count_parameters
from widthwise.sweeps.executors import Tell
from widthwise.sweeps.packs import Pack
from widthwise.sweeps.worker import resolved
from widthwise.train import Lanes
from widthwise.train.cost import state_bytes, temporary_bytes

MOST_LANES = 64
"""Runs side by side on an accelerator, if they fit."""
MEMORY_SHARE = 0.8
"""How much of a device's memory packs may take: evaluation and fragmentation need some too."""


def describe_device(_: None, tell: Tell) -> str:
    """Return the kind of the worker's device and its memory."""
    del tell
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    return f"{device.device_kind}, {limit / 2**30:.0f} GiB"


def lanes_that_fit(pack: Pack, tell: Tell) -> int:
    """Return how many runs like the first of a pack, side by side, the device has memory for.

    The compiler knows, but takes long to answer. Where twice the estimate leaves room for the largest pack, that is
    enough. The compiler's answer for an H200 that it was told about was 0.97 to 1 times the estimate.
    """
    del tell
    inputs, (run, *_) = resolved(pack)
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return 1  # a CPU, where runs train one after another anyway
    model, batch = run.program.model, run.spec.batch
    state = state_bytes(model, run.program.optimizer) - 4 * count_parameters(model).total  # without gradients
    one = state + sum(temporary_bytes(model, batch).values())
    if (roomy := int(MEMORY_SHARE * limit // (2 * one))) >= MOST_LANES:
        return roomy
    few = [Lanes(run.program, [run.lane] * count, inputs.batches) for count in (2, 4)]
    for lanes in few:
        lanes.begin(pack.options.chunk)  # both at once
    two, four = (lanes.chunk_bytes(pack.options.chunk) for lanes in few)
    return fitting(two, four, MEMORY_SHARE * limit)


def fitting(two: int, four: int, limit: float) -> int:
    """Return how many lanes a limit allows, from what two and four take; at least one.

    One lane would tell little: the compiler removes an axis of length 1.

    >>> fitting(two=20, four=30, limit=42)
    6
    """
    each = max((four - two) / 2, 1)
    return max(1, int((limit - (two - 2 * each)) // each))
