# JAX leaves some of its own types open; everything else here is checked strictly.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""The roles of the parameters, found by comparing the same model at two widths.

If both sides of a leaf grow, it is hidden. If only its outputs grow, it is an embedding; if only its inputs grow, a
readout. If nothing grows, it is unscaled. That is the theory's definition (docs/theory.md), so roles come from shapes,
never from names. Names only determine which axes are inputs and outputs (`axes`). Rules by path take precedence. A role
that cannot be determined is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import Any, TypeAlias

import jax

from widthwise.parameterize.axes import Convention, no_convention
from widthwise.scaling import NO_RULES, UNSCALED, Axes, Rule, Rules, match_rules
from widthwise.theory import Role
from widthwise.trace.paths import PyTree, named_leaves

LeafRole: TypeAlias = Role | None
"""A role, or None for an unscaled leaf."""


_NO_RULE = Rule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One parameter: its name, shape and role.

    Comparisons ignore `linear` and `init`, so that prescriptions with equal layouts share compiled programs.
    """

    path: str
    shape: tuple[int, ...]
    role: LeafRole
    axes: Axes
    linear: bool = field(default=True, compare=False)
    init: float = field(default=1.0, compare=False)

    @property
    def fan_in(self) -> int:
        """The number of terms that are summed over."""
        return prod(self.shape[axis] for axis in self.axes.inputs)

    def n(self, width: int) -> int:
        """Return the n whose powers scale this leaf: the fan-in of a hidden or readout leaf, else the model's width."""
        return self.fan_in if self.role in (Role.HIDDEN, Role.READOUT) else width


@dataclass(frozen=True, slots=True)
class Layout:
    """The leaves of a parameter tree, in the order in which JAX flattens it, and its structure."""

    leaves: tuple[Leaf, ...]
    structure: Any

    def tree(self, values: list[Any]) -> PyTree:
        """Return a tree with the structure of the parameters and these values as leaves."""
        return jax.tree.unflatten(self.structure, values)

    def of(self, params: PyTree) -> list[Any]:
        """Return the leaves of a tree with this structure, or of the same model at another width."""
        return _same_leaves(params, [leaf.path for leaf in self.leaves], "the parameter tree")

    def resized(self, params: PyTree) -> "Layout":
        """Return the layout of the same model at another width."""
        resized = zip(self.leaves, self.of(params), strict=True)
        return replace(self, leaves=tuple(replace(leaf, shape=tuple(x.shape)) for leaf, x in resized))


def find_roles(
    params: PyTree,
    *,
    other: PyTree | None = None,
    convention: Convention = no_convention,
    rules: Rules = NO_RULES,
    headless: bool = False,
) -> Layout:
    """Find the role of every leaf of a parameter tree.

    Args:
        params: The parameters, or only their shapes (`jax.eval_shape`).
        other: The same model's parameters, or their shapes, at any other width. Not needed if rules define every
            role.
        convention: Which axes are inputs and which are outputs: `axes.flax`, `axes.equinox`, or your own.
        rules: Roles, axes and constants of particular leaves, by path. Rules take precedence.
        headless: Whether the model has no readout on purpose.

    Returns:
        The layout. The roles hold at every width; `Layout.resized` returns the layout at another width.

    >>> import jax.numpy as jnp
    >>> from widthwise.parameterize.axes import flax
    >>> def model(n): return {"in": {"kernel": jnp.ones((3, n))}, "out": {"kernel": jnp.ones((n, 2))}}
    >>> {leaf.path: leaf.role.value for leaf in find_roles(model(8), other=model(4), convention=flax).leaves}
    {'in/kernel': 'embedding', 'out/kernel': 'readout'}
    """
    named = named_leaves(params)
    _refuse_shared(named)
    shapes = {path: tuple(leaf.shape) for path, leaf in named.items()}
    others = shapes
    if other is not None:
        same = _same_leaves(other, list(shapes), "the model at the other width")
        others = {path: tuple(leaf.shape) for path, leaf in zip(shapes, same, strict=True)}
    rule_of = dict(match_rules(list(shapes), rules))
    known = convention(params)

    inferred = [path for path in shapes if rule_of.get(path, _NO_RULE).role is None]
    if inferred and other is None:
        raise ValueError(f"{inferred[0]!r} has no role: give `other`, the model at another width, or a rule")
    _refuse_different_growth({path: (others[path], shapes[path]) for path in inferred})
    if inferred and all(shapes[path] == others[path] for path in inferred):
        raise ValueError("`other` has the same shapes: expected the model at another width")

    leaves = [
        _leaf(path, shape, others[path], rule_of.get(path, _NO_RULE), known.get(path)) for path, shape in shapes.items()
    ]
    _refuse_several_readouts([leaf.path for leaf in leaves if leaf.role is Role.READOUT and leaf.path in inferred])
    if inferred and not headless:  # rules for all leaves know better
        _refuse_without_readout(leaves)
    return Layout(tuple(leaves), jax.tree.structure(params))


def _leaf(path: str, shape: tuple[int, ...], other: tuple[int, ...], rule: Rule, known: Axes | None) -> Leaf:
    grown = [axis for axis, (x, y) in enumerate(zip(shape, other, strict=True)) if x != y]
    axes = rule.axes or known
    if axes is None:
        if len(shape) > 1 and (rule.role in (Role.HIDDEN, Role.READOUT) or (rule.role is None and grown)):
            raise ValueError(
                f"{path!r} of shape {shape}: cannot tell which axes are inputs and which are outputs; pass a "
                f"convention, or a rule such as {{{path!r}: Rule(axes={_suggested(len(shape))})}}"
            )
        axes = Axes(outputs=tuple(range(len(shape))))
    axes.check(path, shape)
    role = rule.role or _inferred(path, axes, grown, shape, other)
    if rule.role in (Role.HIDDEN, Role.READOUT) and grown and not set(grown) & set(axes.inputs):
        raise ValueError(f"{path!r} is to be {role}, but its inputs do not grow, from {other} to {shape}")
    if role in (Role.HIDDEN, Role.READOUT) and not axes.inputs:
        raise ValueError(f"{path!r} is to be {role} but has no input axes: give them in its rule's `axes`")
    leaf_role = None if role in (UNSCALED, None) else Role(role)
    return Leaf(path=path, shape=shape, role=leaf_role, axes=axes, linear=rule.linear, init=rule.init)


def _suggested(axes: int) -> str:
    stack = f"stack=({', '.join(map(str, range(axes - 2)))},), " if axes > 2 else ""
    return f"Axes({stack}inputs=({axes - 2},), outputs=({axes - 1},))"


def _inferred(path: str, axes: Axes, grown: list[int], shape: tuple[int, ...], other: tuple[int, ...]) -> LeafRole:
    if any(axis in axes.stack for axis in grown):
        raise ValueError(f"{path!r} has {shape} at one width and {other} at the other: its number of layers differs")
    sums, produces = (any(axis in side for axis in grown) for side in (axes.inputs, axes.outputs))
    if sums and produces:
        return Role.HIDDEN
    if sums:
        return Role.READOUT
    return Role.EMBEDDING if produces else None


def _refuse_different_growth(shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    """Raise if parts of the model grow by different factors: it then has no single width."""
    first: tuple[str, Fraction] | None = None
    for path, (before, after) in shapes.items():
        if len(before) != len(after):
            raise ValueError(
                f"{path!r} has shape {after} at one width and {before} at the other: expected as many axes"
            )
        for x, y in zip(before, after, strict=True):
            if x == y:
                continue
            factor = Fraction(y, x)
            if first is None:
                first = (path, factor)
            elif factor != first[1]:
                raise ValueError(
                    f"{path!r} goes from {before} to {after}, by {factor}, but {first[0]!r} by {first[1]}: "
                    "expected every width of the model to grow by the same factor"
                )


def _same_leaves(tree: PyTree, paths: Sequence[str], which: str) -> list[Any]:
    """Return the leaves of a tree, whose names must be `paths`.

    This compares names, not structures: frameworks store sizes in the structure, and these differ between widths.
    """
    named = named_leaves(tree)
    if list(named) != list(paths):
        missing = [f"lacks {path!r}" for path in paths if path not in named]
        extra = [f"has {path!r} in addition" for path in named if path not in paths]
        difference = ", ".join((missing + extra)[:3]) or "has the same leaves in another order"
        raise ValueError(f"{which} {difference}: expected the same tree at every width")
    return list(named.values())


def _refuse_shared(named: Mapping[str, Any]) -> None:
    """Raise if one array is used twice: as embedding and readout it would need two multipliers."""
    seen: dict[int, str] = {}
    for path, leaf in named.items():
        if isinstance(leaf, jax.ShapeDtypeStruct) or len(leaf.shape) < 2:
            continue  # one array of zeros may serve as several biases
        if id(leaf) in seen:
            raise ValueError(
                f"{path!r} and {seen[id(leaf)]!r} are the same array: tied parameters cannot have two roles; "
                "give the model two parameters"
            )
        seen[id(leaf)] = path


def _refuse_several_readouts(inferred: Sequence[str]) -> None:
    """Raise if several leaves look like readouts, as keys and values with a fixed number of heads do."""
    if len(inferred) > 1:
        names = ", ".join(map(repr, inferred))
        raise ValueError(
            f"{names} all have inputs that grow and outputs that do not, like a readout: mark the readout with "
            "Rule(role=Role.READOUT) and the others, such as keys and values with a fixed number of heads, with "
            "Rule(role=Role.HIDDEN)"
        )


def _refuse_without_readout(leaves: list[Leaf]) -> None:
    if any(leaf.role is Role.READOUT for leaf in leaves):
        return
    lookups = [repr(leaf.path) for leaf in leaves if leaf.role is Role.EMBEDDING and leaf.axes.inputs]
    tied = f"if {' or '.join(lookups)} is tied to it, give the model a separate readout, since embedding and readout "
    raise ValueError(
        "no leaf is a readout: "
        + (f"{tied}scale differently, or use ww.plan, which can fold it; " if lookups else "")
        + "if the model has none, pass headless=True"
    )
