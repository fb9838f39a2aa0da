"""The file of a study: created whole or not at all, and left untouched unless it is a study.

A file that is not a study may be somebody's database. Merely opening and closing it through SQLite can change it (the
write-ahead log of a killed process is folded in), so a file is first inspected as immutable. Inspecting its bytes with
`open` would not do: closing it would drop the locks that this process holds on the same file through SQLite.

The write-ahead log needs memory shared between all processes that have the file open, which network file systems do not
offer. On any file system not known to be local, a slower rollback journal takes its place.
"""

import contextlib
import os
import re
import socket
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from widthwise.study.digests import check, prepare

APPLICATION = 0x57574953  # "WWIS"
VERSION = 1
BUSY_SECONDS = 60.0
MOUNTS = Path("/proc/self/mountinfo")
LOCAL = frozenset({"apfs", "btrfs", "ext3", "ext4", "f2fs", "fuseblk", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose memory maps are shared by all processes, because one kernel serves them."""

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
    curves BLOB                          -- see widthwise.study.encoding
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


class Database:
    """The open file of a study, shared by the threads of one process."""

    def __init__(self, path: Path, *, create: bool, say: Callable[[str], None]) -> None:
        """Open a file, created first if wanted; raise ValueError if it is not a study."""
        self._path = path
        self._lock = threading.RLock()
        if path.is_dir():
            raise ValueError(f"{str(path)!r} is a folder: expected a file made by Widthwise")
        if create and not path.exists():
            _create(path)
        try:
            _recognize(path)
            self._connection = _open(path, say) if create or _is_writable(path) else _open_to_read(path, say)
            self._file = _identity(path)
        except sqlite3.Error as error:
            if not path.exists():
                raise ValueError(f"there is no study in {str(path.parent)!r}: expected a file {path.name}") from None
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) and not _is_writable(path):
                raise OSError(f"{str(path)!r} is in a folder that cannot be written to: copy the study") from error
            if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
                raise OSError(f"{str(path)!r}: {_line(error)}, perhaps because of a full disk") from error
            raise ValueError(f"{str(path)!r} cannot be read as a study ({_line(error)}): left as it is") from None

    def read(self, query: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._lock, self._naming_errors():
            return self._connection.execute(query, parameters).fetchall()

    def check_there(self) -> None:
        """Raise OSError if the file was renamed, replaced or deleted since it was opened; SQLite would not notice."""
        if _identity(self._path) != self._file:
            raise OSError(
                f"{str(self._path)!r} is gone, renamed or deleted while it was in use: "
                "put it back in its place, and run the same command to resume"
            )

    @contextlib.contextmanager
    def writing(self, *, leaving: bool = False) -> Iterator[sqlite3.Connection]:
        """Run the body as one transaction, after any that other processes have begun.

        With `leaving`, into a file that was renamed as well.
        """
        if not leaving:
            self.check_there()
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
            raise OSError(f"{str(self._path)!r}: {_line(error)}") from error


def _line(error: sqlite3.Error) -> str:
    """Return the first line of a message: some show a damaged schema in full."""
    return str(error).partition("\n")[0]


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from another one of its name; None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with contextlib.closing(sqlite3.connect(partial)) as database:
            database.executescript(
                f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
            if _shares_memory(path):  # only now: closing would fold a log into the file, and not tell if that failed
                database.execute("PRAGMA journal_mode = WAL")
        try:
            os.link(partial, path)
        except FileExistsError:  # another process was faster, and may have written to its file already
            pass
        except OSError:  # a file system without links
            if not path.exists():
                partial.rename(path)
    except sqlite3.Error as error:
        raise OSError(f"cannot make {str(path)!r}: {_line(error)}") from error
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            Path(f"{partial}{ending}").unlink(missing_ok=True)


def _recognize(path: Path) -> None:
    """Raise ValueError if a file is not a study or a newer one, without touching it."""
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


def _is_writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK)


def _open_to_read(path: Path, say: Callable[[str], None]) -> sqlite3.Connection:
    """Open a study in a folder that cannot be written to, where SQLite would make files for a log even to read.

    Without a log the file is the whole study. With one, somebody may be writing it who can.
    """
    if path.with_name(f"{path.name}-wal").exists():
        return _open(path, say)
    database = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True, check_same_thread=False)
    try:
        prepare(database)
        _check_tables(database)
    except BaseException:
        database.close()
        raise
    return database


def _open(path: Path, say: Callable[[str], None]) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        prepare(database)
        _check_tables(database)
        ((mode,),) = database.execute("PRAGMA journal_mode")
        if mode == "wal" and not _shares_memory(path):
            ((mode,),) = database.execute("PRAGMA journal_mode = DELETE")
        if mode != "wal":
            say(f"{str(path)!r} uses a rollback journal, which is slower: its file system may not share memory")
        database.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        database.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        database.close()
        raise
    return database


def _check_tables(database: sqlite3.Connection) -> None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if missing := _TABLES - tables:
        raise sqlite3.DatabaseError(f"it has no table {min(missing)}")
    for table in sorted(_TABLES - {"details"}):  # which is too large to check at every start
        ((verdict, *_), *_) = database.execute(f"PRAGMA quick_check('{table}')")
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict.splitlines()[-1])
    if "digests" in tables:
        check(database)
    if strays := database.execute("PRAGMA foreign_key_check").fetchone():
        raise sqlite3.DatabaseError(f"a row of {strays[0]} belongs to a missing one of {strays[2]}")


def _shares_memory(path: Path) -> bool:
    """Return whether the file system is known to be local; where the mounts cannot be read, SQLite decides."""
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


def _place() -> str:
    """Return a name for the machine, boot and process namespace in which this process's id is valid.

    A container that shares its host's name must not mistake a live process for a dead one.
    """
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):  # elsewhere than on Linux, the host's name has to do
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process with a study open, the holder of leases; every opening has a name of its own."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    place: str = field(default_factory=_place)
    pid: int = field(default_factory=os.getpid)

    @property
    def known_dead(self) -> bool:
        """Whether its process is certainly gone; a process in another place counts as alive."""
        if os.name != "posix" or self.place != _place():  # elsewhere than on POSIX, os.kill kills
            return False
        try:
            os.kill(self.pid, 0)
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except ProcessLookupError:
            return True
        except OSError:  # somebody else's process, or a system without /proc
            return False
        return state == "Z"  # killed, and not yet reaped by its parent
