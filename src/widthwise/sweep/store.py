"""The store of a study: what was asked for, who is computing it, and what came out.

A *run* is something computed, known by the hash of its identity. A *request* is a specification somebody asked for;
settings that come down to the same numbers are several requests for one run, trained once and shown under each name.
Asked again, a specification that now comes down to another run (other data, another device's precision) shows that one.

Everything is a transaction on one SQLite file, so a killed driver leaves whole rows only. Several drivers share a study
through leases: a run is computed by whoever holds its lease, and the first outcome recorded for it stays. A lease ends
when it is given back, at its time, or with its process if that can be seen to be dead. Times are those of the hosts'
clocks, so leases should be long compared with how far apart these are.

The store knows plain values only, neither JAX nor how a run is trained.
"""

import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from widthwise.sweep.canonical import decode, decode_all, encode, key
from widthwise.sweep.curves import Curve, pack, unpack
from widthwise.sweep.database import Database
from widthwise.sweep.owners import Owner
from widthwise.sweep.records import Asked, Details, Outcome, Row, Status, check_name

FILE = "study.sqlite"

_OPEN = "runs.status IN ('waiting', 'failed')"
_LEASED = """EXISTS (SELECT 1 FROM leases WHERE leases.run = runs.id AND leases.until > :now
    AND leases.owner IN (SELECT value FROM json_each(:alive)))"""
_STATUS = f"CASE WHEN {_OPEN} AND {_LEASED} THEN 'running' ELSE runs.status END"
_LABELLED = "(:label IS NULL OR requests.id IN (SELECT request FROM labels WHERE label = :label))"
_BESIDE = """(requests.id NOT IN (SELECT request FROM labels WHERE {0})
    OR requests.id IN (SELECT request FROM labels WHERE NOT {0}))""".format(
    "EXISTS (SELECT 1 FROM json_each(:beside) WHERE substr(label, 1, length(value)) = value)"
)
_IDS = "(SELECT value FROM json_each(:ids))"


class Study:
    """A folder with a store; a context, which gives its leases back when it ends.

    One process opens it and may use it from several threads; workers hand their outcomes to that process.
    """

    def __init__(self, folder: Path, database: Database, say: Callable[[str], None]) -> None:
        self.folder = folder
        self._database = database
        self._say = say
        self._owner = Owner()
        self._has_claimed = False

    @classmethod
    def open(cls, folder: Path | str, *, create: bool = True, say: Callable[[str], None] = lambda _: None) -> Self:
        """Open the study in a folder.

        Args:
            folder: Where it is.
            create: Whether to make one where there is none.
            say: Told what a user should know and is no error.

        Raises:
            ValueError: If there is none, or its file is damaged, newer, or no study. It is left as it is.
        """
        absolute = Path(folder).absolute()
        if absolute.is_file():
            raise ValueError(f"{str(absolute)!r} is a file: expected the folder of a study")
        return cls(absolute, Database(absolute / FILE, create=create, say=say), say)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()

    def close(self) -> None:
        """Give all leases back and close the file."""
        try:
            if self._has_claimed:
                self._has_claimed = False
                self.release()
        finally:
            self._database.close()

    def ask(self, asked: Iterable[Asked], *, label: str | None = None) -> None:
        """Register requests, all or none; what is registered already keeps its place and its results.

        Args:
            asked: The requests. Equal specifications are one request, whatever the order of their keys.
            label: What they are asked for, such as a sweep's name; a request can have several.
        """
        asked = list(asked)
        known = self._known([one.run for one in asked])
        identities = {one.run: zlib.compress(encode(one.identity).encode()) for one in asked if one.run not in known}
        specs = [encode(one.spec) for one in asked]
        requests = [(key(spec), spec, one.run) for spec, one in zip(specs, asked, strict=True)]
        moved = 0
        with self._database.writing() as write:
            for run, identity in identities.items():
                if write.execute("INSERT OR IGNORE INTO runs (id) VALUES (?)", (run,)).rowcount:
                    write.execute("INSERT INTO details (run, identity) VALUES (?, ?)", (run, identity))
            for request, spec, run in requests:
                before = write.execute("SELECT run FROM requests WHERE key = ?", (request,)).fetchone()
                if before is None:
                    write.execute("INSERT INTO requests (key, spec, run) VALUES (?, ?, ?)", (request, spec, run))
                elif before != (run,):
                    write.execute("UPDATE requests SET run = ? WHERE key = ?", (run, request))
                    moved += 1
                if label is not None:
                    labelling = "INSERT OR IGNORE INTO labels SELECT ?, id FROM requests WHERE key = ?"
                    write.execute(labelling, (label, request))
        if moved:
            self._say(f"of the settings asked for before, {moved} now mean another run (other data, device or version)")

    def claim(self, ids: Sequence[str], *, seconds: float) -> list[str]:
        """Take leases on runs that are waiting or failed and that nobody else is computing.

        Args:
            ids: The runs wanted.
            seconds: How long the leases last, unless renewed.

        Returns:
            The ids granted, in the order given: these are to be computed here.
        """
        self._check_known(ids)
        self._has_claimed = True
        with self._database.writing() as write:
            holding = self._holding()
            granted = write.execute(
                f"""INSERT INTO leases (run, owner, place, pid, until)
                SELECT id, :owner, :place, :pid, :until FROM runs WHERE id IN {_IDS} AND {_OPEN}
                AND (NOT {_LEASED} OR :owner = (SELECT owner FROM leases WHERE leases.run = runs.id))
                ON CONFLICT (run) DO UPDATE
                SET owner = excluded.owner, place = excluded.place, pid = excluded.pid, until = excluded.until
                RETURNING run""",
                {
                    **holding,
                    "ids": json.dumps(list(ids)),
                    "owner": self._owner.name,
                    "place": self._owner.place,
                    "pid": self._owner.pid,
                    "until": holding["now"] + seconds,
                },
            ).fetchall()
        mine = {run for (run,) in granted}
        return [run for run in dict.fromkeys(ids) if run in mine]

    def renew(self, *, seconds: float) -> list[str]:
        """Let the leases held here last longer; give the ids of those, without any that somebody else took."""
        with self._database.writing() as write:
            until = (time.time() + seconds, self._owner.name)
            write.execute("UPDATE leases SET until = ? WHERE owner = ?", until)
            held = write.execute("SELECT run FROM leases WHERE owner = ? ORDER BY run", (self._owner.name,)).fetchall()
        return [run for (run,) in held]

    def release(self, ids: Sequence[str] | None = None) -> None:
        """Give leases held here back, all unless named: others can take the runs at once."""
        with self._database.writing() as write:
            write.execute(
                f"DELETE FROM leases WHERE owner = :owner AND (:ids IS NULL OR run IN {_IDS})",
                {"owner": self._owner.name, "ids": None if ids is None else json.dumps(list(ids))},
            )

    def record(self, outcomes: Iterable[Outcome]) -> list[str]:
        """Write down how runs ended, all or none; the first outcome that is not a failure stays for ever.

        Returns:
            The ids written; one that is missing had ended before, and is left as it was.
        """
        entries = [
            (one.run, one.status, encode(one.results), encode(one.provenance), pack(one.curves) if one.curves else None)
            for one in outcomes
        ]
        self._check_known([run for run, *_ in entries])
        written: list[str] = []
        with self._database.writing() as write:
            for run, status, results, provenance, curves in entries:
                changed = write.execute(
                    f"UPDATE runs SET status = ?, results = ?, provenance = ?, recorded = ? WHERE id = ? AND {_OPEN}",
                    (status, results, provenance, time.time(), run),
                ).rowcount
                if changed:
                    write.execute("UPDATE details SET curves = ? WHERE run = ?", (curves, run))
                    written.append(run)
                write.execute("DELETE FROM leases WHERE run = ? AND owner = ?", (run, self._owner.name))
        return written

    def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        """Say where each of these runs stands."""
        self._check_known(ids)
        parameters = {**self._holding(), "ids": json.dumps(list(ids))}
        found = dict(self._database.read(f"SELECT id, {_STATUS} FROM runs WHERE id IN {_IDS}", parameters))
        return {run: found[run] for run in ids}

    def counts(self, *, label: str | None = None) -> dict[Status, int]:
        """Count runs by where they stand: all, or those asked for under a label."""
        counted = self._database.read(
            f"""SELECT {_STATUS}, count(*) FROM runs
            WHERE :label IS NULL OR id IN (SELECT run FROM requests WHERE {_LABELLED}) GROUP BY 1""",
            {**self._holding(), "label": label},
        )
        return dict.fromkeys(get_args(Status), 0) | dict(counted)

    def runs(self, *, label: str | None = None, beside: Sequence[str] = ()) -> list[Row]:
        """List requests, in the order in which they were first asked for.

        Args:
            label: Only those asked for under this label.
            beside: Without those that were asked for only under labels that begin like these.
        """
        rows = self._database.read(
            f"""SELECT requests.spec, requests.run, {_STATUS}, runs.results
            FROM requests JOIN runs ON runs.id = requests.run WHERE {_LABELLED} AND {_BESIDE} ORDER BY requests.id""",
            {**self._holding(), "label": label, "beside": json.dumps(list(beside))},
        )
        specs = decode_all(spec for spec, *_ in rows)
        results = decode_all(result or "{}" for *_, result in rows)
        return [Row(spec, row[1], row[2], result) for spec, row, result in zip(specs, rows, results, strict=True)]

    def outcomes(self, ids: Sequence[str]) -> dict[str, tuple[Status, dict[str, Any]]]:
        """Say where each of these runs stands, with its results; none until it ended."""
        self._check_known(ids)
        query = f"SELECT id, {_STATUS}, results FROM runs WHERE id IN {_IDS}"
        rows = self._database.read(query, {**self._holding(), "ids": json.dumps(list(ids))})
        found = {run: (status, decode(results or "{}")) for run, status, results in rows}
        return {run: found[run] for run in ids}

    def curves(self, ids: Sequence[str]) -> dict[str, dict[str, Curve]]:
        """Give the curves of these runs, by run and name; none for a run without."""
        self._check_known(ids)
        query = f"SELECT run, curves FROM details WHERE run IN {_IDS}"
        packed = dict(self._database.read(query, {"ids": json.dumps(list(ids))}))
        return {run: self._unpacked(run, packed[run]) for run in ids}

    def details(self, run: str) -> Details:
        """Give the identity and the provenance of a run."""
        self._check_known([run])
        query = "SELECT identity, provenance FROM details JOIN runs ON id = run WHERE run = ?"
        ((identity, provenance),) = self._database.read(query, (run,))
        return Details(decode(zlib.decompress(identity).decode()), decode(provenance or "{}"))

    def put(self, name: str, value: Any) -> None:
        """Keep a plain value under a name, such as tuned constants; one that was there is replaced."""
        with self._database.writing() as write:
            write.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, encode(value)))

    def get(self, name: str, default: Any = None) -> Any:
        """Give the value kept under a name."""
        found = self._database.read("SELECT value FROM notes WHERE name = ?", (name,))
        return decode(found[0][0]) if found else default

    def notes(self, prefix: str) -> dict[str, Any]:
        """Give all values kept under names that begin like this, in the order of their names."""
        found = self._database.read(
            "SELECT name, value FROM notes WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name", (prefix,)
        )
        return {name: decode(value) for name, value in found}

    def folder_for(self, name: str) -> Path:
        """Name the folder for the checkpoints of a run, or of runs packed together; it need not be there."""
        check_name(name)
        return self.folder / "checkpoints" / name

    def clear_checkpoints(self) -> None:
        """Delete the checkpoints of runs that have ended; a folder's name begins with the id of a run."""
        folders = {path: path.name.partition("-")[0] for path in (self.folder / "checkpoints").glob("*")}
        statuses = self.statuses(sorted(self._known(list(folders.values()))))
        for path, run in folders.items():
            if statuses.get(run) in ("finished", "diverged"):
                shutil.rmtree(path, ignore_errors=True)

    def _holding(self) -> dict[str, Any]:
        """Give what decides whether a lease holds: the time, and the owners not known to be dead."""
        rows = self._database.read("SELECT DISTINCT owner, place, pid FROM leases")
        owners = [Owner(name=name, place=place, pid=pid) for name, place, pid in rows]
        return {"now": time.time(), "alive": json.dumps([owner.name for owner in owners if not owner.known_dead])}

    def _unpacked(self, run: str, packed: bytes | None) -> dict[str, Curve]:
        try:
            return unpack(packed) if packed else {}
        except zlib.error as error:
            raise ValueError(f"the curves of run {run!r} in {str(self.folder)!r} are damaged: {error}") from None

    def _known(self, ids: Sequence[str]) -> set[str]:
        found = self._database.read(f"SELECT id FROM runs WHERE id IN {_IDS}", {"ids": json.dumps(list(ids))})
        return {run for (run,) in found}

    def _check_known(self, ids: Sequence[str]) -> None:
        if unknown := sorted(set(ids) - self._known(ids)):
            raise ValueError(f"run {unknown[0]!r} is not in {str(self.folder)!r}: expected one that was asked for")
