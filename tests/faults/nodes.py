"""A sweep on a Ray cluster of three nodes on this machine, of which the two that compute are killed in turn."""

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.campaign import SkippedError, Tally
from tests.faults.commands import Process, chunks, environment
from tests.faults.kills import complaints
from tests.faults.subjects import InStudy

HEAD = {"num_cpus": 0, "include_dashboard": False}
STARTS = 3
"""How often a sweep is started before it may run to its end."""
NODES = 2
"""How many nodes are killed of one command: with the third, a pack may have failed."""


class Workers:
    """A Ray cluster whose head computes nothing, and two nodes that do."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

    def replace_one(self, chance: random.Random) -> None:
        """Kill a node, and start another one."""
        self._cluster.remove_node(self._nodes.pop(chance.randrange(2)), allow_graceful=False)
        self._nodes.append(self._cluster.add_node(num_cpus=1))


@dataclass(frozen=True)
class Sweep:
    """The sweep on the cluster; all of its processes note their steps in one file."""

    subject: InStudy
    steps: Path

    @property
    def begun(self) -> int:
        """The number of steps begun so far."""
        return sum(chunk.steps for chunk in chunks(self.steps))

    def start(self, folder: Path) -> Process:
        """Start it, or start it again."""
        return Process(self.subject.words(folder), self.steps, log=folder)

    def finish(self, folder: Path, tally: Tally) -> Any:
        """Run it to its end, and return that."""
        saved = self.subject.saved(folder)
        self.judge(folder, self.start(folder), saved, (0,), tally)
        return self.subject.end(folder)

    def judge(self, folder: Path, process: Process, saved: Any, codes: tuple[int, ...], tally: Tally) -> int | None:
        """Wait until it has ended, note what is wrong or lost, and return the exit code."""
        ended = process.wait() or process.hung()
        tally.wrong += complaints(folder, ended, codes)
        tally.lost += [f"{folder}: {line}" for line in self.subject.lost(saved, folder, None)]
        return ended.code


class Nodes:
    """A sweep whose nodes are killed, and now and then the sweep itself.

    Args:
        words: The command line of the sweep.
        times: How often something is killed.
    """

    name = "ray"

    def __init__(self, words: tuple[str, ...], times: int) -> None:
        self.times, self._words = times, words

    def run(self, folder: Path, chance: random.Random, tally: Tally) -> None:
        """Start a cluster, and tell stories of killed nodes until there were enough."""
        try:
            from ray.cluster_utils import Cluster
        except ImportError:
            raise SkippedError("Ray is not installed") from None
        os.environ |= environment(folder / "steps")  # which the nodes inherit
        cluster: Any = Cluster(initialize_head=True, head_node_args=HEAD, shutdown_at_exit=False)
        try:
            workers = Workers(cluster)
            sweep = Sweep(InStudy(*self._words, "--ray", cluster.address), folder / "steps")
            began = time.monotonic()
            whole = sweep.finish(folder / "whole", tally)
            needed, seconds, story = sweep.begun, time.monotonic() - began, 0
            while tally.faults < self.times:
                story += 1
                here, before = folder / f"story-{story}", sweep.begun
                for _ in range(STARTS):
                    if self._strike(sweep, here, workers, chance, tally, seconds) == 0 or tally.faults >= self.times:
                        break
                end = sweep.finish(here, tally)
                tally.needed, tally.begun = tally.needed + needed, tally.begun + sweep.begun - before
                tally.compared += 1
                if end != whole:
                    tally.differs.append(f"{here}: ended otherwise than {folder / 'whole'}")
        finally:
            with contextlib.suppress(Exception):
                cluster.shutdown()

    def _strike(
        self, sweep: Sweep, folder: Path, workers: Workers, chance: random.Random, tally: Tally, seconds: float
    ) -> int | None:
        """Start a sweep, and kill nodes under it and perhaps itself; return its exit code."""
        saved, codes = sweep.subject.saved(folder), (0,)
        process = sweep.start(folder)
        for _ in range(NODES):
            if tally.faults < self.times and process.wait(chance.uniform(0, seconds)) is None:
                workers.replace_one(chance)
                tally.faults += 1
        if chance.random() < 0.3 and process.wait(chance.uniform(0, seconds)) is None:
            process.strike(signal.SIGKILL)
            tally.faults += 1
            codes = (0, -signal.SIGKILL)
        return sweep.judge(folder, process, saved, codes, tally)
