"""Runs wanted, and how they are packed: which of them are computed together, in which order.

Runs share a pack if one compilation serves them; data is the same throughout a sweep. How many do is the device's
memory to say. On a CPU a pack is one run: lanes would run one after another there, a worker's compilations outlive
its packs anyway, and a pack that is killed or handed to another process is then as little as it can be.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from widthwise.sweep.canonical import encode, key
from widthwise.sweep.records import Asked
from widthwise.sweep.work import inputs_of
from widthwise.train import Program, Run, Spec, resolve
from widthwise.train.cost import flops_per_step


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """A run that somebody wants.

    Attributes:
        id: The run's id.
        run: What it comes down to.
        names: What is kept with the request beside the specification.
    """

    id: str
    run: Run
    names: dict[str, Any]

    @property
    def asked(self) -> Asked:
        """The request, for the store."""
        return Asked(spec={**self.run.spec.to_json(), **self.names}, run=self.id, identity=self.run.identity)

    @property
    def probe(self) -> bool:
        """Whether it measures alignment on the way."""
        return "probe" in self.run.identity

    @property
    def portable(self) -> Spec:
        """The specification with its precision written out: "auto" may mean something else on another machine."""
        return replace(self.run.spec, dtype=self.run.program.model.dtype)

    @property
    def flops(self) -> float:
        """What it takes to train."""
        return self.run.program.steps * flops_per_step(self.run.program.model, self.run.spec.batch)

    @property
    def tokens(self) -> int:
        """What it sees."""
        return self.run.program.steps * self.run.spec.batch * self.run.spec.context


class Wants:
    """Makes runs of specifications on the data of a sweep, which is opened once."""

    def __init__(self, spec: Spec) -> None:
        inputs = inputs_of(spec)
        self.vocabulary = inputs.batches.vocabulary
        self._fingerprint = inputs.fingerprint
        self._known: dict[tuple[Spec, bool], tuple[str, Run]] = {}

    def want(self, spec: Spec, *, probe: bool = False, **names: Any) -> Wanted:
        """Work a specification out.

        Args:
            spec: The specification.
            probe: Whether to measure alignment on the way. Such a run is another run than the one without, so that
                one which was trained before without measuring does not stand in for it.
            names: What is kept with the request.
        """
        if (spec, probe) not in self._known:
            run = resolve(spec, vocabulary=self.vocabulary, data=self._fingerprint, probe=probe)
            self._known[spec, probe] = (run.id, run)
        run_id, run = self._known[spec, probe]
        return Wanted(id=run_id, run=run, names=names | ({"probe": True} if probe else {}))


@dataclass(frozen=True, kw_only=True, eq=False)
class Pack:
    """Runs to compute together."""

    runs: tuple[Wanted, ...]

    @property
    def key(self) -> str:
        """What it is known by: the same for the same runs, so that a checkpoint is found again."""
        return f"{self.runs[0].id}-{key(encode([wanted.id for wanted in self.runs]))}"

    @property
    def flops(self) -> float:
        """What it takes to train."""
        return sum(wanted.flops for wanted in self.runs)

    def only(self, ids: Sequence[str]) -> "Pack":
        """Leave the rest out."""
        return replace(self, runs=tuple(wanted for wanted in self.runs if wanted.id in set(ids)))


def plan(wanted: Sequence[Wanted], lanes: Callable[[Wanted], int] = lambda _: 1) -> list[Pack]:
    """Pack runs, the longest first, so that no worker ends long after the others.

    Args:
        wanted: The runs; one that is wanted under several names is computed once.
        lanes: Says how many runs like this one fit side by side.
    """
    by_program: dict[tuple[Program, bool], dict[str, Wanted]] = defaultdict(dict)
    for one in wanted:
        by_program[one.run.program, one.probe].setdefault(one.id, one)
    packs: list[Pack] = []
    for runs in by_program.values():
        together = list(runs.values())
        size = lanes(together[0])
        # As many packs as it takes, of equal size: they end together, and a worker compiles for one size.
        count = -(-len(together) // size)
        even = -(-len(together) // count)
        packs += [Pack(runs=tuple(together[i : i + even])) for i in range(0, len(together), even)]
    return sorted(packs, key=lambda pack: -pack.flops)
