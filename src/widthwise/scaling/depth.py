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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from widthwise.scaling.factors import Factors
from widthwise.scaling.grown import Grown, with_everywhere
from widthwise.scaling.lists import Growing, List, counterparts, kind_of
from widthwise.scaling.orthogonal import family_of
from widthwise.scaling.parameters import Parameter, Traced
from widthwise.scaling.streams import Branch, Paths, Root
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
    growing = Growing.of(here.shapes, base.shapes)
    shared, repeated = _shared(here, base) - growing.stacks, _repeated(here, base) - growing.stacks

    def own(branch: Branch) -> Paths:
        return frozenset(path for path in branch.inside - shared if growing.holds(path))

    candidates = [branch for branch in here.branches if not branch.alone and own(branch)]
    streams = _growing_streams(candidates, base.branches, growing, shared)
    found = [branch for branch in candidates if branch.stream in streams]
    _refuse_other_streams(candidates, found, base.branches, growing)
    found += [each for each in here.branches if each.name in repeated and not each.alone and each not in found]
    if not found:
        raise _no_block(here, base, growing)
    inside = frozenset[str]().union(*map(own, found))
    biases = _biases(here.branches, base.branches, growing, inside)
    found += [branch for branch in biases if branch.stream in streams and own(branch)]
    inside = frozenset[str]().union(*map(own, found))
    for branch in found:
        _refuse_unfoldable(branch, here, inside, growing)
    ends = frozenset(path for branch in found for path in branch.ends)
    # An expert that no example reached is in its block all the same.
    unused = {path for path in here.shapes.keys() - {use.path for use in here.uses} if growing.holds(path)}
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


def _repeated(here: Traced, base: Traced) -> Paths:
    """Return the names of branches that are added more often in the deeper model: those of shared weights."""
    counts, others = Counter[str](), Counter[str]()
    for count, traced in ((counts, here), (others, base)):
        for branch in traced.branches:
            count[branch.name] += branch.times
    return frozenset(name for name in counts.keys() & others.keys() if counts[name] != others[name])


def _lengths(branches: Iterable[Branch], growing: Growing, shared: Paths) -> dict[tuple[List | str, Root], int]:
    """Return how many items of each list, or layers of each stack, are added to each stream.

    A branch around several items is one.
    """
    items: dict[tuple[List | str, Root], set[int]] = {}
    layers: Counter[tuple[List | str, Root]] = Counter()
    for branch in branches:
        stacks = branch.inside & growing.stacks
        layers.update({(each, branch.stream): branch.times for each in stacks})
        numbers: dict[List, int] = {}
        for each, number in (place for path in branch.inside - stacks - shared for place in growing.places(path)):
            numbers[each] = min(number, numbers.get(each, number))
        for each, first in numbers.items():
            items.setdefault((each, branch.stream), set()).add(first)
    return {**{place: len(numbers) for place, numbers in items.items()}, **layers}


def _growing_streams(
    candidates: Sequence[Branch], base: Iterable[Branch], growing: Growing, shared: Paths
) -> set[Root]:
    """Return the streams to which more items of a list, or layers of a stack, are added than at the other depth.

    Inside of a branch there may be streams of its own, such as the state of a recurrence, and they do not get longer.
    """
    before = [branch for branch in base if not branch.alone]
    lengths, others = (_lengths(some, growing, shared) for some in (candidates, before))
    named: dict[tuple[str, List | str], set[int]] = {}
    for branch in before:
        for (each, stream), length in others.items():
            if stream == branch.stream:
                for name in (branch.name, growing.starred(branch.name)):
                    named.setdefault((name, each), set()).add(length)
    of_stream: dict[Root, dict[List | str, int]] = {}
    for (each, stream), length in lengths.items():
        of_stream.setdefault(stream, {})[each] = length
    return {
        branch.stream
        for branch in candidates
        for each, length in of_stream[branch.stream].items()
        if length not in (named.get((branch.name, each)) or named.get((growing.starred(branch.name), each), ()))
    }


def _biases(branches: Iterable[Branch], base: Iterable[Branch], growing: Growing, inside: Paths) -> Iterator[Branch]:
    """Yield what blocks may add to their stream by itself. That of the embedding is added first, and by no block."""
    alone = [branch for branch in branches if branch.alone]
    counts, others = (Counter(growing.starred(each.name) for each in some if each.alone) for some in (alone, base))
    for branch in alone:
        name = growing.starred(branch.name)
        in_block = branch.before or growing.beside(branch.name, inside)
        if not growing.stacks.isdisjoint(branch.inside) or (in_block and counts[name] != others[name]):
            yield branch


def _refuse_other_streams(
    candidates: Sequence[Branch], found: Sequence[Branch], base: Iterable[Branch], growing: Growing
) -> None:
    """Raise if the deeper model has more streams, instead of longer ones."""
    inside = frozenset[str]().union(*(branch.inside for branch in found))
    streams, others = (
        Counter(name for name, _ in {(growing.starred(each.name), each.stream) for each in some if not each.alone})
        for some in (candidates, base)
    )
    for branch in candidates:
        name = growing.starred(branch.name)
        more = streams[name] != others[name] or not growing.stacks.isdisjoint(branch.inside)
        if branch not in found and more and not {path for path in branch.inside if growing.holds(path)} <= inside:
            raise ValueError(
                f"the branch of {branch.name!r} is added to a stream that the next block does not add to, since it is "
                "normalized, multiplied or joined with something in between (post-norm): depth rules are for blocks "
                "that add to one stream, as in pre-norm models; leave depth= out, or move the norm into the branch"
            )


def _no_block(here: Traced, base: Traced, growing: Growing) -> ValueError:
    if not growing and (different := here.shapes.keys() ^ base.shapes.keys()):
        return ValueError(
            f"only one of the two depths has {min(different)!r}, and no numbered list of layers grows: expected blocks "
            "in a list, or names that end in a number"
        )
    if not growing:
        return ValueError("no parameter changes with the depth: expected build(width, depth=...) to use its argument")
    path = next(path for path in here.shapes if growing.holds(path))
    return ValueError(
        f"{path!r} is in no residual branch, though the model has more of its kind when it is deeper: depth rules are "
        "for blocks that compute x + f(x); leave depth= out"
    )


def _refuse_unfoldable(branch: Branch, here: Traced, inside: Paths, growing: Growing) -> None:
    """Raise unless the multiplier of a branch can go into its last weight and bias."""
    shared = [path for path in branch.ends if path not in inside]
    if not branch.ends and branch.last not in {None, *inside}:
        shared = [str(branch.last)]
    if shared:
        raise ValueError(
            f"{min(shared)!r} is shared by several blocks, or by blocks and the rest of the model, so it cannot take "
            "the multiplier of one branch: give each block its own, or leave depth= out"
        )
    indexed = branch.inside & growing.stacks
    if not branch.ends and indexed and branch.times == 1:
        raise ValueError(
            f"{min(indexed)!r} is a stack of which every block takes its own layer by index, which cannot be followed: "
            "expected a scan over it, a list of blocks, or no depth="
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
