"""A study as files: CSV for tables, JSON lines for everything.

Columns of the CSV file are named as in the JSON lines, with dots: `spec.width`, `results.eval_loss`. A file whose name
ends in `.gz` is compressed, and the same for the same study at any time.
"""

import csv
import gzip
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from widthwise.study.encoding import encode
from widthwise.study.lines import read_json_lines, write_lines
from widthwise.study.records import Merged, Row
from widthwise.study.store import Study


def to_csv(study: Study, path: Path, *, label: str | None = None, compact: bool = False) -> None:
    """Write one line for each request: its specification, its run and the results.

    With `compact`, columns are left out in which all lines agree, and numbers are as short as they can be without loss.
    """
    rows = [_flat(row) for row in study.runs(label=label)]
    columns = list(dict.fromkeys(["run", "status", *(name for row in rows for name in row)]))
    if compact:
        rows = [{name: _shortest(value) for name, value in row.items()} for row in rows]
        columns = [name for name in columns if name == "run" or len({row.get(name, "") for row in rows}) > 1]
    with _writing(path) as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n" if compact else "\r\n")
        writer.writeheader()
        writer.writerows(rows)


def to_json_lines(study: Study, path: Path, *, label: str | None = None, curves: bool | Sequence[str] = False) -> None:
    """Write one object for each request and each note, from which `from_json_lines` restores the study.

    Args:
        study: The study.
        path: The file.
        label: Only requests made under this label; no other labels, and no notes.
        curves: Whether with curves, or what their names begin with.
    """
    with _writing(path) as file:
        file.writelines(write_lines(study.exported(label=label, curves=curves)))


def from_json_lines(path: Path, study: Study) -> Merged:
    """Add what `to_json_lines` wrote to a study, all or nothing; return how many runs were new.

    Outcomes, requests and notes that the study has stay.

    Raises:
        ValueError: If the file is damaged or something else; the study is left as it is.
    """
    return study.merge(read_json_lines(path))


@contextmanager
def reading(path: Path) -> Iterator[Study]:
    """Open the study in a folder, or the one that was exported to a file of JSON lines, to read it."""
    ending = _ending(path)
    if ending is None and path.is_file():
        raise ValueError(f"{str(path)!r} is no study: expected its folder, or an exported file (.jsonl or .jsonl.gz)")
    if ending is None:
        with Study.open(path, create=False) as study:
            yield study
        return
    exported = read_json_lines(path)
    with tempfile.TemporaryDirectory() as folder, Study.open(Path(folder, path.name.removesuffix(ending))) as study:
        study.merge(exported)
        yield study


def _ending(path: Path) -> str | None:
    """Return how the name of an exported study ends; None for the folder of a study."""
    endings = [ending for ending in (".jsonl", ".jsonl.gz") if path.name.endswith(ending) and not path.is_dir()]
    return endings[0] if endings else None


def _shortest(value: Any) -> str:
    """Write a value as a cell of a table, a number as short as it can be without loss.

    >>> [_shortest(value) for value in (64.0, 0.1, 0.0001, 250000.0, 1 / 3, True, None)]
    ['64', '0.1', '1e-4', '2.5e5', '0.3333333333333333', 'True', '']
    """
    if not isinstance(value, float):
        return "" if value is None else str(value)
    powers = np.format_float_scientific(value, trim="-", exp_digits=1).replace("e+", "e")
    return min(np.format_float_positional(value, trim="-"), powers, key=len)


def _flat(row: Row) -> dict[str, Any]:
    return {"run": row.run, "status": row.status, **_flattened("spec", row.spec), **_flattened("results", row.results)}


def _flattened(name: str, value: Any) -> dict[str, Any]:
    match value:
        case dict():
            parts = (_flattened(f"{name}.{key}", part) for key, part in value.items())
            return {path: leaf for part in parts for path, leaf in part.items()}
        case list():
            return {name: encode(value)}
        case _:
            return {name: value}


@contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    """Yield a text to write, which becomes a file as a whole; it is compressed if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("wb") as file:
        # Neither a name nor a time, so that equal contents are equal files.
        out = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.suffix == ".gz" else nullcontext(file)
        with out as binary, io.TextIOWrapper(binary, encoding="utf-8", newline="") as text:
            yield text


def write_whole(path: Path, contents: bytes) -> None:
    """Write a file, replacing it as a whole, in a folder that is created if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_bytes(contents)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces `path` at the end: the file is complete or not there at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
