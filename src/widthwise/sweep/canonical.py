"""Values as text: JSON that any reader accepts, and a key that is the same for equal values.

JSON has no NaN and no infinity, and SQLite's own functions refuse a text that has them all the same. They are written
as the strings "NaN", "Infinity" and "-Infinity" and come back as numbers; a text that is one of these is refused.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBER = re.compile('"(NaN|-?Infinity)"')


def encode(value: Any) -> str:
    """Write plain values as JSON, keys sorted; what `decode` gives back is equal, with lists for tuples.

    >>> encode({"loss": float("nan"), "at": (1, 2.0)})
    '{"at":[1,2.0],"loss":"NaN"}'
    """
    try:
        text = _dumps(value)
    except ValueError:  # a number that JSON does not have
        return _dumps(_named(value))
    return _dumps(_named(value)) if _NUMBER.search(text) else text


def decode(text: str) -> Any:
    """Read what `encode` wrote."""
    value = json.loads(text)
    return _restored(value) if _NUMBER.search(text) else value


def decode_all(texts: Iterable[str]) -> list[Any]:
    """Read many texts at once, which takes half the time."""
    return decode(f"[{','.join(texts)}]")


def key(text: str) -> str:
    """Hash what `encode` wrote, so that equal values have one key: 1 and 1.0 do, and order of keys does not matter.

    >>> key(encode({"width": 1, "rate": 0.5})) == key(encode({"rate": 0.5, "width": 1.0}))
    True
    """
    return hashlib.sha256(_dumps(json.loads(text, parse_float=_whole)).encode()).hexdigest()[:16]


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
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
    """Put names in the place of numbers that JSON does not have."""
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
