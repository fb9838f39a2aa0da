"""The table of a plan: what changes for every parameter, and what to look at."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from widthwise.scaling.parameters import Part
from widthwise.scaling.text import text_table
from widthwise.theory import INDEPENDENT, depth_exponents, without_multipliers

if TYPE_CHECKING:
    from widthwise.scaling.planned import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedNumber:
    """A number in the model that differs between two widths.

    Attributes:
        operation: The operation that it enters, such as `mul`.
        base: Its value at the base width.
        here: Its value at the other width.
        where: The file and line of the model's code; empty if unknown.
    """

    operation: str
    base: float
    here: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """What is planned for one parameter, or for the same parameter of several layers.

    Attributes:
        path: Its path; `*` stands for the numbers of layers.
        count: The number of parameters.
        shape: Its shape.
        role: The part that it plays.
        optimizer: The family of the optimizer that trains it.
        fan_in: The number of terms of the sum it enters; None if it enters none.
        init: The factor on its initial size.
        multiplier: The factor on the stored parameter.
        learning_rate: The factor on the learning rate, or the learning rate.
        epsilon: The factor on epsilon, or the epsilon.
        decay: The factor on the part of it that weight decay removes per step.
    """

    path: str
    count: int
    shape: tuple[int, ...]
    role: str
    optimizer: str
    fan_in: int | None
    init: float
    multiplier: float
    learning_rate: float
    epsilon: float
    decay: float


@dataclass(frozen=True, slots=True)
class PlanTable:
    """The rows of a plan and its notes; `str()` returns them as text.

    Attributes:
        rows: One row per parameter, layers that are alike together.
        notes: What to look at.
        headings: The names of the last columns.
        multipliers: Whether any parameter has a multiplier.
        decay: Whether weight decay changes.
    """

    rows: tuple[PlanRow, ...]
    notes: tuple[str, ...]
    headings: tuple[str, str]
    multipliers: bool
    decay: bool

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for `json.dumps`."""
        return {"parameters": [{**asdict(row), "shape": list(row.shape)} for row in self.rows], "notes": self.notes}

    def __str__(self) -> str:
        several = any(row.count > 1 for row in self.rows)
        mixed = len({row.optimizer for row in self.rows}) > 1
        names = ["path", *(["layers"] if several else []), "shape", "role", *(["optimizer"] if mixed else [])]
        names += ["fan-in", "init ×"]
        names += [*(["multiplier ×"] if self.multipliers else []), *self.headings]
        names += ["decay ×"] if self.decay else []
        right = [i for i, name in enumerate(names) if name not in ("path", "shape", "role", "optimizer")]
        lines = text_table(names, [self._cells(row, several, mixed) for row in self.rows], right=right)
        return "\n".join([lines, *(f"note: {note}" for note in self.notes)])

    def _cells(self, row: PlanRow, several: bool, mixed: bool) -> list[str]:
        return [
            row.path,
            *([str(row.count)] if several else []),
            "×".join(map(str, row.shape)) or "scalar",
            row.role,
            *([row.optimizer] if mixed else []),
            "–" if row.fan_in is None else str(row.fan_in),
            f"{row.init:.4g}",
            *([f"{row.multiplier:.4g}"] if self.multipliers else []),
            f"{row.learning_rate:.4g}",
            f"{row.epsilon:.4g}",
            *([f"{row.decay:.4g}"] if self.decay else []),
        ]


def table_of(plan: "Planned", *, learning_rate: float | None, epsilon: float | None) -> PlanTable:
    """Return the table of a plan, with factors or with numbers."""
    groups: dict[PlanRow, list[str]] = {}
    for parameter in plan.parameters:
        factors = plan.factors[parameter.path]
        row = PlanRow(
            path=in_every_layer(parameter.path),
            count=1,
            shape=parameter.shape,
            role=parameter.part.value,
            optimizer=plan.family_of(parameter).name,
            fan_in=parameter.fan_in if parameter.axes.inputs else None,
            init=factors.init,
            multiplier=factors.multiplier,
            learning_rate=factors.learning_rate * (1 if learning_rate is None else learning_rate),
            epsilon=factors.epsilon * (1 if epsilon is None else epsilon),
            decay=factors.decay,
        )
        groups.setdefault(row, []).append(parameter.path)
    rows = (
        replace(row, path=paths[0]) if len(paths) == 1 else replace(row, count=len(paths))
        for row, paths in groups.items()
    )
    return PlanTable(
        rows=tuple(rows),
        notes=tuple(_notes(plan)),
        headings=(
            "learning rate ×" if learning_rate is None else "learning rate",
            "epsilon ×" if epsilon is None else "epsilon",
        ),
        multipliers=plan.multipliers,
        decay=plan.decay_rule != INDEPENDENT or plan.grown.everywhere.removed != 1,
    )


_LAYER = re.compile(r"(?<![^/._])\d+(?![^/.])")
"""The number of a layer in a path: `blocks/3/mlp`, `Block_3/mlp` or `blocks.3.mlp`."""


def in_every_layer(path: str) -> str:
    """Return a path without the numbers of layers.

    >>> in_every_layer("blocks.3.mlp.weight")
    'blocks.*.mlp.weight'
    """
    return _LAYER.sub("*", path)


def _divides_by_root(number: ChangedNumber, growth: float) -> bool:
    """Return whether a number divides by √d, or multiplies by 1/√d."""
    change = number.here / number.base if number.base else math.nan
    return math.isclose(change if number.operation == "div" else 1 / change, math.sqrt(growth), rel_tol=1e-3)


def _power(number: ChangedNumber, growth: float) -> float | None:
    """Return the power of a growth by which a number divides; None if it does nothing of the kind."""
    if not number.base or not number.here / number.base > 0:
        return None
    power = math.log(number.here / number.base) / math.log(growth)
    return round(power if number.operation == "div" else -power, 3)


def _notes_on_depth(plan: "Planned") -> Iterator[str]:
    """Yield what changes with other axes than width."""
    grown = plan.grown
    ends = dict.fromkeys(in_every_layer(p.path) for p in plan.parameters if p.ends_branch)
    if ends and grown.depth_rule.branch:
        power = -depth_exponents(grown.depth_rule, plan.exponents.family).branch
        yield (
            f"at depth {grown.depth}, residual branches fall as (depth / {grown.base_depth})^{power}; the factor is in "
            f"{' and '.join(ends)}. If the model divides branches by its depth itself, remove that"
        )
    origins = Counter(p.origin for p in plan.parameters if p.deepens == 1)
    more = dict.fromkeys(in_every_layer(p.path) for p in plan.parameters if p.deepens == 1 and origins[p.origin] > 1)
    if more and grown.deepens != 1:
        names = " and ".join(more)
        yield f"the deeper model has more of {names}, but in no residual block: depth rules do not change them"
    found = grown.everywhere
    if found.one_minus_b2 != 1:
        yield f"1 - β₂ is multiplied by {found.one_minus_b2:.4g}"


def _notes(plan: "Planned") -> Iterator[str]:
    """Yield what a user should look at."""
    folded = {p.path: float(p.grows_head) for p in plan.parameters if p.grows_head != 1}
    of_attention = {x for x in plan.numbers if any(_divides_by_root(x, growth) for growth in folded.values())}
    if folded:
        yield f"attention falls as 1/d; the factor is in {' and '.join(dict.fromkeys(map(in_every_layer, folded)))}"
        if not of_attention:
            yield "no number in the model falls as 1/√d: attention='1/d' is for models that divide scores by √d"
    for number in plan.numbers:
        where = f" at {number.where}" if number.where else ""
        yield (
            f"a number in the model changes with width{where}: {number.operation} by {number.base:.6g} at width "
            f"{plan.base_width}, {number.here:.6g} here. "
        ) + (
            "It is taken for the 1/√d of attention, as which it may stay"
            if number in of_attention
            else "Plans assume fixed numbers: unless a note asked for it, keep its value at the base width; or, for "
            "1/√d in attention with heads that grow, pass attention='1/d'"
        )
    for before, now in () if folded else plan.sums:
        powers = (_power(number, now / before) for number in plan.numbers)
        if not any(power in (0.5, 1.0) for power in powers):  # of which there is a note already
            yield (
                f"activations are multiplied and summed over {before} terms at width {plan.base_width}, {now} here, "
                f"and no number in the model makes up for it. Unless they are normalized, multiply the sum by {before} "
                "/ terms in the model"
            )
    missing = Fraction(1, 2) - without_multipliers(plan.exponents).parameterization.readout.b
    for parameter in plan.parameters:
        if parameter.part is Part.READOUT and not parameter.linear and missing:
            yield (
                f"{parameter.path} is changed before it acts. If it is normalized there, the factor on its size has no "
                f"effect: multiply its inputs by (fan-in / fan-in at the base width)^{missing} in the model"
            )
    gains = [parameter.path for parameter in plan.parameters if parameter.gain_of is not None]
    for parameter in plan.parameters:
        if parameter.part is Part.TIED and gains:
            yield f"{parameter.path} is the readout too; the factor of its logits is in {' and '.join(gains)}"
    yield from _notes_on_depth(plan)
    if not plan.is_traced:
        yield "the forward pass was not traced, since there is no example"
    yield from plan.own_notes
