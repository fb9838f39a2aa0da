"""Values as JSON that every reader accepts, and curves as compact bytes.

JSON has no NaN and no infinity, and SQLite's JSON functions reject text that contains them. They are written as the
strings "NaN", "Infinity" and "-Infinity" and come back as numbers; a value that is one of these strings is refused.

All curves of a run share one compressed block, without loss. Losses come from a device in float32, so values take
four bytes where that is exact and eight where it is not. Steps are stored as differences, which compress well.
"""

import hashlib
import json
import math
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBER = re.compile('"(NaN|-?Infinity)"')


class History(NamedTuple):
    """A curve: values, and the steps after which they were measured."""

    steps: np.ndarray
    values: np.ndarray


def encode(value: Any, *, sort: bool = True) -> str:
    """Return plain values as JSON, with sorted keys if wanted. `decode` restores them, with lists in place of tuples.

    >>> encode({"loss": float("nan"), "at": (1, 2.0)})
    '{"at":[1,2.0],"loss":"NaN"}'
    """
    try:
        text = _dumps(value, sort)
    except ValueError:  # a number that JSON does not have
        return _dumps(_named(value), sort)
    return _dumps(_named(value), sort) if _NUMBER.search(text) else text


def decode(text: str, *, names: Collection[str] = ()) -> Any:
    """Return the values that `encode` wrote; in an object, these fields are names, which stand for no numbers.

    >>> decode('{"loss":"NaN","name":"NaN"}', names=["name"])
    {'loss': nan, 'name': 'NaN'}
    """
    value = json.loads(text)
    if not _NUMBER.search(text):
        return value
    kept = {name: value[name] for name in names if name in value} if isinstance(value, dict) else {}
    return _restored(value) | kept if kept else _restored(value)


def decode_all(texts: Iterable[str]) -> list[Any]:
    """Decode many texts in one call, in half the time."""
    return decode(f"[{','.join(texts)}]")


def key(text: str) -> str:
    """Hash the output of `encode`; equal values have equal keys, so 1 is 1.0 and the order of a dict does not matter.

    >>> key(encode({"width": 1, "rate": 0.5})) == key(encode({"rate": 0.5, "width": 1.0}))
    True
    """
    return hashlib.sha256(_dumps(json.loads(text, parse_float=_whole)).encode()).hexdigest()[:16]


def encode_curves(curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> bytes:
    """Return the bytes of curves, each a pair of steps and values of the same length.

    >>> decode_curves(encode_curves({"loss": ([0, 10], [2.5, 0.1])}))["loss"].values.tolist()
    [2.5, 0.1]
    """
    header: dict[str, tuple[int, str]] = {}
    blocks: list[bytes] = []
    for name, curve in curves.items():
        steps, values = _checked(name, *curve)
        with np.errstate(over="ignore"):  # a value that overflows is not exact and keeps its eight bytes
            short = values.astype("<f4")
        exact = bool(((short == values) | np.isnan(values)).all())
        differences = steps.copy()
        differences[1:] -= steps[:-1]
        header[name] = (len(steps), "<f4" if exact else "<f8")
        blocks += [differences.tobytes(), (short if exact else values).tobytes()]
    return zlib.compress(b"".join([json.dumps(header).encode(), b"\n", *blocks]))


def decode_curves(data: bytes) -> dict[str, History]:
    """Return what `encode_curves` wrote, steps as int64 and values as float64."""
    data = zlib.decompress(data)
    at = data.index(b"\n") + 1
    curves: dict[str, History] = {}
    for name, (count, kind) in json.loads(data[:at]).items():
        steps = np.frombuffer(data, "<i8", count, at).cumsum()
        at += steps.nbytes
        values = np.frombuffer(data, kind, count, at)
        at += values.nbytes
        curves[name] = History(steps, values.astype(np.float64))
    return curves


def _dumps(value: Any, sort: bool = True) -> str:
    try:
        return json.dumps(value, sort_keys=sort, separators=(",", ":"), allow_nan=False, default=_plain)
    except TypeError as error:
        raise ValueError(f"{value!r} cannot be stored ({error}): expected numbers, text, lists and dicts") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a plain value")


def _whole(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _named(value: Any) -> Any:
    match value:
        case dict():
            return {name: _named(part) for name, part in value.items()}
        case list() | tuple():
            return [_named(part) for part in value]
        case np.generic():
            return _named(value.item())
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str() if value in _NUMBERS:
            raise ValueError(f"the text {value!r} cannot be stored: it stands for a number")
        case _:
            return value


def _restored(value: Any) -> Any:
    match value:
        case str():
            return _NUMBERS.get(value, value)
        case dict():
            return {name: _restored(part) for name, part in value.items()}
        case list():
            return [_restored(part) for part in value]
        case _:
            return value


def _checked(name: str, steps: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    steps, values = np.asarray(steps), np.asarray(values, "<f8")
    if steps.ndim != 1 or steps.shape != values.shape:
        shapes = f"steps of shape {steps.shape} and values of shape {values.shape}"
        raise ValueError(f"curve {name!r} has {shapes}: expected two lists of the same length")
    if steps.size and steps.dtype.kind not in "iu":
        raise ValueError(f"curve {name!r} has steps of type {steps.dtype}: expected integers")
    return steps.astype("<i8"), values
