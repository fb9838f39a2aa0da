"""What a study exports, and how that is merged into another.

Left out is what means nothing elsewhere: who is computing a run, and notes about a device. Left out are also the
identities of runs: they are larger than all the rest, and follow from the requests. A study takes them up again when a
command asks for the run.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from widthwise.study.database import Database
from widthwise.study.digests import seal
from widthwise.study.encoding import History, decode, decode_curves, encode, encode_curves, key
from widthwise.study.records import ENDED, Exported, ExportedRun, Merged

OF_A_DEVICE = "lanes/"
"""The prefix of the notes that are not exported."""
NO_IDENTITY = zlib.compress(encode({}).encode())

_BATCH = 1000
"""The number of runs whose curves are in memory at a time."""
_RUNS = """
    SELECT requests.id AS request, requests.spec, runs.id AS run, status, results, provenance, recorded
    FROM requests JOIN runs ON runs.id = requests.run
    UNION ALL SELECT NULL, NULL, id, status, results, provenance, recorded
    FROM runs WHERE id NOT IN (SELECT run FROM requests)
    ORDER BY request NULLS LAST, run"""


def read_runs(
    database: Database,
    *,
    label: str | None,
    prefixes: tuple[str, ...],
    curves: Callable[[Sequence[str]], dict[str, dict[str, History]]],
) -> Iterator[ExportedRun]:
    """Yield what is exported of the runs, in the order of their requests; last those that no request means any more.

    Args:
        database: The study's file.
        label: Only requests made under this label, and no other labels.
        prefixes: What the names of exported curves begin with.
        curves: Reads the curves of runs.
    """
    query = "SELECT request, label FROM labels WHERE :label IS NULL OR label = :label ORDER BY label"
    labels: dict[int | None, tuple[str, ...]] = {}
    for request, name in database.read(query, {"label": label}):
        labels[request] = (*labels.get(request, ()), name)
    rows = [row for row in database.read(_RUNS) if label is None or row[0] in labels]
    seen: set[str] = set()
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        found = curves([row[2] for row in batch]) if prefixes else {}
        for request, spec, run, status, results, provenance, recorded in batch:
            details: dict[str, Any] = {}
            if run not in seen and status != "waiting":
                seen.add(run)
                chosen = {name: curve for name, curve in found.get(run, {}).items() if name.startswith(prefixes)}
                details = {"provenance": decode(provenance or "{}"), "recorded": recorded, "curves": chosen}
            yield ExportedRun(
                run=run,
                status=status,
                results=decode(results or "{}"),
                spec=None if spec is None else decode(spec),
                labels=labels.get(request, ()),
                **details,
            )


def merge(write: sqlite3.Connection, exported: Exported) -> Merged:
    """Add what was exported, in a transaction that the caller has begun; what is known stays.

    A run that has not ended gets its outcome. One that ended with the same results gets the curves that it lacks.
    """
    everything: set[str] = set()
    new: set[str] = set()
    requests: set[str] = set()
    for one in exported.runs:
        everything.add(one.run)
        if _add_run(write, one):
            new.add(one.run)
        if one.spec is not None:
            requests.add(_add_request(write, one, encode(one.spec)))
    seal(write, runs=sorted(everything), requests=sorted(requests))
    notes = [(name, encode(value)) for name, value in exported.notes.items()]
    write.executemany("INSERT OR IGNORE INTO notes VALUES (?, ?)", notes)
    return Merged(new=len(new), known=len(everything - new))


def _add_run(write: sqlite3.Connection, one: ExportedRun) -> bool:
    """Add a run, and how it ended; return whether that was news."""
    added = write.execute("INSERT OR IGNORE INTO runs (id) VALUES (?)", (one.run,)).rowcount > 0
    write.execute("INSERT OR IGNORE INTO details (run, identity) VALUES (?, ?)", (one.run, NO_IDENTITY))
    if one.status == "waiting":
        return added
    known = "NOT IN ('finished', 'diverged')" if one.status in ENDED else "= 'waiting'"
    update = f"UPDATE runs SET status = ?, results = ?, provenance = ?, recorded = ? WHERE id = ? AND status {known}"
    entry = (one.status, encode(one.results), encode(one.provenance), one.recorded, one.run)
    if not write.execute(update, entry).rowcount:
        return _add_curves(write, one)
    curves = encode_curves(one.curves) if one.curves else None
    write.execute("UPDATE details SET curves = ? WHERE run = ?", (curves, one.run))
    return True


def _add_curves(write: sqlite3.Connection, one: ExportedRun) -> bool:
    """Add the curves that are not known of a run that ended in the same way; return whether there are any."""
    query = "SELECT curves FROM details JOIN runs ON id = run WHERE run = ? AND status = ? AND results = ?"
    alike = write.execute(query, (one.run, one.status, encode(one.results))).fetchone() if one.curves else None
    if alike is None:
        return False
    try:
        known = decode_curves(alike[0]) if alike[0] else {}
    except zlib.error as error:
        raise ValueError(f"the curves of run {one.run!r} are damaged: {error}") from None
    if one.curves.keys() <= known.keys():
        return False
    write.execute("UPDATE details SET curves = ? WHERE run = ?", (encode_curves({**one.curves, **known}), one.run))
    return True


def _add_request(write: sqlite3.Connection, one: ExportedRun, spec: str) -> str:
    """Add a request, unless it is known, and its labels; return its key."""
    name = key(spec)
    write.execute("INSERT OR IGNORE INTO requests (key, spec, run) VALUES (?, ?, ?)", (name, spec, one.run))
    add = "INSERT OR IGNORE INTO labels SELECT ?, id FROM requests WHERE key = ?"
    write.executemany(add, [(label, name) for label in one.labels])
    return name
