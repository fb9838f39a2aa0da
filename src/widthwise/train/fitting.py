"""How many devices a run needs, and what it has to compute again, to fit into their memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from widthwise.models.storing import REMATERIALIZATIONS, Rematerialization
from widthwise.train.cost import Cost, estimate
from widthwise.train.elsewhere import Memory, Target
from widthwise.train.spec import Run

HOPELESS = 1.3
"""Where the estimate is so many times the memory, the compiler is not asked."""


@dataclass(frozen=True)
class Attempt:
    """A number of devices and what is computed again, and the memory that takes.

    Attributes:
        cost: The estimate.
        compiled: What the compiler says; None if it was not asked.
    """

    cost: Cost
    compiled: Memory | None

    @property
    def bytes(self) -> int:
        """The memory of each device, by the compiler if it was asked."""
        return self.cost.bytes if self.compiled is None else self.compiled.total


def attempt(run: Run, target: Target | None, *, devices: int, remat: Rematerialization | None) -> Attempt:
    """Estimate what training takes on each device, and ask the compiler if a target is given."""
    batch, program = run.spec.batch, replace(run.program, model=replace(run.program.model, remat=remat))
    cost = estimate(program, run.lane, batch=batch, devices=devices)
    return Attempt(cost, target and target.memory(program, run.lane, batch=batch, devices=devices))


def attempts(
    run: Run,
    target: Target | None,
    memory: float,
    *,
    devices: Sequence[int],
    remats: Sequence[Rematerialization] | None,
    compiling: Callable[[int, Rematerialization], None] = lambda devices, remat: None,
) -> Iterator[Attempt]:
    """Yield attempts, from few devices to many and from nothing computed again to most, until one fits.

    Args:
        run: The run.
        target: What to compile for; None to go by the estimate.
        memory: The bytes that each device has.
        devices: The numbers of devices to try, in increasing order.
        remats: What to compute again; None to try all that differ.
        compiling: Called before the compiler is asked.
    """
    for count in devices:
        least = math.inf
        for remat in remats or REMATERIALIZATIONS[count > 1 :]:  # on several devices, the first two are one
            found = attempt(run, None, devices=count, remat=remat)
            if found.bytes >= least:
                continue  # for nothing
            least = found.bytes
            if target is not None and least <= HOPELESS * memory:
                compiling(count, remat)
                found = attempt(run, target, devices=count, remat=remat)
            yield found
            if found.bytes <= memory:
                return
