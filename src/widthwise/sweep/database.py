"""The file of a study: made whole or not at all, and never touched unless it is one.

A file that is not a study may be somebody's database. Even opening and closing one through SQLite can change it (the
write-ahead log of a killed process is folded in), so a file is first looked at as immutable. Looking at its bytes with
`open` would not do: closing it would drop the locks that this process holds on the same file through SQLite.

The write-ahead log needs memory shared between all who have the file open, which file systems over a network do not
have. On any file system not known to be local, a rollback journal is used in its place: slower, and safe.
"""

import contextlib
import os
import re
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

APPLICATION = 0x57574953  # "WWIS"
VERSION = 1
BUSY_SECONDS = 60.0
MOUNTS = Path("/proc/self/mountinfo")
LOCAL = frozenset({"apfs", "btrfs", "ext3", "ext4", "f2fs", "fuseblk", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose memory maps all processes share, since there is one kernel."""

SCHEMA = """
CREATE TABLE runs (                      -- one row for each thing computed
    id TEXT PRIMARY KEY,                 -- the hash of its identity
    status TEXT NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'finished', 'diverged', 'failed')),
    results TEXT,                        -- JSON object, once recorded
    provenance TEXT,                     -- JSON object, once recorded
    recorded REAL                        -- when, in seconds since 1970
);
CREATE TABLE details (                   -- what listing runs does not need
    run TEXT PRIMARY KEY REFERENCES runs,
    identity BLOB NOT NULL,              -- everything that decides what is computed: JSON, compressed by zlib
    curves BLOB                          -- see widthwise.sweep.curves
);
CREATE TABLE requests (                  -- one row for each specification asked for, in that order
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,            -- the hash of the specification
    spec TEXT NOT NULL,                  -- JSON object
    run TEXT NOT NULL REFERENCES runs    -- what it comes down to; several may share one
);
CREATE TABLE labels (                    -- what a request was asked for
    label TEXT NOT NULL,
    request INTEGER NOT NULL REFERENCES requests,
    PRIMARY KEY (label, request)
) WITHOUT ROWID;
CREATE TABLE leases (                    -- who is computing a run
    run TEXT PRIMARY KEY REFERENCES runs,
    owner TEXT NOT NULL,
    place TEXT NOT NULL,                 -- host, boot and namespace in which pid means something
    pid INTEGER NOT NULL,
    until REAL NOT NULL                  -- in seconds since 1970
);
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_TABLES = frozenset(re.findall(r"CREATE TABLE (\w+)", SCHEMA))
_SMALL = sorted(_TABLES - {"details"})


class Database:
    """The open file of a study, for the threads of one process."""

    def __init__(self, path: Path, *, create: bool, say: Callable[[str], None]) -> None:
        """Open a file, made first if it is wanted and not there; refuse any other and leave it as it is."""
        self._path = path
        self._lock = threading.RLock()
        if create and not path.exists():
            _make(path)
        try:
            _recognize(path)
            self._connection = _open(path, say)
        except sqlite3.Error as error:
            if not path.exists():
                raise ValueError(f"there is no study in {str(path.parent)!r}: expected a file {path.name}") from None
            raise ValueError(f"{str(path)!r} cannot be read as a study ({error}): left as it is") from None

    def read(self, query: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """Give all rows of a query."""
        with self._lock, self._naming_errors():
            return self._connection.execute(query, parameters).fetchall()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Make what is done inside happen as a whole or not at all, after whatever others are writing."""
        with self._lock, self._naming_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextlib.contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OSError(f"{str(self._path)!r}: {error}") from error


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with contextlib.closing(sqlite3.connect(partial)) as database:
            if _shares_memory(path):
                database.execute("PRAGMA journal_mode = WAL")
            database.executescript(
                f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
        _publish(partial, path)
    except sqlite3.Error as error:
        raise OSError(f"cannot make {str(path)!r}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _publish(partial: Path, path: Path) -> None:
    """Give the file its name, unless somebody else was faster and may have written to theirs already."""
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            partial.rename(path)


def _recognize(path: Path) -> None:
    """Refuse what is not a study, or a newer one, without touching anything."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        # A kill while the log is folded in leaves a file shorter than its header says, which is whole with its log.
        database.execute("PRAGMA writable_schema = ON")
        ((application,),) = database.execute("PRAGMA application_id")
        ((version,),) = database.execute("PRAGMA user_version")
    if application != APPLICATION:
        raise ValueError(f"{str(path)!r} is not a study: expected a file made by Widthwise; left as it is")
    if version > VERSION:
        raise ValueError(
            f"{str(path)!r} was made by a newer Widthwise: expected schema {VERSION}, found {version}; left as it is"
        )


def _open(path: Path, say: Callable[[str], None]) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables >= _TABLES:
            raise sqlite3.DatabaseError(f"it has no table {min(_TABLES - tables)}")
        for table in _SMALL:
            ((verdict, *_), *_) = database.execute(f"PRAGMA quick_check('{table}')")
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict.splitlines()[-1])
        ((mode,),) = database.execute("PRAGMA journal_mode")
        if mode == "wal" and not _shares_memory(path):
            ((mode,),) = database.execute("PRAGMA journal_mode = DELETE")
        if mode != "wal":
            say(f"{str(path)!r} is kept with a rollback journal, which is slower: its file system may not share memory")
        database.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        database.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        database.close()
        raise
    return database


def _shares_memory(path: Path) -> bool:
    """Say whether the file system is known to be local; where one cannot ask, SQLite finds out by itself."""
    try:
        mounts = MOUNTS.read_text().splitlines()
    except OSError:
        return True
    folder, best, kind = path.parent.resolve(), Path("/"), ""
    for line in mounts:
        where, _, what = line.partition(" - ")
        mount = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), where.split()[4]))
        if folder.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, what.split()[0]
    return kind in LOCAL
