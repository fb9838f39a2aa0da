"""Rules by path: what a user states about particular parameters, in place of what would be inferred."""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from widthwise.scaling.axes import Axes
from widthwise.theory import Role

UNSCALED = "unscaled"
"""The role of a leaf that does not grow and is the same at every width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Properties of the leaves that match a pattern; what is not given is inferred.

    Attributes:
        role: `Role.EMBEDDING`, `Role.HIDDEN`, `Role.READOUT`, or `UNSCALED`; inferred if None.
        axes: Which axes are inputs, outputs or a stack of layers.
        linear: False for a parameter that the model does not use linearly, such as a temperature inside an exponential.
            A multiplier would not commute with its use, so the parameter gets the equivalent exponents with
            multiplier 1.
        muon: In a plan for Muon, whether Muon trains it, or the optimizer beside it. By default Muon trains all hidden
            matrices and no inner readouts.
        init: The constant in front of the initialization, for prescriptions without a `base` to measure it on.
    """

    role: Role | str | None = None
    axes: Axes | None = None
    linear: bool = True
    muon: bool | None = None
    init: float = 1.0

    def __post_init__(self) -> None:
        if self.role is not None and self.role not in (*Role, UNSCALED):
            raise ValueError(f"role is {self.role!r}: expected one of {', '.join((*Role, UNSCALED))}")
        if not self.init >= 0:
            raise ValueError(f"init is {self.init}: expected 0 or more")


Rules: TypeAlias = Mapping[str, Rule]
"""Rules by path pattern, such as `*/out/kernel`; `*` also matches slashes. The first matching rule applies."""

NO_RULES: Rules = MappingProxyType({})


def match_rules(paths: Sequence[str], rules: Rules) -> Iterator[tuple[str, Rule]]:
    """Yield the rule of every path that has one; raise if a rule applies to nothing."""
    for pattern, rule in rules.items():
        if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the rule for {pattern!r} is {rule!r}: expected a Rule, e.g. Rule(role=Role.HIDDEN)")
    unused = set(rules)
    for path in paths:
        for pattern, rule in rules.items():
            if fnmatch.fnmatchcase(path, pattern):
                unused.discard(pattern)
                yield path, rule
                break
    if unused:
        pattern = next(pattern for pattern in rules if pattern in unused)
        hidden = any(fnmatch.fnmatchcase(path, pattern) for path in paths)
        why = "an earlier rule matches all of its leaves" if hidden else "no leaf has such a path"
        raise ValueError(f"rule {pattern!r} applies to nothing, {why}; the paths are {', '.join(paths)}")
