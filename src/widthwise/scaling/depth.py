"""What changes for parameters when a model is deeper than at the base depth.

Blocks are found by comparing the traces of a model at two depths: a branch is one of the L if its stream has more of
its kind in the deeper model. Kinds are told apart by the path without numbers. A branch's multiplier goes into the
parameters that end it, so the model itself does not change. Other parameters of blocks get the rates of the rule alone.

A parameter gets its initial size from its counterpart at the base depth. In blocks, that is the same parameter of
another block: of block 7 mod n if the base model has n blocks, since blocks of two kinds usually alternate. Blocks are
counted, whatever their names: those of `[embedding, *blocks, head]` begin with 1.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from widthwise.scaling.factors import Factors
from widthwise.scaling.grown import Grown, with_everywhere
from widthwise.scaling.orthogonal import family_of
from widthwise.scaling.parameters import Parameter, Shape, Traced
from widthwise.scaling.streams import Branch, Paths
from widthwise.theory import Family, depth_exponents

_SEPARATOR = re.compile(r"[/.]|(?<=\d)_(?=\D)")
_NUMBERED = re.compile(r"(.*?)_?(\d*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The parameters of the residual blocks whose number is the depth.

    Attributes:
        inside: Those that act in a branch.
        ends: Those of them that end a branch, which takes their common factor as its own.
    """

    inside: Paths = frozenset()
    ends: Paths = frozenset()


def find_blocks(here: Traced, base: Traced) -> Blocks:
    """Find the blocks of a model by comparing it with the same model at another depth.

    Raise if branches are not added to one stream, or have no last weight that could take a multiplier.

    Args:
        here: The model.
        base: The same model at another depth, and at the same width.
    """
    if here.uses is None:
        raise ValueError("depth= needs the forward pass, and it was not traced: pass an example")
    lengths, others = _longest(here.branches), _longest(base.branches)
    found = [branch for branch in here.branches if lengths[_kind(branch)] != others[_kind(branch)]]
    grown = _grown(here.shapes, base.shapes)
    if not found or all(branch.alone for branch in found):
        raise _no_stream(here, grown)
    for branch in found:
        _refuse_unfoldable(branch, here, grown)
    inside = frozenset(path for branch in found for path in branch.inside if kind_of(path) in grown)
    ends = frozenset(path for branch in found for path in branch.ends)
    # An expert that no example reached is in its block all the same.
    unused = here.shapes.keys() - {use.path for use in here.uses}
    return Blocks(inside=inside | _of_kinds(inside, unused), ends=ends | _of_kinds(ends, unused))


def _of_kinds(known: Paths, paths: Collection[str]) -> Paths:
    """Return the paths that are those of known ones up to the numbers of layers."""
    kinds = {kind_of(path) for path in known}
    return frozenset(path for path in paths if kind_of(path) in kinds)


def _kind(branch: Branch) -> tuple[str, bool]:
    return kind_of(branch.name), branch.alone


def _longest(branches: Sequence[Branch]) -> Counter[tuple[str, bool]]:
    """Return how many branches of each kind are added to one stream, at most."""
    found: Counter[tuple[str, bool]] = Counter()
    counts: Counter[tuple[tuple[str, bool], tuple[int, ...]]] = Counter()
    for kind, stream, times, _ in {(_kind(each), each.stream, each.times, each.before) for each in branches}:
        counts[kind, stream] += times
    for (kind, _), count in counts.items():
        found[kind] = max(found[kind], count)
    return found


def _grown(here: Mapping[str, Shape], base: Mapping[str, Shape]) -> set[str]:
    """Return the kinds of parameters whose number changes with the depth, or the height of whose stack does."""
    counts, others = Counter(map(kind_of, here)), Counter(map(kind_of, base))
    stacked = {kind_of(path) for path, shape in here.items() if path in base and shape != base[path]}
    return stacked | {kind for kind, count in counts.items() if count != others[kind]}


def _no_stream(here: Traced, grown: set[str]) -> ValueError:
    if not grown:
        return ValueError("no parameter changes with the depth: expected build(width, depth=...) to use its argument")
    for branch in here.branches:
        if kind_of(branch.name) in grown and not branch.alone:
            return ValueError(
                f"the branch of {branch.name!r} is added to a stream that the next block does not add to, since it is "
                "normalized or multiplied in between (post-norm): depth rules are for blocks that add to one stream, "
                "as in pre-norm models; leave depth= out, or move the norm into the branch"
            )
    path = next(path for path in here.shapes if kind_of(path) in grown)
    return ValueError(
        f"{path!r} is in no residual branch, though the model has more of its kind when it is deeper: depth rules are "
        "for blocks that compute x + f(x); leave depth= out"
    )


def _refuse_unfoldable(branch: Branch, here: Traced, grown: set[str]) -> None:
    """Raise unless the multiplier of a branch can go into its last weight and bias."""
    shared = [path for path in branch.ends if path not in branch.inside or kind_of(path) not in grown]
    if not branch.ends and branch.last in branch.others:
        shared = [branch.last]
    if shared:
        raise _shared(min(shared))
    if not branch.ends:
        last = [use.path for use in here.uses or () if use.path in branch.inside][-1]
        raise ValueError(
            f"the branch of {last!r} is not proportional to its last weight, as behind a norm without a scale or a "
            "nonlinearity, or is used for something else too: multiply the branch by (depth / base_depth)^-α in the "
            "model, and leave depth= out"
        )


def _shared(path: str) -> ValueError:
    return ValueError(
        f"{path!r} is shared by several blocks, or by blocks and the rest of the model, so it cannot take the "
        "multiplier of one branch: give each block its own, or leave depth= out"
    )


def kind_of(path: str) -> str:
    """Return a path without the numbers at the end of its names.

    >>> kind_of("block3.up"), kind_of("h3_up"), kind_of("Dense_3/kernel"), kind_of("linear")
    ('block.up', 'h.up', 'Dense.kernel', 'linear')
    """
    return ".".join(name for name, _ in _names(path))


def counterparts(deep: Collection[str], base: Collection[str], inside: Paths, base_inside: Paths) -> dict[str, str]:
    """Return the parameter of the base model that every parameter of a deeper model is compared with.

    Those that differ in one number, that of the block, are compared in order.

    Args:
        deep: The parameters of the deeper model.
        base: Those of the base model.
        inside: Those of the deeper model's blocks.
        base_inside: Those of the base model's blocks.

    >>> counterparts(["0", "1", "2", "3", "4"], ["0", "1", "2", "3"], frozenset("123"), frozenset("12"))
    {'0': '0', '1': '1', '2': '2', '3': '1', '4': '3'}
    """
    here, there = _alike(deep, inside), _alike(base, base_inside)
    found: dict[str, str] = {}
    for path in deep:
        groups = [(here[key], there[key]) for key in _keys(path, path in inside) if key in there]
        if not groups:
            raise ValueError(
                f"{path!r} has no counterpart at the base depth, whose size it could have: expected a base depth at "
                "which the model has blocks of every kind"
            )
        others, known = next((pair for pair in groups if len(pair[0]) != len(pair[1])), groups[0])
        found[path] = known[others.index(path) % len(known)]
    return found


def _names(path: str) -> list[tuple[str, int]]:
    """Return the names in a path with the numbers at their ends; -1 for a name without one."""
    parts = [_NUMBERED.fullmatch(name) for name in _SEPARATOR.split(path)]
    return [(part[1], int(part[2] or -1)) for part in parts if part is not None]


def _keys(path: str, inside: bool) -> list[tuple[Any, ...]]:
    """Return what a path has in common with those that differ from it in one number, for each of its numbers."""
    names = _names(path)
    return [(inside, kind_of(path), place, *names[:place], *names[place + 1 :]) for place in range(len(names))]


def _alike(paths: Collection[str], inside: Paths) -> dict[tuple[Any, ...], list[str]]:
    """Return the paths that differ in one number, in its order, by what they have in common."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for path in sorted(paths, key=_names):
        for key in _keys(path, path in inside):
            found.setdefault(key, []).append(path)
    return found


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
