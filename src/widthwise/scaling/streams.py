"""Residual streams: what is added to what, and which parameters act in between.

A block computes x + f(x). In a trace this is a sum of which one side, the *branch*, depends on the other, the *stream*,
through parameters. A branch is linear in the parameters that its output is proportional to, its last weight and bias,
so these can take a multiplier of the branch.

Every array has a root, the place where it was made. Moving elements, masks, and a ReLU leave the root of a stream as it
is, and so does adding a branch. Everything else makes a new one. Blocks of a pre-norm model therefore share one root,
while a norm behind each addition gives every block its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from widthwise.scaling.proportions import MOVES, SAME, linear_in

if TYPE_CHECKING:
    from widthwise.scaling.found import Value
    from widthwise.scaling.operations import Operation

Root: TypeAlias = tuple[int, ...]
Paths: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class Flow:
    """Where an array comes from.

    Attributes:
        root: Where it was made; None for parameters and constants.
        depends: The roots of arrays that it depends on, of those that are read more than once. What was added to a
            stream does not count.
        acted: The parameters that it depends on.
        direct: Those of them that it does not owe to what was added to a stream.
        sums: The number of branches that were added to it since it was made.
    """

    root: Root | None = None
    depends: frozenset[Root] = frozenset()
    acted: Paths = frozenset()
    direct: Paths = frozenset()
    sums: int = 0

    def shared(self) -> "Flow":
        """Return the same for an array that is read more than once."""
        return self if self.root is None else replace(self, depends=self.depends | {self.root})

    def joined(self, other: "Flow") -> "Flow":
        """Return the same for an array that is either of two."""
        root = self.root if self.root == other.root else None
        return Flow(
            root,
            self.depends | other.depends,
            self.acted | other.acted,
            self.direct | other.direct,
            max(self.sums, other.sums),
        )


NO_FLOW = Flow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """What is added to a stream.

    Attributes:
        stream: The root of the stream.
        before: The number of branches that were added to it before.
        ends: The parameters whose common factor is a factor of the branch: its last weight and bias. Empty if there
            are none, or if they are used for something else too.
        inside: The parameters that act in the branch, also through streams inside of it. Those that its stream depended
            on when it was made do not count.
        others: Parameters that act in the branch and before it too, of those that enter products.
        last: A parameter of the last product in the branch; None if it has no product.
        products: The places of products with parameters in the branch.
        alone: Whether it is a parameter by itself, such as a bias.
        times: How often it is added: the number of iterations of all loops that it is in and that carry the stream.
    """

    stream: Root
    before: int
    ends: Paths
    inside: Paths
    products: frozenset[Root]
    others: Paths = frozenset()
    last: str | None = None
    alone: bool = False
    times: int = 1

    @property
    def name(self) -> str:
        """A parameter to call the branch by."""
        return min(self.ends or self.inside or self.others)


@dataclass(frozen=True, slots=True)
class Stream:
    """An array to which branches are added.

    Attributes:
        depends: The roots of arrays that it was made from.
        inside: The parameters in its branches.
        last: Where the last branch was added. Streams that were made after that are inside of the next one.
    """

    depends: frozenset[Root] = frozenset()
    inside: Paths = frozenset()
    last: Root = ()

    def with_more(self, inside: Paths, *, last: Root) -> "Stream":
        """Return the stream with another branch."""
        return replace(self, inside=self.inside | inside, last=last)


CARRIED = ""
"""Stands for the parameters that a loop's state depends on, in the loop."""

_MASKS = ("mul", "select_n")
_SUMS = ("add", "add_any", "sub")


def flow_of(operation: "Operation") -> Flow:
    """Return where the results of an operation come from. Branches are noted."""
    given = operation.given
    root = _kept_root(operation) if any(value.dynamic for value in given) else None
    sums = max((value.flow.sums for value in given if value.flow.root == root), default=0)
    added = operation.found.branches.get(operation.key) if root is not None else None
    kept = given if added is None or added.alone else [value for value in given if value.flow.root == root]
    return Flow(
        operation.key if root is None else root,
        depends=_union(value.flow.depends for value in kept),
        acted=_union(value.flow.acted for value in given),
        direct=_union(value.flow.direct for value in kept),
        sums=0 if root is None else sums + (added is not None),
    )


def _kept_root(operation: "Operation") -> Root | None:
    """Return the root of the stream that an operation leaves as it is; None if it makes something new."""
    name, given = operation.name, operation.given
    if name in MOVES or name in SAME or name == "relu":
        return given[0].flow.root
    if name in _SUMS and len(given) == 2:
        return _sum(operation)
    acted = [value for value in given if value.flow.acted]
    if len(acted) != 1 or not acted[0].dynamic:
        return None
    masks = [value for value in given if value.dynamic and value is not acted[0]]
    kept = (name in _MASKS and masks) or (name == "max" and not masks)
    return acted[0].flow.root if kept else None


def _sum(operation: "Operation") -> Root | None:
    first, second = operation.given
    if first.flow.root == second.flow.root:
        return first.flow.root
    for stream, branch in ((first, second), (second, first)):
        if not stream.dynamic or stream.flow.root is None:
            continue
        if not branch.dynamic or stream.flow.root in branch.flow.depends:
            return stream.flow.root if _note(operation, stream, branch) else None
    return None


def _note(operation: "Operation", stream: "Value", branch: "Value") -> bool:
    """Note a branch; return whether it is one, with parameters in it."""
    root, streams = stream.flow.root, operation.found.streams
    assert root is not None
    before = streams.get(root, Stream(stream.flow.depends))
    inner = (streams[each] for each in branch.flow.depends if each in streams and each > before.last)
    inside = branch.flow.direct - stream.flow.direct | _union(each.inside for each in inner if root in each.depends)
    products = branch.sources - stream.sources
    if not inside and not products:
        return False
    streams[root] = before.with_more(inside, last=operation.key)
    ends = branch.proportional if branch.dynamic else linear_in(branch)
    operation.found.branches[operation.key] = Branch(
        stream=root,
        before=stream.flow.sums,
        ends=frozenset() if ends & operation.found.spent else ends,
        inside=inside,
        products=products,
        alone=not branch.dynamic,
    )
    return True


def _union(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    """Return the union, without a copy where one of the sets is all there is."""
    found: frozenset[Any] = frozenset()
    for one in sets:
        if one and one is not found:
            found = found | one if found else one
    return found
