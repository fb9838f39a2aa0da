"""What to measure of a model's layers over depth, under names that are the same at every depth.

Outputs of a layer are taken over all blocks together. Those that end a residual branch are divided by the multiplier
that is folded into them, so that they are what the block computes. What all branches add up to is the change of the
stream since the embedding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from widthwise.coordinates.depth import LOGITS
from widthwise.coordinates.measured import weights_of
from widthwise.scaling import Planned
from widthwise.scaling.table import in_every_layer
from widthwise.theory import Role, depth_exponents

BRANCHES = "all branches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A size to measure.

    Attributes:
        uses: The uses of weights whose outputs are measured.
        summed: Whether to measure their sum, not their entries.
        factor: The factor on them.
    """

    uses: tuple[str, ...] = ()
    summed: bool = False
    factor: float = 1.0

    def size(self, outputs: Sequence[Any], rms: Callable[[Any], Any]) -> Any:
        """Return the size of the outputs of the uses."""
        if self.summed:
            return rms(sum(outputs[1:], outputs[0]))
        return self.factor * (sum(rms(x) ** 2 for x in outputs) / len(outputs)) ** 0.5


def kinds_of_ends(plans: Sequence[Planned]) -> frozenset[str]:
    """Return the parameters that end branches, without the numbers of layers. At the base depth none is known."""
    return frozenset(in_every_layer(p.path) for plan in plans for p in plan.parameters if p.ends_branch)


def measures_of(plan: Planned, ends: frozenset[str], uses: Sequence[str]) -> dict[str, Measure]:
    """Return what to measure of the uses of weights in a forward pass.

    Args:
        plan: The plan of the model.
        ends: The parameters that end a residual branch, without the numbers of layers.
        uses: The names of the uses. Those in a loop have a number in brackets.
    """
    roles = {parameter.path: parameter.role for parameter in plan.parameters}
    grown = plan.grown
    branch = depth_exponents(grown.depth_rule, plan.exponents.family).branch
    by_name: dict[str, list[str]] = {}
    added: list[str] = []
    for use in uses:
        path = weights_of(use)[0]
        by_name.setdefault(LOGITS if roles[path] is Role.READOUT else in_every_layer(use).split("[")[0], []).append(use)
        if in_every_layer(path) in ends:
            added.append(use)
    multiplier = float(grown.deepens) ** float(branch)
    found = {
        name: Measure(uses=tuple(each), factor=multiplier if each[0] in added else 1.0)
        for name, each in by_name.items()
    }
    return {**found, BRANCHES: Measure(uses=tuple(added), summed=True)} if added else found
