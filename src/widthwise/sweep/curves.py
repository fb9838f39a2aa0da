"""Curves as compact bytes: all curves of a run in one compressed block, without any loss.

Losses come from a device in float32, so values are kept in four bytes where that is exact and in eight where it is not.
Steps are kept as differences, which compress to nearly nothing.
"""

import json
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Curve(NamedTuple):
    """Values, and the steps after which they were measured."""

    steps: np.ndarray
    values: np.ndarray


def pack(curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> bytes:
    """Give the bytes of curves, each steps and values of the same length.

    >>> {name: curve.values.tolist() for name, curve in unpack(pack({"loss": ([0, 10], [2.5, 0.1])})).items()}
    {'loss': [2.5, 0.1]}
    """
    header: dict[str, tuple[int, str]] = {}
    blocks: list[bytes] = []
    for name, (given_steps, given_values) in curves.items():
        steps, values = np.asarray(given_steps), np.asarray(given_values, "<f8")
        if steps.ndim != 1 or steps.shape != values.shape:
            raise ValueError(
                f"curve {name!r} has steps of shape {steps.shape} and values of shape {values.shape}: "
                "expected two lists of the same length"
            )
        if steps.size and steps.dtype.kind not in "iu":
            raise ValueError(f"curve {name!r} has steps of type {steps.dtype}: expected integers")
        with np.errstate(over="ignore"):  # what overflows is not exact and stays in eight bytes
            short = values.astype("<f4")
        exact = bool(((short == values) | np.isnan(values)).all())
        between = steps.astype("<i8")
        between[1:] -= between[:-1].copy()
        header[name] = (len(steps), "<f4" if exact else "<f8")
        blocks += [between.tobytes(), (short if exact else values).tobytes()]
    return zlib.compress(b"".join([json.dumps(header).encode(), b"\n", *blocks]))


def unpack(packed: bytes) -> dict[str, Curve]:
    """Read what `pack` wrote: steps as int64, values as float64."""
    data = zlib.decompress(packed)
    at = data.index(b"\n") + 1
    curves: dict[str, Curve] = {}
    for name, (count, kind) in json.loads(data[:at]).items():
        steps = np.frombuffer(data, "<i8", count, at).cumsum()
        at += steps.nbytes
        values = np.frombuffer(data, kind, count, at)
        at += values.nbytes
        curves[name] = Curve(steps, values.astype(np.float64))
    return curves
