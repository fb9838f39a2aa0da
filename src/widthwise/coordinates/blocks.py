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
from widthwise.scaling import Parameter, Planned
from widthwise.scaling.depth import Blocks
from widthwise.scaling.lists import Growing, List, kind_of
from widthwise.scaling.table import in_every_layer
from widthwise.theory import Role, depth_exponents

BRANCHES = "all branches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A size to measure.

    Attributes:
        uses: The uses of weights whose outputs are measured.
        summed: Whether to add up outputs of one shape first, instead of measuring each.
        factor: The factor on them.
    """

    uses: tuple[str, ...] = ()
    summed: bool = False
    factor: float = 1.0

    def size(self, outputs: Sequence[Any], rms: Callable[[Any], Any]) -> Any:
        """Return the size of the outputs of the uses."""
        if self.summed:
            of_stream: dict[tuple[int, ...], Any] = {}
            for x in outputs:  # the streams of an encoder and of a decoder may differ in length
                of_stream[x.shape] = of_stream.get(x.shape, 0) + x
            outputs = list(of_stream.values())
        return self.factor * (sum(rms(x) ** 2 for x in outputs) / len(outputs)) ** 0.5


def blocks_of(plan: Planned, plans: Sequence[Planned]) -> Blocks:
    """Return the parameters of a plan's blocks, next to plans of other depths.

    At the base depth a plan knows none. There they are those that the blocks of the other plans are compared with.
    """
    shapes, *others = ({p.path: p.shape for p in each.parameters} for each in (plan, *plans))
    growing = Growing(frozenset[List]().union(*(Growing.of(shapes, other).lists for other in others)))
    if plan.grown.deepens != 1:
        inside = frozenset(p.path for p in plan.parameters if p.deepens != 1)
        ends = frozenset(p.path for p in plan.parameters if p.ends_branch)
        return Blocks(inside=inside, ends=ends, growing=growing)
    placed = [p for each in plans if each.grown.deepens != 1 for p in each.parameters]

    def here(chosen: Callable[[Parameter], bool]) -> frozenset[str]:
        yes, no = ({p.origin or p.path for p in placed if chosen(p) is each} for each in (True, False))
        kinds = {kind_of(path) for path in yes}  # a shallower model is compared with some of the blocks here
        return frozenset(p.path for p in plan.parameters if kind_of(p.path) in kinds and p.path not in no - yes)

    return Blocks(inside=here(lambda p: p.deepens != 1), ends=here(lambda p: p.ends_branch), growing=growing)


def measures_of(plan: Planned, blocks: Blocks, uses: Sequence[str]) -> dict[str, Measure]:
    """Return what to measure of the uses of weights in a forward pass.

    Args:
        plan: The plan of the model.
        blocks: The parameters of its blocks.
        uses: The names of the uses. Those in a loop have a number in brackets.
    """
    name_of = _names(plan, blocks)
    by_name: dict[str, list[str]] = {}
    added: list[str] = []
    for use in uses:
        by_name.setdefault(name_of(use), []).append(use)
        if weights_of(use)[0] in blocks.ends:
            added.append(use)
    branch = depth_exponents(plan.grown.depth_rule, plan.exponents.family).branch
    multiplier = float(plan.grown.deepens) ** float(branch)
    found = {
        name: Measure(uses=tuple(each), factor=multiplier if each[0] in added else 1.0)
        for name, each in by_name.items()
    }
    return {**found, BRANCHES: Measure(uses=tuple(added), summed=True)} if added else found


def _names(plan: Planned, blocks: Blocks) -> Callable[[str], str]:
    """Return a function that names a use as at any other depth, apart from those of other places in the model."""
    parameters = {parameter.path: parameter for parameter in plan.parameters}

    def starred(path: str) -> str:
        return in_every_layer(blocks.growing.starred(path))

    kinds, before_ends = ({starred(path) for path in each} for each in (blocks.inside, blocks.inside - blocks.ends))

    def name_of(use: str) -> str:
        about = parameters[weights_of(use)[0]]
        kind, name = starred(about.path), "+".join(map(starred, use.split("[")[0].split("+")))
        if about.role is Role.READOUT:
            return LOGITS
        if about.path not in blocks.inside:
            return (about.origin or about.path) if kind in kinds else name
        return f"{name} (last)" if about.path in blocks.ends and kind in before_ends else name

    return name_of
