"""An exported study as text: one JSON object per line, for each request and for each note.

    {"run":"3f0c","status":"finished","spec":{…},"labels":["demo"],"results":{…},"provenance":{…},"curves":{…}}
    {"note":"sweep/demo","value":{…}}

Numbers that JSON does not have are written as in a study. Curves that come from float32 are written in its digits, half
as many, and say so with `"float32":true`; their values are those numbers rounded to float32.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from widthwise.study.encoding import History, decode, encode
from widthwise.study.records import ENDED, Exported, ExportedRun, check_name
from widthwise.study.specs import RESULTS, SPEC, check_note, check_plain


def write_lines(exported: Exported) -> Iterator[str]:
    """Yield the lines of what a study exports."""
    for one in exported.runs:
        line = {"run": json.dumps(one.run), "status": json.dumps(one.status)}
        if one.spec is not None:
            line |= {"spec": encode(one.spec), "labels": json.dumps(one.labels)}
        line["results"] = encode(one.results)
        curves = {name: _curve_to_json(*curve) for name, curve in one.curves.items()}
        details = {"provenance": one.provenance, "recorded": one.recorded, "curves": curves}
        yield _object(line | {name: encode(value, sort=False) for name, value in details.items() if value})
    for name, value in exported.notes.items():
        yield _object({"note": json.dumps(name), "value": encode(value)})


def _object(fields: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}\n"


def read_json_lines(path: Path) -> Exported:
    """Read what `to_json_lines` wrote.

    Raises:
        ValueError: If the file is damaged or something else; the message names the line, and what was expected.
    """
    runs: list[ExportedRun] = []
    notes: dict[str, Any] = {}
    for number, data in _numbered(path):
        try:
            line = _parse(data)
            if isinstance(line, dict) and "note" in line:
                fields = _fields("the note", line, _NOTE)
                check_note(fields["note"], fields["value"])
                notes.setdefault(fields["note"], fields["value"])
            else:
                runs.append(_read_run(line))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{str(path)!r}, line {number}: {error}") from None
    return Exported(runs=runs, notes=notes)


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        if path.suffix == ".gz" and path.stat().st_size == 0:
            raise EOFError("it is empty")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for data in file:
                number += 1
                yield number, data
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"there is no file {str(path)!r}: expected an exported study") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        what = f"cannot be read ({error}): expected a whole file, compressed by gzip"
        raise ValueError(f"{str(path)!r}, line {number + 1}: {what}") from None


def _parse(data: bytes) -> Any:
    try:
        return decode(data.decode(), names=_NAMES)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no text: expected a JSON object") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON at character {error.pos}: expected an object on one line") from None


def _read_run(line: Any) -> ExportedRun:
    fields = _fields("the run", line, _RUN, optional=("spec", "labels", "provenance", "recorded", "curves"))
    check_name(fields["run"])
    check_plain("the specification", fields.get("spec", {}), SPEC)
    check_plain("the results", fields["results"], RESULTS)
    curves = {name: _curve_from_json(f"curve {name!r}", curve) for name, curve in fields.pop("curves", {}).items()}
    return ExportedRun(labels=tuple(fields.pop("labels", ())), curves=curves, **fields)


def _curve_to_json(steps: Any, values: Any) -> dict[str, Any]:
    steps, values = np.asarray(steps, np.int64), np.asarray(values, np.float64)
    if np.array_equal(_rounded(values), values, equal_nan=True):
        short = np.array([float(str(value)) for value in values.astype(np.float32)])
        if np.array_equal(_rounded(short), values, equal_nan=True):
            return {"steps": steps.tolist(), "values": short.tolist(), "float32": True}
    return {"steps": steps.tolist(), "values": values.tolist()}


def _curve_from_json(what: str, curve: Any) -> History:
    fields = _fields(what, curve, _CURVE, optional=("float32",))
    steps, values = np.array(fields["steps"], np.int64), np.array(fields["values"], np.float64)
    if len(steps) != len(values):
        raise ValueError(f"{what} has {len(steps)} steps and {len(values)} values: expected two lists of one length")
    return History(steps, _rounded(values) if "float32" in fields else values)


def _rounded(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # a value that overflows is not exact, and is written in full
        return values.astype(np.float32).astype(np.float64)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)


_Check: TypeAlias = tuple[str, Callable[[Any], bool]]
_TEXT: _Check = ("text", _is_text)
_OBJECT: _Check = ("an object", lambda value: isinstance(value, dict))
_NOTE: Mapping[str, _Check] = {"note": _TEXT, "value": ("a value", lambda _: True)}
_NAMES = ("note", "run", "status", "labels")
_STATUSES = ("waiting", *ENDED, "failed")
_RUN: Mapping[str, _Check] = {
    "run": _TEXT,
    "status": (", ".join(_STATUSES), lambda value: value in _STATUSES),
    "spec": _OBJECT,
    "labels": ("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value))),
    "results": _OBJECT,
    "provenance": _OBJECT,
    "recorded": ("seconds since 1970", lambda value: _is_number(value) and abs(value) < 2**63),
    "curves": _OBJECT,
}
_CURVE: Mapping[str, _Check] = {
    "steps": (
        "a list of integers",
        lambda value: isinstance(value, list) and all(type(each) is int and -(2**63) <= each < 2**63 for each in value),
    ),
    "values": ("a list of numbers", lambda value: isinstance(value, list) and all(map(_is_number, value))),
    "float32": ("true", lambda value: value is True),
}
"""What each field holds, in words, and whether a value is that."""


def _fields(what: str, value: Any, known: Mapping[str, _Check], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return an object; raise ValueError if it is none, or if a field is missing, not known, or something else."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {_brief(value)}: expected an object")
    for name in value:
        if name not in known:
            raise ValueError(f"{what} has a field {_brief(name)}: expected {', '.join(known)}")
    for name, (expected, holds) in known.items():
        if name in value and not holds(value[name]):
            raise ValueError(f"{name} of {what} is {_brief(value[name])}: expected {expected}")
        if name not in value and name not in optional:
            raise ValueError(f"{what} has no {name!r}: expected {expected}")
    return value


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
