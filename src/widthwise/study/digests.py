"""Digests of what a study must not change any more: specifications, and the outcomes of runs that have ended.

SQLite notices damage to the structure of its file, but not that a digit of a result has become another one. Outcomes
are final, so their digests stay true whatever other versions of Widthwise do. Rows that an older version wrote have
none.
"""

import json
import sqlite3
import zlib
from collections.abc import Sequence

from widthwise.study.records import ENDED

TABLE = """CREATE TABLE IF NOT EXISTS digests (  -- of what stays as it is
    kind TEXT NOT NULL CHECK (kind IN ('run', 'request')),
    name TEXT NOT NULL,                  -- the id of the run, or the key of the request
    digest INTEGER NOT NULL,             -- a CRC-32 of its columns
    PRIMARY KEY (kind, name)
) WITHOUT ROWID"""

_RUN = "digest(runs.status, runs.results, runs.provenance, runs.recorded)"
_REQUEST = "digest(requests.spec)"
_NEW = "ON CONFLICT DO NOTHING"


def seal(write: sqlite3.Connection, *, runs: Sequence[str] = (), requests: Sequence[str] = ()) -> None:
    """Add the digests of runs that have ended, and of requests, in a transaction that the caller has begun."""
    write.execute(TABLE)
    ids = "(SELECT value FROM json_each(?))"
    add = f"SELECT 'run', id, {_RUN} FROM runs WHERE status IN {ENDED} AND id IN {ids}"
    write.execute(f"INSERT INTO digests {add} {_NEW}", (json.dumps(list(runs)),))
    add = f"SELECT 'request', key, {_REQUEST} FROM requests WHERE key IN {ids}"
    write.execute(f"INSERT INTO digests {add} {_NEW}", (json.dumps(list(requests)),))


def prepare(database: sqlite3.Connection) -> None:
    """Define the digest for a connection."""
    database.create_function("digest", -1, _digest, deterministic=True)


def check(database: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if something is not what it was when its digest was taken."""
    for kind, table, name, digest in (("run", "runs", "id", _RUN), ("request", "requests", "key", _REQUEST)):
        query = f"""SELECT digests.name FROM digests LEFT JOIN {table} ON {table}.{name} = digests.name
            WHERE kind = ? AND digest IS NOT {digest} LIMIT 1"""
        if changed := database.execute(query, (kind,)).fetchone():
            raise sqlite3.DatabaseError(f"{kind} {changed[0]!r} has changed since it was written")


def _digest(*columns: object) -> int:
    return zlib.crc32(repr(columns).encode())
