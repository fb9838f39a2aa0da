"""The axes beside width that a plan covers: depth, batch size, and the number of tokens."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from widthwise.scaling.factors import Factors
from widthwise.theory import (
    COMPLETEP,
    AxisFactors,
    AxisRule,
    DepthRule,
    Exact,
    read_batch_rule,
    read_depth_rule,
    read_token_rule,
)
from widthwise.theory.axes import CONSTANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """How much a model and its training grow, apart from width. An axis that is None is not part of the plan.

    Attributes:
        depth: The number of blocks, or whatever `build` takes for it.
        base_depth: The depth at which the learning rate was tuned.
        depth_rule: What changes with depth.
        batch: The batch size.
        base_batch: The batch size at which the learning rate was tuned.
        batch_rule: What changes with the batch size.
        tokens: The number of tokens, or of examples, to train on.
        base_tokens: The number that the learning rate was tuned with.
        token_rule: What changes with the number of tokens.
    """

    depth: int | None = None
    base_depth: int | None = None
    depth_rule: DepthRule = COMPLETEP
    batch: float | None = None
    base_batch: float | None = None
    batch_rule: AxisRule = CONSTANT
    tokens: float | None = None
    base_tokens: float | None = None
    token_rule: AxisRule = CONSTANT

    @classmethod
    def read(
        cls, *, depth_rule: DepthRule | Exact, batch_rule: AxisRule | Exact, token_rule: AxisRule | Exact, **sizes: Any
    ) -> "Grown":
        """Return the axes that a user asks for; raise if one lacks its base, or has no positive size."""
        for name in ("depth", "batch", "tokens"):
            value, base = sizes[name], sizes[f"base_{name}"]
            if (value is None) != (base is None):
                missing = f"base_{name}" if base is None else name
                raise ValueError(f"{missing} is missing: expected {name} and base_{name}, or neither")
            _check(name, value)
            _check(f"base_{name}", base)
        return cls(
            depth_rule=read_depth_rule(depth_rule),
            batch_rule=read_batch_rule(batch_rule),
            token_rule=read_token_rule(token_rule),
            **sizes,
        )

    @property
    def deepens(self) -> Fraction:
        """By what factor the model is deeper than at the base depth."""
        return Fraction(1) if self.depth is None or self.base_depth is None else Fraction(self.depth, self.base_depth)

    @property
    def options(self) -> dict[str, Any]:
        """The axes as arguments of `plan`."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def everywhere(self) -> AxisFactors:
        """The factors of batch size and tokens, which are the same for all parameters."""
        batch = self.batch_rule.factors(_ratio(self.batch, self.base_batch))
        tokens = self.token_rule.factors(_ratio(self.tokens, self.base_tokens))
        return AxisFactors(
            learning_rate=batch.learning_rate * tokens.learning_rate,
            epsilon=batch.epsilon * tokens.epsilon,
            one_minus_b2=batch.one_minus_b2 * tokens.one_minus_b2,
            weight_decay=batch.weight_decay * tokens.weight_decay,
        )

    def at(self, *, depth: int | None = None, batch: float | None = None, tokens: float | None = None) -> "Grown":
        """Return the same axes at other sizes; those that are None stay as they are."""
        for name, value in (("depth", depth), ("batch", batch), ("tokens", tokens)):
            _check(name, value)
            if value is not None and getattr(self, name) is None:
                raise ValueError(f"the plan has no {name}: expected {name}= and base_{name}= in plan(...)")
        given = {"depth": depth, "batch": batch, "tokens": tokens}
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def _check(name: str, size: object) -> None:
    """Raise unless a size is one, or None."""
    whole = name.endswith("depth")
    if size is not None and not (isinstance(size, int if whole else int | float) and size > 0):
        expected = "a whole number from 1 up" if whole else "a number above 0"
        raise ValueError(f"{name} is {size!r}: expected {expected}")


ONLY_WIDTH = Grown()


def with_everywhere(factors: dict[str, Factors], everywhere: AxisFactors) -> dict[str, Factors]:
    """Return factors with those that are the same for all parameters."""
    return {
        path: replace(
            found,
            learning_rate=found.learning_rate * everywhere.learning_rate,
            epsilon=found.epsilon * everywhere.epsilon,
            decay=found.decay * everywhere.removed,
        )
        for path, found in factors.items()
    }


def _ratio(size: float | None, base: float | None) -> float:
    return 1.0 if size is None or base is None else size / base
