"""Export of a study for other programs: CSV for tables, JSON lines for everything.

Columns of the CSV file are named as in the JSON lines, with dots: `spec.width`, `results.eval_loss`. In JSON lines,
numbers that JSON does not have are the strings "NaN", "Infinity" and "-Infinity".
"""

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from widthwise.study.encoding import encode
from widthwise.study.store import Row, Study

_BATCH = 1000
"""The number of runs whose curves are in memory at a time."""


def to_csv(study: Study, path: Path, *, label: str | None = None) -> None:
    """Write one line for each request: its specification, its run and the results."""
    rows = [_flat(row) for row in study.runs(label=label)]
    columns = dict.fromkeys(["run", "status", *(name for row in rows for name in row)])
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(rows)


def to_json_lines(study: Study, path: Path, *, label: str | None = None, curves: bool = False) -> None:
    """Write one object for each request, with the curves of its run on demand."""
    rows = study.runs(label=label)
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            found = study.curves([row.run for row in batch]) if curves else {}
            for row in batch:
                line = {"run": row.run, "status": row.status, "spec": row.spec, "results": row.results}
                if curves:
                    line["curves"] = {
                        name: {"steps": curve.steps.tolist(), "values": curve.values.tolist()}
                        for name, curve in found[row.run].items()
                    }
                file.write(encode(line) + "\n")


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
