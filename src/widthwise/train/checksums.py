"""A checksum of what a checkpoint holds, saved with its record: Orbax does not notice every byte that was changed.

It is of values, not of files, so that it is part of the checkpoint from the start, whenever the process is killed.
Several processes, of which each has a part of the state, only check the record.
"""

import json
import zlib
from typing import Any

import jax
import numpy as np

from widthwise.parameterize import PyTree

RECORD, RECORD_SUM, STATE_SUM = NAMES = ("record", "record_checksum", "state_checksum")


def with_checksum(record: dict[str, Any], states: PyTree) -> dict[str, Any]:
    """Return what to save as the record of a checkpoint."""
    plain = json.loads(json.dumps(record))
    return {RECORD: plain, RECORD_SUM: _of_record(plain), STATE_SUM: _of_states(states)}


def checked(saved: Any, states: PyTree) -> Any:
    """Return the record; raise ValueError if it or the states have changed; older versions wrote no checksum."""
    if not isinstance(saved, dict) or not saved.keys() & {*NAMES}:
        return saved
    if saved.keys() != {*NAMES} or saved[RECORD_SUM] != _of_record(saved[RECORD]):
        raise ValueError("its record has changed since it was written")
    now = _of_states(states) if saved[STATE_SUM] is not None else None
    if now is not None and saved[STATE_SUM] != now:
        raise ValueError("its state has changed since it was written")
    return saved[RECORD]


def _of_record(record: Any) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _of_states(states: PyTree) -> int | None:
    """Return the checksum of all leaves in order; None where this process does not have them all."""
    if jax.process_count() > 1:
        return None
    checksum = 0
    for leaf in jax.tree.leaves(states):
        checksum = zlib.crc32(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data, checksum)
    return checksum
