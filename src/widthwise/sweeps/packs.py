"""Packs: which runs are computed together, and in which order.

Runs share a pack if one compilation serves them and they read the same batches. How many fit is a matter of the
device's memory. On a CPU a pack is one run: lanes would train one after another there, workers keep their compilations
anyway, and a pack that is killed then costs as little as possible.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from widthwise.study.encoding import encode, key
from widthwise.sweeps.requests import data_of
from widthwise.train import Program, Run, Spec


@dataclass(frozen=True, kw_only=True)
class Options:
    """How packs are trained; none of it changes what a run computes."""

    chunk: int = 20
    """Steps per call of the compiled program."""
    evaluations: int = 5
    """Evaluations during training, the last at the end."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints; packs that take less have none."""

    def __post_init__(self) -> None:
        for name in ("chunk", "evaluations"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds is {self.checkpoint_seconds}: expected 0 or more")

    def evaluate_every(self, steps: int) -> int:
        """Return the steps between evaluations: whole chunks, since partial ones are another program."""
        return math.ceil(steps / self.evaluations / self.chunk) * self.chunk


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Runs to compute together, as plain values that any worker can read.

    Attributes:
        specs: What to train, all of one program and on the same data.
        ids: The run ids that the specifications must resolve to.
        program: What is compiled, in words: packs that share it take the same memory per run.
        flops_each: The FLOPs of one run.
        probe: Whether to measure alignment during training.
        options: How to train.
        folder: Where checkpoints go; None for no checkpoints.
    """

    specs: tuple[Spec, ...]
    ids: tuple[str, ...]
    program: str = ""
    flops_each: float = 0.0
    probe: bool = False
    options: Options = Options()
    folder: Path | None = None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Pack":
        """Return the pack of runs that share a program."""
        first = runs[0]
        return cls(
            specs=tuple(run.portable for run in runs),
            ids=tuple(run.id for run in runs),
            program=f"{first.spec.optimizer}/{first.program.model}/{first.spec.batch}{'/probe' if first.probe else ''}",
            flops_each=first.flops,
            probe=first.probe,
        )

    @classmethod
    def join(cls, packs: Sequence["Pack"]) -> "Pack":
        """Return one pack with the runs of several that share a program."""
        specs = tuple(spec for pack in packs for spec in pack.specs)
        return replace(packs[0], specs=specs, ids=tuple(run for pack in packs for run in pack.ids))

    @property
    def key(self) -> str:
        """Its name: the same for the same runs, so that a checkpoint is found again."""
        return f"{self.ids[0]}-{key(encode(list(self.ids)))}"

    @property
    def flops(self) -> float:
        """The FLOPs of all its runs."""
        return len(self.ids) * self.flops_each

    def only(self, ids: Collection[str]) -> "Pack":
        """Return the pack with these of its runs."""
        kept = [(spec, run) for spec, run in zip(self.specs, self.ids, strict=True) if run in ids]
        return replace(self, specs=tuple(spec for spec, _ in kept), ids=tuple(run for _, run in kept))

    def split(self, size: int) -> list["Pack"]:
        """Return packs of at most this many runs, as few and as even as possible."""
        even = -(-len(self.ids) // -(-len(self.ids) // size))
        return [self.only(self.ids[start : start + even]) for start in range(0, len(self.ids), even)]


def plan(runs: Iterable[Run], lanes: Callable[[Pack], int] = lambda _: 1) -> list[Pack]:
    """Pack runs, the longest first, so that no worker ends long after the others.

    Args:
        runs: The runs; one that is requested under several names is computed once.
        lanes: Returns how many runs of a pack fit side by side.
    """
    alike: dict[tuple[Program, bool, Spec], dict[str, Run]] = defaultdict(dict)
    for run in runs:
        alike[run.program, run.probe, data_of(run.spec)].setdefault(run.id, run)
    together = (Pack.of(list(same.values())) for same in alike.values())
    return sorted((part for pack in together for part in pack.split(lanes(pack))), key=lambda pack: -pack.flops)
