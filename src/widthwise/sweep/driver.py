"""The driver: has runs computed, and is the only one who writes the store.

What is asked for is first looked up. What nobody has computed yet is claimed a pack at a time, just as much as the
executor can take, so that other commands on the same study find something to do. What others are computing is waited
for, and taken over when their lease ends without a result.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from widthwise.sweep.executors import Done, Executor
from widthwise.sweep.packs import Pack, Wanted, plan
from widthwise.sweep.records import Outcome
from widthwise.sweep.standing import Standing, TimeLeft
from widthwise.sweep.store import Study
from widthwise.sweep.work import Options, Task, lanes_that_fit, train_pack
from widthwise.train import Progress

LEASE_SECONDS = 600.0
"""How long a claim lasts without a sign of life: longer than the longest compilation."""
RENEW_SECONDS = 30.0
POLL_SECONDS = 0.5
"""Seconds between looks at what others are computing."""


class Stopped(KeyboardInterrupt):
    """Raised when the driver was asked to stop: everything is saved, and the same command goes on."""


class Driver:
    """Has runs of a study computed.

    Args:
        study: Where results are kept.
        executor: What computes.
        options: How packs are trained.
        most_lanes: The most runs in a pack, where the device has memory for them; 1 on a CPU.
        show: Told where things stand whenever that changes.
        stop: Asked now and then; once it says yes, what is in the works is saved and `Stopped` is raised.
        say: Told, in a line, what a user should know.
    """

    def __init__(
        self,
        study: Study,
        executor: Executor,
        *,
        options: Options | None = None,
        most_lanes: int = 1,
        show: Callable[[Standing], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        if most_lanes < 1:
            raise ValueError(f"most_lanes is {most_lanes}: expected 1 or more")
        self.study, self.standing = study, Standing()
        self._executor, self._options, self._most_lanes = executor, options or Options(), most_lanes
        self._show, self._stop, self._say = show, stop, say
        self._failed: set[str] = set()
        self._seen: set[str] = set()
        self._renewed = time.monotonic()
        self._left = TimeLeft()
        study.clear_checkpoints()  # of a driver that was killed between recording and deleting

    def compute(self, wanted: Sequence[Wanted], *, label: str | None = None) -> dict[str, float]:
        """Have runs computed that are not known yet.

        Args:
            wanted: The runs.
            label: What they are asked for.

        Returns:
            The eval loss of every run, NaN where it diverged; those that failed are missing.
        """
        self.study.ask([one.asked for one in wanted], label=label)
        runs = {one.id: one for one in wanted}
        self.standing.wanted += len(runs.keys() - self._seen)
        while True:
            known = self.study.outcomes(list(runs))
            self._count(runs, known)
            open_ids = [run for run, (status, _) in known.items() if status not in ("finished", "diverged")]
            todo = [runs[run] for run in open_ids if run not in self._failed]
            if not todo:
                return {
                    run: results["eval_loss"]
                    for run, (status, results) in known.items()
                    if status in ("finished", "diverged")
                }
            free = [one for one in todo if known[one.id][0] != "running"]
            if not self._compute_here(plan(free, self._lanes)):
                self.standing.elsewhere = len(todo)
                self._show(self.standing)
                time.sleep(POLL_SECONDS)
            self.standing.elsewhere = 0
            if self._stop():
                raise Stopped

    def _compute_here(self, packs: Sequence[Pack]) -> bool:
        """Compute what can be claimed; say whether there was anything."""
        line, running = deque(packs), dict[str, Pack]()
        self._left.begin(sum(pack.flops for pack in packs))
        self._submit(line, running)
        claimed = bool(running)
        for outcome in self._executor.results(progress=self._hear, stop=self._watch):
            pack = running.pop(outcome.key)
            self._left.end(outcome.key, pack.flops)
            if not isinstance(outcome, Done):
                self._fail(pack, outcome.error)
            elif outcome.result is not None:  # None: it was told to stop
                self._record(pack, outcome.result)
            self._submit(line, running)
            self._tell(running)
        if self._stop():
            self.study.release()
            raise Stopped
        return claimed

    def _submit(self, line: deque[Pack], running: dict[str, Pack]) -> None:
        while line and len(running) < self._executor.capacity and not self._stop():
            pack = line.popleft()
            granted = self.study.claim([one.id for one in pack.runs], seconds=LEASE_SECONDS)
            if not granted:
                self._left.drop(pack.flops)
                continue
            pack = pack.only(granted)
            running[pack.key] = pack
            self._left.start(pack.key, pack.flops)
            self._executor.submit(pack.key, train_pack, self._task(pack))
        self._tell(running)

    def _task(self, pack: Pack) -> Task:
        return Task(
            specs=tuple(one.portable for one in pack.runs),
            runs=tuple(one.id for one in pack.runs),
            options=self._options,
            folder=self.study.folder_for(pack.key),
            probe=pack.runs[0].probe,
        )

    def _record(self, pack: Pack, outcomes: list[Outcome]) -> None:
        self.study.record(outcomes)
        shutil.rmtree(self.study.folder_for(pack.key), ignore_errors=True)
        self.standing.trained += len(outcomes)
        self._count(
            {one.id: one for one in pack.runs}, {outcome.run: (outcome.status, outcome.results) for outcome in outcomes}
        )

    def _fail(self, pack: Pack, error: str) -> None:
        ids = [one.id for one in pack.runs]
        self._failed.update(ids)
        self.study.record([Outcome(run=run, status="failed", provenance={"error": error}) for run in ids])
        line = f"{len(ids)} of width {pack.runs[0].run.spec.width} failed: {error}"
        self.standing.failed.append(line)
        self._say(line)

    def _lanes(self, wanted: Wanted) -> int:
        """Say how many runs like this one go into a pack; what a device answered is kept in the study."""
        if self._most_lanes == 1:
            return 1
        model, spec = wanted.run.program.model, wanted.run.spec
        note = f"lanes/{spec.optimizer}/{model}/{spec.batch}/{self._options.chunk}"
        fit: int | None = self.study.get(note)
        if fit is None:
            task = Task(specs=(wanted.portable,), runs=(wanted.id,), options=self._options, probe=wanted.probe)
            self._executor.submit("lanes", lanes_that_fit, task)
            (outcome,) = self._executor.results()
            if not isinstance(outcome, Done):
                self._say(f"how many runs of width {spec.width} fit is not known, so one at a time: {outcome.error}")
                return 1
            fit = int(outcome.result)
            self.study.put(note, fit)
        return min(self._most_lanes, fit)

    def _count(self, runs: dict[str, Wanted], known: dict[str, tuple[Any, dict[str, Any]]]) -> None:
        for run, (status, results) in known.items():
            if status in ("finished", "diverged") and run not in self._seen:
                self._seen.add(run)
                self.standing.done += 1
                self.standing.diverged += status == "diverged"
                if results["eval_loss"] < self.standing.best[0]:
                    self.standing.best = (results["eval_loss"], runs[run].run.spec.width)

    def _hear(self, key: str, now: Progress) -> None:
        self._left.advance(key, now.step / now.steps)
        self.standing.seconds_left = self._left.seconds_left
        self._show(self.standing)

    def _tell(self, running: dict[str, Pack]) -> None:
        self.standing.running = sum(len(pack.runs) for pack in running.values())
        self.standing.seconds_left = self._left.seconds_left
        self._show(self.standing)

    def _watch(self) -> bool:
        """Keep the leases; say whether to stop."""
        if time.monotonic() - self._renewed > RENEW_SECONDS:
            self._renewed = time.monotonic()
            self.study.renew(seconds=LEASE_SECONDS)
        return self._stop()
