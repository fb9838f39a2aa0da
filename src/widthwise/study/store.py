"""The store of a study: what was requested, who is computing it, and the results.

A *run* is a computation, identified by the hash of its identity. A *request* is a specification that somebody asked
for; settings that result in the same numbers are several requests for one run, trained once and listed under each. A
specification that is requested again and now means another run (other data, another precision) is listed with that one.

Every change is a transaction on one SQLite file, so a killed process leaves only complete rows. Several processes share
a study through leases: a run is computed by whoever holds its lease, and the first outcome recorded for it stays. A
lease ends when it is released, when its time is up, or when its process is known to be dead. Times come from the hosts'
clocks, so leases should be long compared with the differences between those.

The store handles plain values only; it knows neither JAX nor how a run is trained.
"""

import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self, get_args

from widthwise.study.database import Database, Owner
from widthwise.study.digests import seal
from widthwise.study.encoding import History, decode, decode_all, decode_curves, encode, encode_curves, key
from widthwise.study.exchange import NO_IDENTITY, OF_A_DEVICE, merge, read_runs
from widthwise.study.records import ENDED, Details, Exported, Merged, Outcome, Requested, Row, Status, check_name

FILE = "study.sqlite"

_OPEN = f"runs.status NOT IN {ENDED}"
_LEASED = """EXISTS (SELECT 1 FROM leases WHERE leases.run = runs.id AND leases.until > :now
    AND leases.owner IN (SELECT value FROM json_each(:alive)))"""
_STATUS = f"CASE WHEN {_OPEN} AND {_LEASED} THEN 'running' ELSE runs.status END"
_LABELLED = "(:label IS NULL OR requests.id IN (SELECT request FROM labels WHERE label = :label))"
_PREFIXED = "EXISTS (SELECT 1 FROM json_each(:beside) WHERE substr(label, 1, length(value)) = value)"
_BESIDE = f"""(requests.id NOT IN (SELECT request FROM labels WHERE {_PREFIXED})
    OR requests.id IN (SELECT request FROM labels WHERE NOT {_PREFIXED}))"""
_IDS = "(SELECT value FROM json_each(:ids))"


class Study:
    """A folder with a store; as a context manager, it releases its leases at the end.

    One process opens it and may use it from several threads; workers return their outcomes to that process.
    """

    def __init__(self, folder: Path, database: Database, say: Callable[[str], None]) -> None:
        self.folder = folder
        self._database = database
        self._say = say
        self._owner = Owner()
        self._has_claimed = False

    @classmethod
    def open(cls, folder: Path | str, *, create: bool = True, say: Callable[[str], None] = lambda _: None) -> Self:
        """Open the study in a folder, or create it unless `create` is false; `say` receives messages for the user.

        Raises:
            ValueError: If there is no study, or its file is damaged, newer or something else; it is left unchanged.
        """
        absolute = Path(folder).absolute()
        if files := [part for part in (absolute, *absolute.parents) if part.is_file()]:
            raise ValueError(f"{str(files[0])!r} is a file: expected the folder of a study")
        return cls(absolute, Database(absolute / FILE, create=create, say=say), say)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with nullcontext() if kind is None else suppress(OSError):  # report the first error
            self.close()

    def check_there(self) -> None:
        """Raise OSError if the study was renamed, replaced or deleted since it was opened."""
        self._database.check_there()

    def close(self) -> None:
        """Release all leases and close the file."""
        try:
            if self._has_claimed:
                self._has_claimed = False
                self.release()
        finally:
            self._database.close()

    def ask(self, requests: Iterable[Requested], *, label: str | None = None) -> None:
        """Register requests, all or none; those already registered keep their place and their results.

        Args:
            requests: The requests. Equal specifications are one request, whatever the order of their keys.
            label: What they are for, such as the name of a sweep; a request can have several.
        """
        wanted = list(requests)
        for one in wanted:
            check_name(one.id)
        known = self._identified([one.id for one in wanted])
        identities = {one.id: zlib.compress(encode(one.identity).encode()) for one in wanted if one.id not in known}
        specs = [encode(one.request) for one in wanted]
        pairs = zip(specs, wanted, strict=True)
        rows = [{"key": key(spec), "spec": spec, "run": one.id, "label": label} for spec, one in pairs]
        with self._database.writing() as write:
            write.executemany("INSERT OR IGNORE INTO runs (id) VALUES (?)", [(run,) for run in identities])
            add = "INSERT INTO details (run, identity) VALUES (?, ?)"
            write.executemany(f"{add} ON CONFLICT DO UPDATE SET identity = excluded.identity", identities.items())
            write.executemany("INSERT OR IGNORE INTO requests (key, spec, run) VALUES (:key, :spec, :run)", rows)
            moved = write.executemany("UPDATE requests SET run = :run WHERE key = :key AND run <> :run", rows).rowcount
            if label is not None:
                write.executemany("INSERT OR IGNORE INTO labels SELECT :label, id FROM requests WHERE key = :key", rows)
            seal(write, requests=[row["key"] for row in rows])
        if moved > 0:
            self._say(f"{moved} of the settings asked for before now mean another run (other data, device or version)")

    def claim(self, ids: Sequence[str], *, seconds: float) -> list[str]:
        """Take leases on runs that are waiting or failed and that nobody else is computing.

        Returns:
            The ids granted, in the order given; the caller must compute these.
        """
        self._check_known(ids)
        self._has_claimed = True
        with self._database.writing() as write:
            now = self._now()
            granted = write.execute(
                f"""INSERT INTO leases (run, owner, place, pid, until)
                SELECT id, :name, :place, :pid, :until FROM runs WHERE id IN {_IDS} AND {_OPEN}
                AND (NOT {_LEASED} OR :name = (SELECT owner FROM leases WHERE leases.run = runs.id))
                ON CONFLICT (run) DO UPDATE
                SET owner = excluded.owner, place = excluded.place, pid = excluded.pid, until = excluded.until
                RETURNING run""",
                {**now, **vars(self._owner), "ids": json.dumps(list(ids)), "until": now["now"] + seconds},
            ).fetchall()
        mine = {run for (run,) in granted}
        return [run for run in dict.fromkeys(ids) if run in mine]

    def renew(self, *, seconds: float) -> list[str]:
        """Extend the leases held here, and return their runs; those that another process took are not among them."""
        with self._database.writing() as write:
            until = (time.time() + seconds, self._owner.name)
            held = write.execute("UPDATE leases SET until = ? WHERE owner = ? RETURNING run", until).fetchall()
        return sorted(run for (run,) in held)

    def release(self, ids: Sequence[str] | None = None) -> None:
        """Release leases held here, all unless named, so that other processes can take the runs at once."""
        with self._database.writing(leaving=True) as write:
            write.execute(
                f"DELETE FROM leases WHERE owner = :owner AND (:ids IS NULL OR run IN {_IDS})",
                {"owner": self._owner.name, "ids": None if ids is None else json.dumps(list(ids))},
            )

    def record(self, outcomes: Iterable[Outcome]) -> list[str]:
        """Record outcomes, all or none; the first that is not a failure is final.

        Returns:
            The ids recorded; the others had ended before and are unchanged.
        """
        outcomes = list(outcomes)
        self._check_known([one.run for one in outcomes])
        update = f"UPDATE runs SET status = ?, results = ?, provenance = ?, recorded = ? WHERE id = ? AND {_OPEN}"
        recorded: list[str] = []
        with self._database.writing() as write:
            for one in outcomes:
                entry = (one.status, encode(one.results), encode(one.provenance), time.time(), one.run)
                if write.execute(update, entry).rowcount:
                    curves = encode_curves(one.curves) if one.curves else None
                    write.execute("UPDATE details SET curves = ? WHERE run = ?", (curves, one.run))
                    recorded.append(one.run)
                write.execute("DELETE FROM leases WHERE run = ? AND owner = ?", (one.run, self._owner.name))
            seal(write, runs=recorded)
        return recorded

    def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        """Return the status of each of these runs."""
        return {run: status for run, (status, _) in self.outcomes(ids).items()}

    def outcomes(self, ids: Sequence[str]) -> dict[str, tuple[Status, dict[str, Any]]]:
        """Return the status and the results of each of these runs; the results are empty until it has ended."""
        rows = self._of_runs(f"SELECT id, {_STATUS}, results FROM runs WHERE id IN {_IDS}", ids)
        return {run: (status, decode(results or "{}")) for run, status, results in rows}

    def curves(self, ids: Sequence[str]) -> dict[str, dict[str, History]]:
        """Return the curves of these runs, by run and name."""
        found: dict[str, dict[str, History]] = {}
        for run, curves in self._of_runs(f"SELECT run, curves FROM details WHERE run IN {_IDS}", ids):
            try:
                found[run] = decode_curves(curves) if curves else {}
            except zlib.error as error:
                raise ValueError(f"the curves of run {run!r} in {str(self.folder)!r} are damaged: {error}") from None
        return found

    def details(self, run: str) -> Details:
        """Return the identity and the provenance of a run."""
        query = f"SELECT id, identity, provenance FROM details JOIN runs ON id = run WHERE id IN {_IDS}"
        ((_, identity, provenance),) = self._of_runs(query, [run])
        return Details(decode(zlib.decompress(identity).decode()), decode(provenance or "{}"))

    def counts(self, *, label: str | None = None) -> dict[Status, int]:
        """Count runs by status: all, or those requested under a label."""
        counted = self._database.read(
            f"""SELECT {_STATUS}, count(*) FROM runs
            WHERE :label IS NULL OR id IN (SELECT run FROM requests WHERE {_LABELLED}) GROUP BY 1""",
            {**self._now(), "label": label},
        )
        return dict.fromkeys(get_args(Status), 0) | dict(counted)

    def runs(self, *, label: str | None = None, beside: Sequence[str] = ()) -> list[Row]:
        """List requests in the order in which they were first made.

        Args:
            label: Only those made under this label.
            beside: Without those made only under labels that begin with one of these.
        """
        rows = self._database.read(
            f"""SELECT requests.spec, requests.run, {_STATUS}, runs.results
            FROM requests JOIN runs ON runs.id = requests.run WHERE {_LABELLED} AND {_BESIDE} ORDER BY requests.id""",
            {**self._now(), "label": label, "beside": json.dumps(list(beside))},
        )
        specs, results = decode_all(row[0] for row in rows), decode_all(row[3] or "{}" for row in rows)
        return [Row(spec, row[1], row[2], result) for spec, row, result in zip(specs, rows, results, strict=True)]

    def put(self, name: str, value: Any) -> None:
        """Store a plain value, such as tuned constants, under a name; an earlier one is replaced."""
        with self._database.writing() as write:
            write.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, encode(value)))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value stored under a name."""
        found = self._database.read("SELECT value FROM notes WHERE name = ?", (name,))
        return decode(found[0][0]) if found else default

    def notes(self, prefix: str) -> dict[str, Any]:
        """Return all values whose names begin with a prefix, sorted by name."""
        query = "SELECT name, value FROM notes WHERE substr(name, 1, length(:prefix)) = :prefix ORDER BY name"
        return {name: decode(value) for name, value in self._database.read(query, {"prefix": prefix})}

    def exported(self, *, label: str | None = None, curves: bool | Sequence[str] = False) -> Exported:
        """Return all that another study can know of this one; the runs are read as they are used.

        Args:
            label: Only requests made under this label; no other labels, and no notes.
            curves: Whether with curves, or what their names begin with.
        """
        if isinstance(curves, (bool, str)):
            curves = [curves] if isinstance(curves, str) else [""] * curves
        notes = self.notes("") if label is None else {}
        return Exported(
            runs=read_runs(self._database, label=label, prefixes=tuple(curves), curves=self.curves),
            notes={name: value for name, value in notes.items() if not name.startswith(OF_A_DEVICE)},
        )

    def merge(self, exported: Exported) -> Merged:
        """Add what another study exported, all or nothing; outcomes, requests and notes that are here stay.

        Returns:
            How many runs were new; merging again changes nothing.
        """
        with self._database.writing() as write:
            return merge(write, exported)

    def folder_for(self, name: str) -> Path:
        """Return the path for the checkpoints of a run, or of runs packed together; it need not exist."""
        check_name(name)
        return self.folder / "checkpoints" / name

    def clear_checkpoints(self) -> None:
        """Delete the checkpoints of runs that have ended; a folder's name begins with the id of a run."""
        folders = {path: path.name.partition("-")[0] for path in (self.folder / "checkpoints").glob("*")}
        statuses = self.statuses(sorted(self._known(list(folders.values()))))
        for path, run in folders.items():
            if statuses.get(run) in ENDED:
                shutil.rmtree(path, ignore_errors=True)

    def _now(self) -> dict[str, Any]:
        """Return the parameters that decide whether a lease holds: the time, and the owners not known to be dead."""
        rows = self._database.read("SELECT DISTINCT owner, place, pid FROM leases")
        owners = [Owner(name=name, place=place, pid=pid) for name, place, pid in rows]
        return {"now": time.time(), "alive": json.dumps([owner.name for owner in owners if not owner.known_dead])}

    def _of_runs(self, query: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return a row for each run, in the order of the ids; the query selects the id first."""
        self._check_known(ids)
        rows = {row[0]: row for row in self._database.read(query, {**self._now(), "ids": json.dumps(list(ids))})}
        if missing := set(ids) - rows.keys():
            raise ValueError(f"run {min(missing)!r} in {str(self.folder)!r} is damaged: expected its details")
        return [rows[run] for run in dict.fromkeys(ids)]

    def _check_known(self, ids: Sequence[str]) -> None:
        if unknown := set(ids) - self._known(ids):
            raise ValueError(f"run {min(unknown)!r} is not in {str(self.folder)!r}: expected a run that was requested")

    def _known(self, ids: Sequence[str]) -> set[str]:
        query = f"SELECT id FROM runs WHERE id IN {_IDS}"
        return {run for (run,) in self._database.read(query, {"ids": json.dumps(list(ids))})}

    def _identified(self, ids: Sequence[str]) -> set[str]:
        """Return those of the runs whose identity is known; that of a run merged from elsewhere is not."""
        query = f"SELECT run FROM details WHERE run IN {_IDS} AND identity <> :none"
        found = self._database.read(query, {"ids": json.dumps(list(ids)), "none": NO_IDENTITY})
        return {run for (run,) in found}
