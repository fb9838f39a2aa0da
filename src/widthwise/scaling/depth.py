"""What changes for parameters when a model is deeper than at the base depth.

Blocks are found by comparing the traces of a model at two depths: a branch is one of the L if its parameters belong to
a list with more items in the deeper model, or to a higher stack. A branch's multiplier goes into the parameters that
end it, so the model itself does not change. Other parameters of blocks get the rates of the rule alone. Parameters that
several blocks share, such as a condition that all of them read, belong to none.

A parameter gets its initial size from its counterpart at the base depth. In blocks, that is the same parameter of
another block: of block 7 mod n if the base model has n blocks, since blocks of two kinds usually alternate. Blocks are
counted, whatever their names: those of `[embedding, *blocks, head]` begin with 1.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from widthwise.scaling.factors import Factors
from widthwise.scaling.grown import Grown, with_everywhere
from widthwise.scaling.lists import Growing, List, Paths, counterparts, kind_of
from widthwise.scaling.orthogonal import family_of
from widthwise.scaling.parameters import Parameter, Traced
from widthwise.scaling.streams import Branch, Root
from widthwise.theory import Family, depth_exponents


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The parameters of the residual blocks whose number is the depth.

    Attributes:
        inside: Those that act in a branch.
        ends: Those of them that end a branch, which takes their common factor as its own.
        growing: What the model has more of when it is deeper.
    """

    inside: Paths = frozenset()
    ends: Paths = frozenset()
    growing: Growing = field(default_factory=Growing)


def find_blocks(here: Traced, base: Traced) -> Blocks:
    """Find the blocks of a model by comparing it with the same model at another depth.

    Raise if branches are not added to one stream, or have no last weight that could take a multiplier.

    Args:
        here: The model.
        base: The same model at another depth, and at the same width.
    """
    if here.uses is None:
        raise ValueError("depth= needs the forward pass, and it was not traced: pass an example")
    growing, shared, repeated = Growing.of(here.shapes, base.shapes), _shared(here, base), _repeated(here, base)

    def own(branch: Branch) -> Paths:
        return frozenset(path for path in branch.inside - shared if growing.holding(path))

    found = [each for each in here.branches if not each.alone and (own(each) or each.name in repeated)]
    if not found:
        raise _no_block(here, growing)
    _refuse_several_streams(found, base, growing)
    streams = {branch.stream for branch in found}
    # A bias may be added to the stream by itself. What is added to it first belongs to the embedding.
    found += [each for each in here.branches if each.alone and each.before and each.stream in streams and own(each)]
    inside = frozenset[str]().union(*map(own, found))
    for branch in found:
        _refuse_unfoldable(branch, here, inside)
    ends = frozenset(path for branch in found for path in branch.ends)
    # An expert that no example reached is in its block all the same.
    unused = {path for path in here.shapes.keys() - {use.path for use in here.uses} if growing.holding(path)}
    return Blocks(inside=inside | _of_kinds(inside, unused), ends=ends | _of_kinds(ends, unused), growing=growing)


def _of_kinds(known: Paths, paths: Collection[str]) -> Paths:
    """Return the paths that are those of known ones up to the numbers of layers."""
    kinds = {kind_of(path) for path in known}
    return frozenset(path for path in paths if kind_of(path) in kinds)


def _shared(here: Traced, base: Traced) -> Paths:
    """Return the parameters that act in more branches of the deeper model, such as a condition that all blocks read."""
    counts, others = (
        Counter(path for branch in each.branches if not branch.alone for path in branch.inside) for each in (here, base)
    )
    return frozenset(path for path in counts.keys() & others.keys() if counts[path] != others[path])


def _repeated(here: Traced, base: Traced) -> set[str]:
    """Return the names of branches that are added more often in the deeper model: those of shared weights."""
    counts, others = Counter[str](), Counter[str]()
    for count, traced in ((counts, here), (others, base)):
        for branch in traced.branches:
            count[branch.name] += branch.times
    return {name for name in counts.keys() & others.keys() if counts[name] != others[name]}


def _held(branch: Branch, growing: Growing) -> set[List | str]:
    """Return the growing lists and stacks of the parameters in a branch."""
    return set[List | str]().union(*(growing.holding(path) for path in branch.inside))


def _longest(branches: Iterable[Branch], growing: Growing) -> Counter[List | str]:
    """Return how many branches of each list or stack are added to one stream, at most."""
    found: Counter[List | str] = Counter()
    counts: Counter[tuple[List | str, Root]] = Counter()
    for branch in branches:
        if not branch.alone:
            counts.update({(each, branch.stream): branch.times for each in _held(branch, growing)})
    for (each, _), count in counts.items():
        found[each] = max(found[each], count)
    return found


def _refuse_several_streams(found: Sequence[Branch], base: Traced, growing: Growing) -> None:
    """Raise if what grows with the depth adds no more to one stream than before."""
    longest, others = _longest(found, growing), _longest(base.branches, growing)
    for branch in found:
        for each in _held(branch, growing):
            if longest[each] == others[each]:
                raise ValueError(
                    f"the branch of {branch.name!r} is added to a stream that the next block does not add to, since it "
                    "is normalized, multiplied or joined with something in between (post-norm): depth rules are for "
                    "blocks that add to one stream, as in pre-norm models; leave depth= out, or move the norm into the "
                    "branch"
                )


def _no_block(here: Traced, growing: Growing) -> ValueError:
    if not growing:
        return ValueError("no parameter changes with the depth: expected build(width, depth=...) to use its argument")
    path = next(path for path in here.shapes if growing.holding(path))
    return ValueError(
        f"{path!r} is in no residual branch, though the model has more of its kind when it is deeper: depth rules are "
        "for blocks that compute x + f(x); leave depth= out"
    )


def _refuse_unfoldable(branch: Branch, here: Traced, inside: Paths) -> None:
    """Raise unless the multiplier of a branch can go into its last weight and bias."""
    shared = [path for path in branch.ends if path not in inside]
    if not branch.ends and branch.last not in {None, *inside}:
        shared = [str(branch.last)]
    if shared:
        raise ValueError(
            f"{min(shared)!r} is shared by several blocks, or by blocks and the rest of the model, so it cannot take "
            "the multiplier of one branch: give each block its own, or leave depth= out"
        )
    if not branch.ends:
        last = [use.path for use in here.uses or () if use.path in branch.inside][-1]
        raise ValueError(
            f"the branch of {last!r} is not proportional to its last weight, as behind a norm without a scale or a "
            "nonlinearity, or is used for something else too: multiply the branch by (depth / base_depth)^-α in the "
            "model, and leave depth= out"
        )


def stretched(size: Any, parameter: Parameter) -> Any:
    """Return the sizes of the layers of a stack from those of a stack that is as high as at the base depth."""
    for axis in parameter.axes.stack:
        layers = [layer % size.shape[axis] for layer in range(parameter.shape[axis])]
        size = size if len(layers) == size.shape[axis] else size[(slice(None),) * axis + (layers,)]
    return size


def place_in_blocks(parameters: Sequence[Parameter], here: Traced, base: Traced, grown: Grown) -> tuple[Parameter, ...]:
    """Return the parameters of a model with their place in its blocks and their counterparts.

    Args:
        parameters: The parameters.
        here: The model at the base width.
        base: The same at the base depth.
        grown: How much deeper it is.
    """
    blocks, base_blocks = find_blocks(here, base), find_blocks(base, here)
    origin = counterparts(here.shapes, base.shapes, blocks.inside, base_blocks.inside)
    placed = [replace(p, origin=origin[p.path]) for p in parameters]
    return tuple(
        replace(p, deepens=grown.deepens, ends_branch=p.path in blocks.ends) if p.path in blocks.inside else p
        for p in placed
    )


def grow_factors(
    factors: Mapping[str, Factors],
    parameters: Sequence[Parameter],
    grown: Grown,
    family: Family,
    *,
    coupled: bool = False,
    multipliers: bool = False,
) -> dict[str, Factors]:
    """Return the factors of all axes together.

    Args:
        factors: The factors of width.
        parameters: The parameters, with their place in blocks.
        grown: How much else has grown.
        family: The optimizer family.
        coupled: Whether weight decay follows the learning rate.
        multipliers: Whether to keep the multipliers of branches, instead of storing parameters as they act.
    """
    found = dict(factors)
    inside = [parameter for parameter in parameters if parameter.deepens != 1]
    if not inside:
        return with_everywhere(found, grown.everywhere)
    exponents = depth_exponents(grown.depth_rule, family)
    for parameter in inside:
        m, before = float(parameter.deepens), factors[parameter.path]
        own = exponents.vector_rate if parameter.is_vector else exponents.matrix_rate
        after = replace(
            before,
            init=before.init * m ** -float(exponents.init),
            learning_rate=before.learning_rate * m ** -float(own),
            epsilon=before.epsilon * m ** -float(exponents.epsilon),
        )
        if parameter.ends_branch:
            after = replace(after, multiplier=after.multiplier * m ** -float(exponents.branch))
            if not (multipliers and parameter.linear):
                after = after.moved(parameter.deepens, -exponents.branch, family_of(parameter, family))
        # What a step removes is relative, so that folding a multiplier does not change it.
        decay = before.decay * (m ** -float(own) if coupled else 1.0)
        found[parameter.path] = replace(after, decay=decay)
    return with_everywhere(found, grown.everywhere)
