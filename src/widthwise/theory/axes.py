"""Batch size and number of tokens: rules for what changes with them, as data with their sources.

Theory does not decide these. The rules were fitted, or derived for a model of the noise of gradients, and they
contradict each other, so each is a value with the place where it was found. `constant` is the default for a reason: it
claims nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from widthwise.theory.exact import HALF, Exact, exact


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisFactors:
    """The factors on the hyperparameters of all parameters.

    Attributes:
        learning_rate: On the learning rate.
        epsilon: On epsilon, where updates are divided by a root mean square of gradients plus epsilon.
        one_minus_b2: On 1 - β₂, if the optimizer has a β₂.
        weight_decay: On the decay coefficient λ, where a step removes the learning rate times λ.
    """

    learning_rate: float = 1.0
    epsilon: float = 1.0
    one_minus_b2: float = 1.0
    weight_decay: float = 1.0

    @property
    def removed(self) -> float:
        """The factor on the part of a weight that a step removes: those on learning rate and λ together.

        It is the factor on λ where decay is not multiplied by the learning rate.
        """
        return self.learning_rate * self.weight_decay

    def b2(self, base: float) -> float:
        """Return β₂, given that at the base. Raise where 1 - β₂ would exceed 1."""
        one_minus = (1 - base) * self.one_minus_b2
        if one_minus > 1:
            raise ValueError(f"1 - β₂ would be {one_minus:.3g}, with β₂ = {base} at the base: expected at most 1")
        return 1 - one_minus


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisRule:
    """How hyperparameters change with the batch size or the number of tokens: exponents of its ratio to the base.

    Attributes:
        name: The name to print.
        title: The rule in words.
        source: Where it was found.
        learning_rate: The exponent of the ratio in the factor on the learning rate.
        epsilon: The same for epsilon.
        one_minus_b2: The same for 1 - β₂.
        weight_decay: The same for the decay coefficient λ, where a step removes the learning rate times λ.

    >>> BATCH_RULES["sde"].factors(4)
    AxisFactors(learning_rate=2.0, epsilon=0.5, one_minus_b2=4.0, weight_decay=1.0)
    """

    name: str
    title: str
    source: str
    learning_rate: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)
    one_minus_b2: Fraction = Fraction(0)
    weight_decay: Fraction = Fraction(0)

    def factors(self, ratio: float) -> AxisFactors:
        """Return the factors at `ratio` times the base. All are 1 at the base."""
        if not 0 < ratio < float("inf"):
            raise ValueError(f"ratio to the base is {ratio}: expected a positive number")
        return AxisFactors(
            learning_rate=ratio ** float(self.learning_rate),
            epsilon=ratio ** float(self.epsilon),
            one_minus_b2=ratio ** float(self.one_minus_b2),
            weight_decay=ratio ** float(self.weight_decay),
        )


def _by_name(rules: Iterable[AxisRule]) -> Mapping[str, AxisRule]:
    return MappingProxyType({rule.name: rule for rule in rules})


CONSTANT = AxisRule(name="constant", title="nothing changes", source="the plain model")

BATCH_RULES: Mapping[str, AxisRule] = _by_name(
    (
        CONSTANT,
        AxisRule(
            name="sde",
            title="learning rate as √κ, epsilon as 1/√κ, 1 - β₂ as κ",
            source="microsoft/ArchScale, which credits Malladi et al. (arXiv 2205.10287), but keeps β₁; for Adam",
            learning_rate=HALF,
            epsilon=-HALF,
            one_minus_b2=Fraction(1),
        ),
        AxisRule(
            name="sde2",
            title="constant learning rate, epsilon as 1/√κ, 1 - β₂ and λ as √κ",
            source="microsoft/ArchScale (sdew), which credits arXiv 2411.15958 and 2507.07101; for AdamW",
            epsilon=-HALF,
            one_minus_b2=HALF,
            weight_decay=HALF,
        ),
        AxisRule(
            name="sqrt",
            title="learning rate as √κ, nothing else",
            source="microsoft/ArchScale (default); Marin",
            learning_rate=HALF,
        ),
        AxisRule(
            name="timescale",
            title="λ as κ: weights are averages over the same number of tokens",
            source="Wang and Aitchison (arXiv 2405.13698)",
            weight_decay=Fraction(1),
        ),
        AxisRule(
            name="scion",
            title="learning rate as κ^0.62",
            source="Scion: fitted together with the tokens' rule of the same name",
            learning_rate=Fraction(62, 100),
        ),
    )
)
"""The rules for a batch that is κ times as large, by name."""

TOKEN_RULES: Mapping[str, AxisRule] = _by_name(
    (
        CONSTANT,
        AxisRule(
            name="horizon",
            title="learning rate as T^-0.32",
            source="microsoft/ArchScale, which credits arXiv 2409.19913: fitted",
            learning_rate=Fraction(-32, 100),
        ),
        AxisRule(
            name="timescale",
            title="λ as 1/T: weights are averages over the same part of training",
            source="Wang and Aitchison (arXiv 2405.13698)",
            weight_decay=Fraction(-1),
        ),
        AxisRule(
            name="scion",
            title="learning rate as T^-0.56",
            source="Scion: fitted together with the batch's rule of the same name",
            learning_rate=Fraction(-56, 100),
        ),
    )
)
"""The rules for training on T times as many tokens, by name."""


def read_batch_rule(rule: AxisRule | Exact) -> AxisRule:
    """Return a rule for the batch size: by name, or from the exponent of the learning rate; or the rule itself.

    >>> read_batch_rule("1/2").factors(4).learning_rate
    2.0
    """
    return _read("batch_rule", rule, BATCH_RULES)


def read_token_rule(rule: AxisRule | Exact) -> AxisRule:
    """Return a rule for the number of tokens, by name or from the exponent of the learning rate; or the rule itself."""
    return _read("token_rule", rule, TOKEN_RULES)


def _read(argument: str, rule: AxisRule | Exact, named: Mapping[str, AxisRule]) -> AxisRule:
    if isinstance(rule, AxisRule):
        return rule
    if isinstance(rule, str) and rule in named:
        return named[rule]
    try:
        power = exact(rule)
    except ValueError:
        expected = f"one of {', '.join(named)}, or the exponent of the learning rate, such as 1/2"
        raise ValueError(f"{argument} is {rule!r}: expected {expected}") from None
    return AxisRule(name=str(power), title=f"learning rate to the power {power}", source="given", learning_rate=power)
