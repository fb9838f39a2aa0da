"""Numbered lists of layers, as names of parameters show them: which grow with the depth, and what corresponds to what.

`layers/3/up`, `block3.up` and `Dense_3/kernel` are parameters of the fourth item of a list. Lists are told apart by
what comes before the number, so that every stage of a network has a list of its own. The blocks may share a list with
other layers, as in `[embedding, *blocks, head]`.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from widthwise.scaling.streams import Paths

_Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
List: TypeAlias = tuple[Any, ...]
"""What all names of a list have in common before the number of the item."""

_SEPARATOR = re.compile(r"[/.]|(?<=\d)_(?=\D)")
_WITH_SEPARATORS = re.compile(f"({_SEPARATOR.pattern})")
_NUMBERED = re.compile(r"(.*?)_?(\d*)")


@dataclass(frozen=True, slots=True)
class Growing:
    """What a model has more of when it is deeper.

    Attributes:
        lists: The lists with more items.
        stacks: The stacks of layers that are higher.
    """

    lists: frozenset[List] = frozenset()
    stacks: Paths = frozenset()

    @classmethod
    def of(cls, here: _Shapes, base: _Shapes) -> "Growing":
        """Compare the shapes of the parameters of a model at two depths, and at the same width."""
        items, others = _items(here), _items(base)
        lists = cls(frozenset(each for each in items.keys() & others.keys() if items[each] != others[each]))
        changed = (path for path in here.keys() & base.keys() if here[path] != base[path])
        # In a list of layers of several shapes, the same number may be that of another one.
        return replace(lists, stacks=frozenset(path for path in changed if not lists.places(path)))

    def __bool__(self) -> bool:
        return bool(self.lists or self.stacks)

    def places(self, path: str) -> list[tuple[List, int]]:
        """Return the lists with more items that hold a parameter, with the number of its item."""
        return [(each, number) for each, number in _places(path) if each in self.lists]

    def holds(self, path: str) -> bool:
        """Return whether a parameter belongs to what grows."""
        return path in self.stacks or bool(self.places(path))

    def beside(self, path: str, others: Paths) -> bool:
        """Return whether a parameter has an item of a list in common with one of some others."""
        return not set(self.places(path)).isdisjoint(place for other in others for place in self.places(other))

    def starred(self, path: str) -> str:
        """Return a path with stars for the numbers of items of these lists.

        >>> growing = Growing(frozenset({("block",)}))
        >>> growing.starred("block3.conv1"), growing.starred("block_03")
        ('block*.conv1', 'block_*')
        """
        parts = _WITH_SEPARATORS.split(path)
        for place, (each, number) in enumerate(_places(path)):
            if each in self.lists and number >= 0:
                parts[2 * place] = parts[2 * place].rstrip("0123456789") + "*"
        return "".join(parts)


def kind_of(path: str) -> str:
    """Return a path without the numbers at the end of its names.

    >>> kind_of("block3.up"), kind_of("h3_up"), kind_of("Dense_3/kernel"), kind_of("linear")
    ('block.up', 'h.up', 'Dense.kernel', 'linear')
    """
    return ".".join(name for name, _ in _names(path))


def counterparts(deep: _Shapes, base: _Shapes, inside: Paths, base_inside: Paths) -> dict[str, str]:
    """Return the parameter of the base model that every parameter of a deeper model is compared with.

    Those that differ in one number, that of an item of a list that grows, are compared in order: those of one shape, or
    if the base model has none of that shape, all.

    Args:
        deep: The shapes of the deeper model's parameters.
        base: Those of the base model's, at the same width.
        inside: The parameters of the deeper model's blocks.
        base_inside: Those of the base model's blocks.

    >>> deep, base = (dict.fromkeys(names, (8, 8)) for names in ("01234", "0123"))
    >>> counterparts(deep, base, frozenset("123"), frozenset("12"))
    {'0': '0', '1': '1', '2': '2', '3': '1', '4': '3'}
    """
    growing = Growing.of(deep, base)

    def keys(path: str, about: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return what a path has in common with those that differ from it in one number, for each of its numbers."""
        names = _names(path)
        return [(*about, kind_of(path), place, *names[:place], *names[place + 1 :]) for place in range(len(names))]

    def abouts(path: str, shapes: _Shapes, inside: Paths) -> Iterator[tuple[Any, ...]]:
        if path not in growing.stacks:
            yield path in inside, shapes[path]
        yield path in inside, None

    def alike(shapes: _Shapes, inside: Paths) -> dict[tuple[Any, ...], list[str]]:
        found: dict[tuple[Any, ...], list[str]] = {}
        for path in sorted(shapes, key=_names):
            for about in abouts(path, shapes, inside):
                for key in keys(path, about):
                    found.setdefault(key, []).append(path)
        return found

    here, there = alike(deep, inside), alike(base, base_inside)
    found: dict[str, str] = {}
    for path in deep:
        choices = (
            [
                (each not in growing.lists, here[key], there[key])
                for (each, _), key in zip(_places(path), keys(path, about), strict=True)
                if key in there
            ]
            for about in abouts(path, deep, inside)
        )
        groups = next(filter(None, choices), None)
        if not groups:
            raise ValueError(
                f"{path!r} has no counterpart at the base depth, whose size it could have: expected a base depth at "
                "which the model has blocks of every kind"
            )
        _, those, known = min(groups, key=lambda group: (group[0], len(group[1]) == len(group[2])))
        found[path] = known[those.index(path) % len(known)]
    return found


@functools.cache
def _names(path: str) -> tuple[tuple[str, int], ...]:
    """Return the names in a path with the numbers at their ends; -1 for a name without one."""
    parts = [_NUMBERED.fullmatch(name) for name in _SEPARATOR.split(path)]
    return tuple((part[1], int(part[2] or -1)) for part in parts if part is not None)


def _places(path: str) -> Iterator[tuple[List, int]]:
    """Yield the lists in a path, from the outside in, with the number of the item in each."""
    names = _names(path)
    for place, (name, number) in enumerate(names):
        yield (*names[:place], name), number


def _items(paths: Collection[str]) -> dict[List, set[int]]:
    """Return the numbers of the items of every list."""
    found: dict[List, set[int]] = defaultdict(set)
    for path in paths:
        for each, number in _places(path):
            found[each].add(number)
    return found
