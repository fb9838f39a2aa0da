"""The driver: gets runs computed, and is the only one who writes to the store.

Requested runs are first looked up. Those that nobody has computed yet are claimed a pack at a time, only as many as the
executor can take, so that other commands on the same study find something to do. Runs that others are computing are
waited for, and taken over when their lease ends without a result.
"""

import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from widthwise.fit.transfer import CALLED
from widthwise.study.axes import axis_of, size_of
from widthwise.study.store import ENDED, Outcome, Study
from widthwise.sweeps.executors import Done, Executor
from widthwise.sweeps.memory import describe_device, lanes_that_fit
from widthwise.sweeps.packs import Options, Pack, plan
from widthwise.sweeps.progress import SweepProgress, TimeLeft
from widthwise.sweeps.speeds import Speedometer
from widthwise.sweeps.worker import train_pack
from widthwise.train import Progress, Run

LEASE_SECONDS = 600.0
"""How long a claim lasts without a sign of life: longer than the longest compilation."""
RENEW_SECONDS = 30.0
POLL_SECONDS = 0.5
"""Seconds between looks at what others are computing."""
OUT_OF_MEMORY = ("resourceexhausted", "outofmemory")
"""How devices and Ray report that memory is used up, without spaces and underscores."""
LOST = ("cudaerrorlaunchfailed", "cudaerrorillegaladdress", "cudaerroreccuncorrectable", "cudaerrordeviceunavailable")
"""How a GPU reports that it is of no use any more to the process that used it."""


class Stopped(KeyboardInterrupt):
    """Raised when the driver was asked to stop: everything is saved, and the same command resumes."""


class OutOfTime(Exception):  # noqa: N818 (reaching a limit that was asked for is no error)
    """Raised when the time for a computation is used up: everything is saved, and the same command resumes."""


class DeviceError(OSError):
    """Raised when the device fails: no run is to blame, and a new process finds it well again."""


class Driver:
    """Gets the runs of a study computed.

    Args:
        study: Where results are kept.
        executor: What computes.
        options: How packs are trained.
        most_lanes: The most runs in a pack, if the device has memory for them; 1 on a CPU.
        show: Called with the progress whenever it changes.
        stop: Polled now and then; once it returns True, work in progress is saved and `Stopped` is raised.
        hold: Entered while it is polled; elsewhere nothing is in progress, and a request to stop may interrupt at once.
        say: Called with a line that a user should see.
        speeds: What measures how fast packs are computed; None not to measure it.
    """

    def __init__(
        self,
        study: Study,
        executor: Executor,
        *,
        options: Options | None = None,
        most_lanes: int = 1,
        show: Callable[[SweepProgress], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
        hold: Callable[[], AbstractContextManager[object]] = nullcontext,
        say: Callable[[str], None] = lambda _: None,
        speeds: Speedometer | None = None,
    ) -> None:
        if most_lanes < 1:
            raise ValueError(f"most_lanes is {most_lanes}: expected 1 or more")
        self.study, self.progress = study, SweepProgress()
        self._executor, self._options, self._most_lanes = executor, options or Options(), most_lanes
        self._show, self._stop, self._hold, self._say, self._speeds = show, stop, hold, say, speeds
        self._device: str | None = None
        self._failed: set[str] = set()
        self._seen: set[str] = set()
        self._sizes: dict[str, str] = {}
        self._renewed = time.monotonic()
        self._left = TimeLeft()
        self._until = math.inf
        study.clear_checkpoints()  # of a driver that was killed between recording and deleting

    def compute(self, runs: Iterable[Run], *, label: str | None = None, until: float = math.inf) -> dict[str, float]:
        """Compute the runs that are not known yet.

        Args:
            runs: The runs.
            label: What they are requested for.
            until: When to save and raise `OutOfTime`, on the clock of `time.monotonic`.

        Returns:
            The eval loss of every run, NaN where it diverged; those that failed are missing.
        """
        self._until = until
        with self._hold():
            return self._compute(list(runs), label)

    def _compute(self, requested: Sequence[Run], label: str | None) -> dict[str, float]:
        self.study.ask(requested, label=label)
        by_id = {run.id: run for run in requested}
        self._sizes |= {run.id: _size(run.request) for run in requested}
        self.progress.wanted += len(by_id.keys() - self._seen)
        while True:
            known = self.study.outcomes(list(by_id))
            self._count(known)
            todo = [run for run, (status, _) in known.items() if status not in ENDED and run not in self._failed]
            if not todo:
                return {run: results["eval_loss"] for run, (status, results) in known.items() if status in ENDED}
            free = [by_id[run] for run in todo if known[run][0] != "running"]
            if not self._compute_here(plan(free, self._lanes)):
                self.progress.elsewhere = len(todo)
                self._show(self.progress)
                time.sleep(POLL_SECONDS)
            self.progress.elsewhere = 0
            self._raise_if_stopped()

    def _compute_here(self, packs: Sequence[Pack]) -> bool:
        """Compute what can be claimed; return whether there was anything."""
        line, running = deque(packs), dict[str, Pack]()
        self._left.begin(sum(pack.flops for pack in packs))
        self._submit(line, running)
        claimed = bool(running)
        for completion in self._executor.results(progress=self._hear, stop=self._watch):
            pack = running.pop(completion.key, None)
            if pack is None:  # left in line by a computation that ran out of time
                continue
            too_large = (
                not isinstance(completion, Done) and len(pack.ids) > 1 and _reports(completion.error, OUT_OF_MEMORY)
            )
            self._left.end(pack.key, computed=not too_large)
            if too_large:
                line = self._shrink(pack, line)
            elif not isinstance(completion, Done) and _reports(completion.error, LOST):
                self.study.release()
                raise DeviceError(f"the device failed; run the same command to resume: {completion.error}")
            elif not isinstance(completion, Done):
                self._fail(pack, completion.error)
            elif completion.result is not None:  # None: it was asked to stop
                self._record(pack, completion.result)
            self._submit(line, running)
        if self._stopping():
            self.study.release()
        self._raise_if_stopped()
        return claimed

    def _stopping(self) -> bool:
        return self._stop() or time.monotonic() >= self._until

    def _raise_if_stopped(self) -> None:
        if self._stop():
            raise Stopped
        if self._stopping():
            raise OutOfTime

    def _submit(self, line: deque[Pack], running: dict[str, Pack]) -> None:
        while line and len(running) < self._executor.capacity and not self._stopping():
            pack = line.popleft()
            granted = self.study.claim(pack.ids, seconds=LEASE_SECONDS)
            if not granted:
                self._left.drop(pack.flops)
                continue
            pack = replace(pack.only(granted), options=self._options)
            running[pack.key] = pack
            self._left.start(pack.key, pack.flops)
            self._executor.submit(pack.key, train_pack, replace(pack, folder=self.study.folder_for(pack.key)))
        self.progress.running = sum(len(pack.ids) for pack in running.values())
        self.progress.seconds_left = self._left.seconds_left
        self._show(self.progress)

    def _record(self, pack: Pack, outcomes: list[Outcome]) -> None:
        self.study.record(outcomes)
        if self._speeds is not None:
            self._speeds.note(pack, outcomes)
        shutil.rmtree(self.study.folder_for(pack.key), ignore_errors=True)
        self.progress.trained += len(outcomes)
        ended = {outcome.run: (outcome.status, outcome.results) for outcome in outcomes}
        self._count(ended)

    def _fail(self, pack: Pack, error: str) -> None:
        self._failed.update(pack.ids)
        self.study.record([Outcome(run=run, status="failed", provenance={"error": error}) for run in pack.ids])
        line = (
            f"{len(pack.ids)} {'run' if len(pack.ids) == 1 else 'runs'} of width {pack.specs[0].width} failed: {error}"
        )
        self.progress.failed.append(line)
        self._say(line)

    def _shrink(self, pack: Pack, line: Iterable[Pack]) -> deque[Pack]:
        """Halve a pack that ran out of memory, and those that wait of its program; remember it for this device."""
        known: int | None = self.study.get(self._note(pack))  # another pack may have been halved meanwhile
        size = min(len(pack.ids) // 2, known or len(pack.ids))
        self.study.put(self._note(pack), size)
        shutil.rmtree(self.study.folder_for(pack.key), ignore_errors=True)
        self._say(f"{len(pack.ids)} runs of width {pack.specs[0].width} ran out of memory; trying {size} at a time")
        alike = [pack, *(waiting for waiting in line if waiting.program == pack.program)]
        others = (waiting for waiting in line if waiting.program != pack.program)
        return deque([*Pack.join(alike).split(size), *others])

    def _lanes(self, pack: Pack) -> int:
        """Return how many runs of a pack fit side by side; a study remembers the answer of each device."""
        if self._most_lanes == 1:
            return 1
        try:
            note = self._note(pack)
            fit: int | None = self.study.get(note)
            if fit is None:
                fit = int(self._ask("lanes", lanes_that_fit, pack.only(pack.ids[:1])))
                self.study.put(note, fit)
        except ValueError as error:
            width = pack.specs[0].width
            self._say(f"cannot tell how many runs of width {width} fit on the device; training one at a time: {error}")
            return 1
        return min(self._most_lanes, fit)

    def _note(self, pack: Pack) -> str:
        if self._device is None:
            self._device = str(self._ask("device", describe_device, None))
        return f"lanes/{self._device}/{pack.program}"

    def _ask(self, key: str, work: Callable[..., Any], payload: Any) -> Any:
        """Return what a worker answers; raise ValueError if it fails. Nothing else may be running."""
        self._executor.submit(key, work, payload)
        (completion,) = self._executor.results()
        if not isinstance(completion, Done):
            raise ValueError(completion.error)
        return completion.result

    def _count(self, known: Mapping[str, tuple[Any, dict[str, Any]]]) -> None:
        for run, (status, results) in known.items():
            if status in ENDED and run not in self._seen:
                self._seen.add(run)
                self.progress.done += 1
                self.progress.diverged += status == "diverged"
                loss, best = results["eval_loss"], self.progress.best
                if math.isfinite(loss) and (best is None or loss < best[0]):
                    self.progress.best = (loss, self._sizes[run])

    def _hear(self, key: str, now: Progress) -> None:
        self._left.advance(key, now.step / now.steps)
        self.progress.seconds_left = self._left.seconds_left
        self._show(self.progress)

    def _watch(self) -> bool:
        """Keep the leases; return whether to stop. What is computed for a study that is gone could not be kept."""
        self.study.check_there()
        if time.monotonic() - self._renewed > RENEW_SECONDS:
            self._renewed = time.monotonic()
            self.study.renew(seconds=LEASE_SECONDS)
        return self._stopping()


def _size(request: Mapping[str, Any]) -> str:
    axis = axis_of(request).name
    return f"{CALLED.get(axis, axis)} {size_of(request)}"


def _reports(error: str, signs: Sequence[str]) -> bool:
    letters = error.lower().replace(" ", "").replace("_", "")
    return any(sign in letters for sign in signs)
