"""How many runs a device has memory for, side by side."""

import jax

from widthwise.models import count_parameters
from widthwise.sweeps.executors import Tell
from widthwise.sweeps.packs import Pack
from widthwise.sweeps.worker import resolved
from widthwise.train.cost import state_bytes, temporary_bytes

MOST_LANES = 64
"""Runs side by side on an accelerator, if they fit."""
MEMORY_SHARE = 0.7
"""How much of a device's memory packs may take by the estimate: evaluation and fragmentation need some too."""


def describe_device(_: None, tell: Tell) -> str:
    """Return the kind of the worker's device and its memory."""
    del tell
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    return f"{device.device_kind}, {limit / 2**30:.0f} GiB"


def lanes_that_fit(pack: Pack, tell: Tell) -> int:
    """Return how many runs like the first of a pack, side by side, the device has memory for.

    This is an estimate. The compiler knows, but asking it often takes longer than training the pack. If a pack runs
    out of memory, it is halved.
    """
    del tell
    _, (run, *_) = resolved(pack)
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return 1  # a CPU, where runs train one after another anyway
    model = run.program.model
    state = state_bytes(model, run.program.optimizer) - 4 * count_parameters(model).total  # without gradients
    one = state + sum(temporary_bytes(model, run.spec.batch).values())
    return max(1, int(MEMORY_SHARE * limit // one))
