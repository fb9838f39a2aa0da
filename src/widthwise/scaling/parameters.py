"""The roles of parameters and how much they grow, from their shapes and uses at two widths (§2.1).

A parameter whose inputs and outputs both grow is hidden; if only outputs grow, it is an embedding; if only inputs grow,
a readout. Growth is that of each use: the number of terms in its sum, and the number of elements it produces. So the
parts of a model may grow by different factors. Two cases go beyond the theory's network:

- An *inner readout* has a fixed number of outputs that later products use: keys and values with a fixed number of
  heads, a router, a projection to a low rank. Its outputs must neither grow nor shrink, as those of hidden layers.
- A *tied* embedding is the readout too. It is stored as an embedding. Its logits need a factor, which goes into the
  norm in front of it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import prod
from typing import TypeAlias

from widthwise.scaling.attention import Attention, find_queries
from widthwise.scaling.axes import Axes
from widthwise.scaling.found import Found
from widthwise.scaling.rules import NO_RULES, UNSCALED, Rule, Rules, match_rules
from widthwise.scaling.streams import Branch
from widthwise.scaling.uses import Meeting, Use
from widthwise.theory import Role

Shape: TypeAlias = tuple[int, ...]


class Part(StrEnum):
    """The part that a parameter plays in a model: a role of the theory, or one of the cases that go beyond it."""

    EMBEDDING = "embedding"
    HIDDEN = "hidden"
    READOUT = "readout"
    INNER_READOUT = "inner readout"
    TIED = "tied"
    UNSCALED = "unscaled"

    @property
    def role(self) -> Role | None:
        """The role whose exponents apply; None if nothing is scaled."""
        return _ROLES.get(self)


_ROLES = {
    Part.EMBEDDING: Role.EMBEDDING,
    Part.TIED: Role.EMBEDDING,
    Part.HIDDEN: Role.HIDDEN,
    Part.INNER_READOUT: Role.HIDDEN,
    Part.READOUT: Role.READOUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a model, compared with the same parameter at the base width.

    Attributes:
        path: Its name.
        shape: Its shape.
        base_shape: Its shape at the base width.
        part: The part that it plays.
        axes: Its axes.
        fan_in: The number of terms of the sum it enters; 1 if it enters none.
        grows_in: By what factor the fan-in is larger than at the base width.
        grows_out: By what factor its outputs are more than at the base width.
        linear: Whether the model is linear in it.
        gain_of: The tied embedding whose logits this vector scales; None for all other parameters.
        grows_head: By what factor the heads are larger than at the base width, if this makes their queries and takes
            the factor that attention as 1/d needs.
        muon: Whether Muon trains it, in a plan for Muon.
        deepens: By what factor the model has more blocks than at the base depth, if this is inside of blocks.
        ends_branch: Whether it takes the multiplier of a residual branch, which is proportional to it.
        origin: Its counterpart at the base depth, whose initial size it has; None if that has its own name.
    """

    path: str
    shape: Shape
    base_shape: Shape
    part: Part
    axes: Axes
    fan_in: int = 1
    grows_in: Fraction = Fraction(1)
    grows_out: Fraction = Fraction(1)
    linear: bool = True
    gain_of: str | None = None
    grows_head: Fraction = Fraction(1)
    muon: bool = False
    deepens: Fraction = Fraction(1)
    ends_branch: bool = False
    origin: str | None = None

    @property
    def role(self) -> Role | None:
        """The role whose exponents apply; None if nothing is scaled."""
        return self.part.role

    @property
    def is_vector(self) -> bool:
        """Whether it sums over nothing and selects nothing, as norm scales and biases do."""
        return not self.axes.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """The parameters of a model at one width: their shapes and uses.

    Attributes:
        shapes: The shapes by path.
        uses: The uses in the order of the forward pass; None if it was not traced.
        unseen: Parameters that enter an operation that was not understood, with its name.
        meetings: The products of two activations, in the order of the forward pass; None if they are not known.
        spent: Parameters that more than such products depend on.
        branches: The residual branches, in the order of the forward pass.
    """

    shapes: Mapping[str, Shape]
    uses: Sequence[Use] | None = None
    unseen: Mapping[str, str]
    meetings: Sequence[Meeting] | None = None
    spent: Collection[str] = ()
    branches: Sequence[Branch] = ()

    @classmethod
    def of_walk(cls, shapes: Mapping[str, Shape], found: Found) -> "Traced":
        """Return what a walk through a forward pass has found."""
        return cls(
            shapes=shapes,
            uses=found.listed(),
            unseen=found.unseen,
            meetings=tuple(found.meetings.values()),
            spent=frozenset(found.spent),
            branches=found.listed_branches(),
        )

    def of(self, path: str) -> list[Use]:
        """Return the uses of a parameter."""
        return [use for use in self.uses or () if use.path == path]


def find_parameters(
    sizes: Traced,
    base: Traced,
    *,
    rules: Rules = NO_RULES,
    headless: bool = False,
    scaled_logits: bool = False,
    attention: Attention | None = None,
    only_matrices: bool = False,
) -> tuple[Parameter, ...]:
    """Find the part that every parameter plays.

    Args:
        sizes: The model.
        base: The same model at the base width.
        rules: Roles and axes of particular parameters, by path. Rules take precedence.
        headless: Whether the model has no readout on purpose.
        scaled_logits: Whether the model itself multiplies the logits of a tied embedding by base_width / width.
        attention: "1/d" to let attention scores fall as 1/d where the model has 1/√d.
        only_matrices: Whether Muon trains parameters of two axes only, unless a rule says so.
    """
    _refuse_different_trees(sizes.shapes, base.shapes)
    rule_of = dict(match_rules(list(sizes.shapes), rules))
    found = {path: _parameter(path, sizes, base, rule_of.get(path, Rule())) for path in sizes.shapes}
    for path, parameter in found.items():
        found[path] = replace(parameter, muon=_takes_muon(parameter, rule_of.get(path, Rule()), only_matrices))
    if all(parameter.shape == parameter.base_shape for parameter in found.values()):
        raise ValueError("no parameter changes with the width: expected build(width) to use its argument")
    readouts = (Part.READOUT, Part.INNER_READOUT, Part.TIED)
    if not headless and not any(parameter.part in readouts for parameter in found.values()):
        raise ValueError(
            "no parameter is a readout, with inputs that grow and outputs that do not: name it with "
            "Rule(role=Role.READOUT), or pass headless=True if the model has none"
        )
    if not scaled_logits:
        for path, parameter in list(found.items()):
            if parameter.part is Part.TIED:
                found |= _gains(path, base, found)
    if attention is not None:
        for path, growth in _queries(sizes, base).items():
            found[path] = replace(found[path], grows_head=growth)
    return tuple(found.values())


def _takes_muon(parameter: Parameter, rule: Rule, only_matrices: bool) -> bool:
    """Return whether Muon trains a parameter: a hidden matrix, or what a rule says."""
    if rule.muon is None:
        return parameter.part is Part.HIDDEN and not (only_matrices and len(parameter.shape) != 2)
    if rule.muon and parameter.role is not Role.HIDDEN:
        raise ValueError(
            f"{parameter.path!r} is to be trained by Muon, but is {parameter.part}: expected a hidden matrix, or an "
            "inner readout"
        )
    return rule.muon


def _queries(sizes: Traced, base: Traced) -> dict[str, Fraction]:
    """Return the parameters that make queries, with the growth of the size of heads."""
    if sizes.meetings is None or base.meetings is None:
        raise ValueError(
            "attention='1/d' needs the forward pass at both widths, and it was not traced: pass an example, and a "
            "model that does not decide by values what to compute"
        )
    return find_queries(sizes.meetings, base.meetings, sizes.spent)


def _parameter(path: str, sizes: Traced, base: Traced, rule: Rule) -> Parameter:
    shape, base_shape = sizes.shapes[path], base.shapes[path]
    if len(shape) != len(base_shape):
        raise ValueError(
            f"{path!r} has shape {shape} at one width and {base_shape} at the other: expected as many axes"
        )
    grown = frozenset(axis for axis, (x, y) in enumerate(zip(shape, base_shape, strict=True)) if x != y)
    uses = _compared(path, sizes, base, rule, grown)
    parts = {part for use in uses if (part := use.part) is not Part.UNSCALED}
    if rule.role is not None:
        part = Part(str(rule.role))
        mine = [use for use in uses if use.part is part] or uses
    elif not grown or not parts:
        part, mine = Part.UNSCALED, uses
    else:
        part = _one_part(path, parts)
        mine = [use for use in uses if use.part is (Part.EMBEDDING if part is Part.TIED else part)]
    widest = max(mine, key=lambda use: use.grows_in)
    axes = rule.axes or widest.axes
    axes.check(path, shape)
    _refuse_impossible(path, part, widest, shape, base_shape)
    return Parameter(
        path=path,
        shape=shape,
        base_shape=base_shape,
        part=part,
        axes=axes,
        fan_in=widest.fan_in,
        grows_in=widest.grows_in,
        grows_out=widest.grows_out,
        linear=rule.linear and all(use.linear for use in uses),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A use at two widths."""

    axes: Axes
    fan_in: int
    grows_in: Fraction
    grows_out: Fraction
    inner: bool
    linear: bool

    @property
    def part(self) -> Part:
        match self.grows_in != 1, self.grows_out != 1:
            case True, True:
                return Part.HIDDEN
            case True, False:
                return Part.INNER_READOUT if self.inner else Part.READOUT
            case False, True:
                return Part.EMBEDDING
            case _:
                return Part.UNSCALED


def _compared(path: str, sizes: Traced, base: Traced, rule: Rule, grown: frozenset[int]) -> list[_Compared]:
    shape, base_shape = sizes.shapes[path], base.shapes[path]
    traced, traced_base = sizes.of(path), base.of(path)
    inner = any(use.inner for use in traced)
    if rule.axes is not None or not traced or not traced_base:
        axes = rule.axes or _axes_without_use(path, shape, grown, sizes, rule)
        axes.check(path, shape)
        inputs, outputs = ([(shape[axis], base_shape[axis]) for axis in side] for side in (axes.inputs, axes.outputs))
        return [
            _Compared(
                axes=axes,
                fan_in=prod(x for x, _ in inputs),
                grows_in=_ratio(inputs),
                grows_out=_ratio(outputs),
                inner=inner,
                linear=True,
            )
        ]
    pairs = zip(traced, traced_base[: len(traced)] + traced_base[-1:] * (len(traced) - len(traced_base)), strict=True)
    found = [_at_two_widths(use, before) for use, before in pairs]
    for use in found:
        if grown & set(use.axes.stack) and use.grows_in == use.grows_out == 1:
            outputs = tuple(sorted({*use.axes.outputs, *(grown & set(use.axes.stack))}))
            raise ValueError(
                f"{path!r} has shape {base_shape} at the base width and {shape} here: its number of layers or experts "
                "changes, not its width. If these are heads or blocks of one layer, add the rule "
                f"{{{path!r}: Rule(axes=Axes(inputs={use.axes.inputs}, outputs={outputs}))}}"
            )
    return found


def _at_two_widths(use: Use, before: Use) -> _Compared:
    grows_in, grows_out = Fraction(use.fan_in, before.fan_in), Fraction(use.fan_out, before.fan_out)
    if use.meets_parameter and use.inner and grows_in != 1 and grows_out == 1:
        # A learned activation, such as latents. Weights act on it, not the other way round: it only has outputs.
        axes = Axes(outputs=tuple(sorted((*use.axes.inputs, *use.axes.outputs))), stack=use.axes.stack)
        return _Compared(axes=axes, fan_in=1, grows_in=grows_out, grows_out=grows_in, inner=True, linear=use.linear)
    return _Compared(
        axes=use.axes,
        fan_in=use.fan_in,
        grows_in=grows_in,
        grows_out=grows_out,
        inner=use.inner,
        linear=use.linear,
    )


def _axes_without_use(path: str, shape: Shape, grown: frozenset[int], sizes: Traced, rule: Rule) -> Axes:
    """Return the axes of a parameter whose use is not known, where its shape is enough."""
    every = tuple(range(len(shape)))
    unused = sizes.uses is not None and path not in sizes.unseen
    axes = sum(size > 1 for size in shape) if unused else len(shape)  # a token that is there but not used, of shape 1×n
    if not grown or axes <= 1 or rule.role in (UNSCALED, Role.EMBEDDING):
        return Axes(outputs=every)
    if len(grown) == 2:  # hidden, whichever way round it is stored
        inputs, outputs = sorted(grown)
        stack = tuple(axis for axis in every if axis not in grown)
        return Axes(inputs=(inputs,), outputs=(outputs,), stack=stack)
    seen = sizes.unseen.get(path)
    why = (
        f"it enters {seen!r}, which cannot be looked into"
        if seen
        else "the forward pass was not traced (which takes an example, and a model that can be called)"
        if sizes.uses is None
        else "the forward pass does not use it"
    )
    last = len(shape) - 1
    raise ValueError(
        f"{path!r} of shape {shape}: cannot tell inputs from outputs, since {why}; add a rule such as "
        f"{{{path!r}: Rule(axes=Axes(inputs=({last - 1},), outputs=({last},)))}}"
    )


def _ratio(pairs: Sequence[tuple[int, int]]) -> Fraction:
    return Fraction(prod(x for x, _ in pairs), prod(y for _, y in pairs))


def _one_part(path: str, parts: set[Part]) -> Part:
    """Return the part of a parameter that may be used several times."""
    if len(parts) == 1:
        return parts.pop()
    if parts == {Part.EMBEDDING, Part.READOUT}:
        return Part.TIED
    if parts == {Part.READOUT, Part.INNER_READOUT}:
        return Part.INNER_READOUT
    raise ValueError(
        f"{path!r} is used as {' and as '.join(sorted(parts))}, which scale differently: give the model one parameter "
        "for each, or state the role to use with Rule(role=...)"
    )


def _gains(path: str, base: Traced, found: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the vectors in front of a tied readout that can take the factor of its logits."""
    readouts = [use for use in base.of(path) if use.kind == "product" and use.gains]
    gains = readouts[0].gains if len(readouts) == 1 else ()
    if not gains or any(len(base.of(gain)) != 1 for gain in gains):
        raise ValueError(
            f"{path!r} is embedding and readout at once, and no norm scale in front of the readout feeds it alone, "
            "which could take the factor of the logits: multiply the logits by base_width / width in the model and "
            "pass scaled_logits=True, or give the model two parameters. If it is no readout (the codes of a VQ-VAE, "
            f"for instance), add the rule {{{path!r}: Rule(role=Role.EMBEDDING)}}"
        )
    return {gain: replace(found[gain], gain_of=path) for gain in gains}


def _refuse_impossible(path: str, part: Part, use: _Compared, shape: Shape, base_shape: Shape) -> None:
    needs_inputs = part in (Part.HIDDEN, Part.READOUT, Part.INNER_READOUT)
    if needs_inputs and use.grows_in == 1 and shape != base_shape:
        raise ValueError(
            f"{path!r} is to be {part}, but goes from {base_shape} to {shape}, and its inputs do not grow: expected "
            "inputs that do (give them in the rule's axes), or another role"
        )
    if part is Part.EMBEDDING and use.grows_in != 1:
        raise ValueError(f"{path!r} is to be an embedding, but sums over inputs that grow: expected another role")


def _refuse_different_trees(shapes: Mapping[str, Shape], base: Mapping[str, Shape]) -> None:
    missing = [path for path in base if path not in shapes]
    extra = [path for path in shapes if path not in base]
    if missing or extra:
        what = f"lacks {missing[0]!r}" if missing else f"has {extra[0]!r} in addition"
        raise ValueError(f"the model {what}, compared with the base width: expected the same parameters at every width")
