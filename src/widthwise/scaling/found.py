"""What is known of the arrays of a trace, and what a walk through it finds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from widthwise.scaling.axes import Axes
from widthwise.scaling.streams import NO_FLOW, Branch, Flow, Root, Stream
from widthwise.scaling.uses import Kind, Meeting, Use
from widthwise.scaling.views import View

Key: TypeAlias = tuple[int, ...]
"""A place in a trace: the index of an operation, and those of the operations it is nested in."""


@dataclass(frozen=True, slots=True)
class Value:
    """What is known about an array.

    Attributes:
        views: The parameters that it is made of. If it also depends on the examples, these are looked-up rows.
        dynamic: Whether it depends on the examples.
        multiplied: Whether the views were multiplied by an activation: a product, if a sum follows.
        sources: The products with parameters that it depends on.
        gains: Vectors whose common factor is a factor of this array.
        proportional: Parameters whose common factor is a factor of this array, if it depends on the examples.
        flow: Where it comes from, to find residual branches.
    """

    views: tuple[View, ...] = ()
    dynamic: bool = False
    multiplied: bool = False
    sources: frozenset[Key] = frozenset()
    gains: frozenset[str] = frozenset()
    proportional: frozenset[str] = frozenset()
    flow: Flow = NO_FLOW

    @classmethod
    def of_parameter(cls, path: str, shape: Sequence[int]) -> "Value":
        """Return what is known of a parameter."""
        return cls((View.of(path, shape),), flow=Flow(acted=frozenset({path}), direct=frozenset({path})))

    @property
    def is_weight(self) -> bool:
        """Whether it is made of parameters alone."""
        return bool(self.views) and not self.dynamic

    def moved(self, move: Callable[[View], View | None]) -> "Value":
        """Return the value of an array whose elements were moved."""
        return replace(self, views=tuple(view for old in self.views if (view := move(old)) is not None))

    def shared(self) -> "Value":
        """Return the same value for an array that is read more than once: what scales it scales something else too."""
        return replace(self, gains=frozenset(), flow=self.flow.shared())

    def resized(self, shape: Sequence[int]) -> "Value":
        """Return the same value for a part of its array."""
        return self.moved(lambda view: view.resized(shape))

    def joined(self, other: "Value") -> "Value":
        """Return what is known of an array that is either of the two."""
        return Value(
            views=self.views if self.views == other.views else (),
            dynamic=self.dynamic or other.dynamic,
            multiplied=self.multiplied and other.multiplied,
            sources=self.sources | other.sources,
            gains=self.gains & other.gains,
            proportional=self.proportional if self.proportional == other.proportional else frozenset(),
            flow=self.flow.joined(other.flow),
        )


@dataclass(slots=True)
class Found:
    """What a walk finds.

    Attributes:
        uses: The uses of parameters by place, with the name of the operation.
        reached: The products whose result reaches another product.
        unseen: Parameters that enter an operation that the walk cannot look into, with its name.
        meetings: The products of two activations by place.
        spent: Parameters that something else than such products depends on, so that a factor on them has other effects.
        branches: The residual branches by place.
        streams: What they are added to, by root.
        loops: The streams that a loop carries and leaves as they are, with its number of iterations, and the streams
            outside of it that they continue.
    """

    uses: dict[tuple[Key, str], Use] = field(default_factory=dict[tuple[Key, str], Use])
    reached: set[Key] = field(default_factory=set[Key])
    unseen: dict[str, str] = field(default_factory=dict[str, str])
    meetings: dict[Key, Meeting] = field(default_factory=dict[Key, Meeting])
    spent: set[str] = field(default_factory=set[str])
    branches: dict[Key, Branch] = field(default_factory=dict[Key, Branch])
    streams: dict[Root, Stream] = field(default_factory=dict[Root, Stream])
    loops: dict[Root, tuple[int, Root | None]] = field(default_factory=dict[Root, tuple[int, Root | None]])

    def listed(self) -> tuple[Use, ...]:
        """Return the uses in the order of the forward pass."""
        return tuple(replace(use, inner=key in self.reached) for (key, _), use in self.uses.items())

    def listed_branches(self) -> tuple[Branch, ...]:
        """Return the residual branches in the order of the forward pass."""
        paths: dict[Key, set[str]] = {}
        for key, path in self.uses:
            paths.setdefault(key, set()).add(path)
        return tuple(
            replace(
                self._outside_of_loops(branch),
                others=frozenset[str]().union(*(paths.get(key, ()) for key in branch.products)) - branch.inside,
                last=min(paths.get(max(branch.products), ()), default=None) if branch.products else None,
            )
            for branch in self.branches.values()
        )

    def _outside_of_loops(self, branch: Branch) -> Branch:
        """Return a branch with the stream that it is added to outside of all loops, and how often in all."""
        stream, times = branch.stream, 1
        while (loop := self.loops.get(stream)) is not None and loop[1] is not None:
            times, stream = times * loop[0], loop[1]
        return replace(branch, stream=stream, times=times)

    def spend(self, values: Sequence[Value]) -> list[Value]:
        """Note that arrays are used in a way that is not followed any further; return what is known of them then."""
        self.spent.update(*(value.proportional for value in values))
        return [replace(value, proportional=frozenset()) for value in values]


def note(
    found: Found,
    key: Key,
    kind: Kind,
    views: Sequence[View],
    contracted: Sequence[int] = (),
    batched: Sequence[int] = (),
    gains: frozenset[str] = frozenset(),
) -> None:
    """Note a use of parameters."""
    for view in views:
        inputs, stack = view.axes(contracted), view.stack | view.axes(batched)
        free = [at for at in range(len(view.parts)) if at not in (*contracted, *batched)]
        fan_in, fan_out = view.size(contracted), view.size(free)
        meets_parameter = kind == "product" and not inputs  # as a factor of a product of parameters
        if meets_parameter:
            inputs, fan_in = view.passed, view.passed_size
        else:
            fan_out *= view.passed_size
        stack -= inputs | view.axes(free)
        found.uses[key, view.path] = Use(
            path=view.path,
            kind=kind,
            axes=Axes(
                inputs=tuple(sorted(inputs)),
                outputs=tuple(axis for axis in range(len(view.whole)) if axis not in inputs | stack),
                stack=tuple(sorted(stack)),
            ),
            fan_in=1 if kind == "lookup" else fan_in,
            fan_out=fan_out,
            linear=view.linear,
            meets_parameter=meets_parameter,
            gains=tuple(sorted(gains)),
        )
