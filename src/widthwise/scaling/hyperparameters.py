"""The hyperparameters of a larger model, from those of a tuned one, with where each number comes from.

A model is reduced to the kinds of parameters that are treated differently. Factors are those of plans: relative to the
base, with multipliers stored in the parameters. Width and depth follow from theory, batch size and tokens from rules
that were found elsewhere, and an exponent measured in a sweep can be added for any axis. What is measured is the
exponent of the base rate that is left after the rules, so it multiplies every learning rate alike.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from widthwise.scaling.axes import Axes
from widthwise.scaling.decay import MOST_DECAY
from widthwise.scaling.depth import grow_factors
from widthwise.scaling.factors import Factors, find_factors
from widthwise.scaling.grown import Grown
from widthwise.scaling.orthogonal import has_muon
from widthwise.scaling.parameters import Parameter, Part
from widthwise.theory import INDEPENDENT, Assessment, DecayRule, Role

_MATRIX = Axes(inputs=(0,), outputs=(1,))
_VECTOR = Axes(outputs=(0,))
_FIXED = 256  # the size of an axis that does not grow, such as the vocabulary

KINDS = {
    "embedding": (Part.EMBEDDING, _MATRIX, False, False),
    "matrix in a block": (Part.HIDDEN, _MATRIX, True, False),
    "last matrix of a branch": (Part.HIDDEN, _MATRIX, True, True),
    "vector in a block": (Part.EMBEDDING, _VECTOR, True, False),
    "last vector of a branch": (Part.EMBEDDING, _VECTOR, True, True),
    "vector outside of blocks": (Part.EMBEDDING, _VECTOR, False, False),
    "readout": (Part.READOUT, _MATRIX, False, False),
}
"""The kinds of parameters: their part, their axes, whether they are in a block, and whether they end a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedValues:
    """The hyperparameters of the tuned model; those that its optimizer does not have are None.

    Attributes:
        learning_rate: The learning rate.
        epsilon: Epsilon.
        weight_decay: The part of a weight that a step removes at the peak of the schedule.
        b2: β₂.
    """

    learning_rate: float
    epsilon: float | None = None
    weight_decay: float | None = None
    b2: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate is {self.learning_rate}: expected a finite number above 0")
        for name in ("epsilon", "weight_decay"):
            if (value := getattr(self, name)) is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}: expected a finite number, 0 or more")
        if self.weight_decay is not None and self.weight_decay > MOST_DECAY:
            raise ValueError(
                f"weight_decay is {self.weight_decay}, the part of every weight that a step removes: expected at most "
                f"{MOST_DECAY}; AdamW multiplies its weight decay by the learning rate, so give that product"
            )
        if self.b2 is not None and not 0 <= self.b2 < 1:
            raise ValueError(f"b2 is {self.b2}: expected a number from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredExponent:
    """An exponent of the optimal base rate that a sweep found, with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:z.2f} [{self.low:z.2f}, {self.high:z.2f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A factor on a hyperparameter: the axis that asks for it, its exponent there, and who says so.

    The interval is that of a measured exponent.
    """

    axis: str
    factor: float
    exponent: str
    rule: str
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.axis}^{self.exponent}" + (" (measured)" if self.interval else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameter:
    """One hyperparameter of the target.

    Attributes:
        of: The kind of parameters that it is for, or "all".
        name: Its name.
        base: Its value in the tuned model; 1 for an initial size, which is relative. 0 for a decay that the rule leaves
            out.
        target: Its value in the target.
        optimizer: The family of the optimizer that trains these parameters; with Muon, Adam's for "all".
        origins: The factors that lead from one to the other; none if nothing changes.
        interval: The interval of the target, if an exponent was measured.
    """

    of: str
    name: str
    base: float
    target: float
    optimizer: str
    origins: tuple[Origin, ...] = ()
    interval: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How much a target is larger than the tuned model, and what is assumed about it.

    Attributes:
        case: The exponents in width.
        width: The width of the target.
        base_width: The width of the tuned model.
        grown: The other axes, with their rules.
        decay_rule: How weight decay changes with width.
        measured: Exponents of the optimal base rate that sweeps found, by axis; "together" in powers of the width.
    """

    case: Assessment
    width: int
    base_width: int
    grown: Grown
    decay_rule: DecayRule = INDEPENDENT
    measured: Mapping[str, MeasuredExponent] = field(default_factory=dict[str, MeasuredExponent])

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as large the target is along each axis."""
        pairs = {
            "width": (self.width, self.base_width),
            **{name: (getattr(self.grown, name), getattr(self.grown, f"base_{name}")) for name in _OTHERS},
        }
        return {name: here / base if here and base else 1.0 for name, (here, base) in pairs.items()}

    @property
    def rules(self) -> dict[str, str]:
        """The name of what decides each axis."""
        case = self.case
        theory = f"theory: {case.parameterization.name}, {case.family.name}, {case.alignment.name} alignment"
        grown = self.grown
        return {
            "width": theory,
            "depth": f"theory: {grown.depth_rule.name}, {grown.depth_rule.source}",
            "batch": f"rule: {grown.batch_rule.name}, {grown.batch_rule.source}",
            "tokens": f"rule: {grown.token_rule.name}, {grown.token_rule.source}",
        }

    def factors(self, only: str) -> dict[str, Factors]:
        """Return the factors of every kind of parameter that one axis asks for."""
        growth = Fraction(self.width, self.base_width) if only == "width" else Fraction(1)
        others = {name: getattr(self.grown, name) if only == name else None for name in _OTHERS}
        grown = replace(self.grown, **others)
        parameters = tuple(_parameter(kind, growth, grown.deepens, self.case) for kind in KINDS)
        coupled = self.decay_rule.coupled
        found = find_factors(parameters, self.case, decay_rule=self.decay_rule)
        return grow_factors(found, parameters, grown, self.case.family, coupled=coupled)


_OTHERS = ("depth", "batch", "tokens")


def target_hyperparameters(tuned: TunedValues, growth: Growth) -> Iterator[Hyperparameter]:
    """Yield every hyperparameter of the target.

    Raise if a step would remove too much of a weight there, or if a number is too large or too small for a float.
    """
    try:
        by_axis = {axis: growth.factors(axis) for axis in growth.ratios}
    except ArithmeticError:
        raise ValueError("a factor is too large or too small: expected rules with smaller powers") from None
    named = {
        "initial size": ("init", 1.0),
        "learning rate": ("learning_rate", tuned.learning_rate),
        "epsilon": ("epsilon", tuned.epsilon),
        "decay per step": ("decay", tuned.weight_decay),
    }
    for kind in KINDS:
        for name, (attribute, base) in named.items():
            if base is not None:
                each = {axis: getattr(factors[kind], attribute) for axis, factors in by_axis.items()}
                found = _hyperparameter(kind, name, base, each, growth)
                if attribute == "decay" and found.target > MOST_DECAY:
                    removed = f"the tuned decay · {found.target / base:.4g} = {found.target:.3g}"
                    raise ValueError(
                        f"a step would remove {removed} of every weight ({kind}): expected at most {MOST_DECAY}; use "
                        "another rule"
                    )
                yield found
    if tuned.b2 is not None:
        rules = {"batch": growth.grown.batch_rule, "tokens": growth.grown.token_rule}
        each = {axis: rule.factors(growth.ratios[axis]).one_minus_b2 for axis, rule in rules.items()}
        found = _hyperparameter("all", "1 - beta2", 1 - tuned.b2, each, growth)
        if found.target > 1:
            raise ValueError(f"1 - beta2 is {found.target:g} in the target: expected at most 1; use another batch rule")
        yield found


def _hyperparameter(of: str, name: str, base: float, factors: Mapping[str, float], growth: Growth) -> Hyperparameter:
    ratios, rules = growth.ratios, growth.rules
    part = KINDS[of][0] if of in KINDS else Part.EMBEDDING  # with Muon, only Adam has a β₂
    optimizer = growth.case.family.at(Role.HIDDEN if part is Part.HIDDEN else Role.EMBEDDING).name
    if name == "decay per step" and 0 in factors.values():
        return Hyperparameter(of=of, name=name, base=0.0, target=0.0, optimizer=optimizer)
    if not 0 < math.prod(factors.values()) < math.inf:
        raise ValueError(
            f"the factor on the {name} ({of}) is too large or too small: expected rules with smaller powers"
        )
    origins = [
        Origin(axis=axis, factor=factor, exponent=_exponent(factor, ratios[axis]), rule=rules[axis])
        for axis, factor in factors.items()
        if not math.isclose(factor, 1)
    ]
    below = above = 0.0  # in octaves: the errors of different sweeps are independent
    for axis, estimate in growth.measured.items() if name == "learning rate" else ():
        octaves = math.log2(ratios["width" if axis == "together" else axis])
        if octaves:
            ends = sorted(octaves * (end - estimate.value) for end in (estimate.low, estimate.high))
            below, above = math.hypot(below, ends[0]), math.hypot(above, ends[1])
            factor, exponent = 2 ** (octaves * estimate.value), f"{estimate.value:z.2f}"
            interval = (estimate.low, estimate.high)
            origins.append(Origin(axis=axis, factor=factor, exponent=exponent, rule="measured", interval=interval))
    target = base * math.prod(origin.factor for origin in origins)
    interval = (target * 2**-below, target * 2**above) if below or above else None
    return Hyperparameter(
        of=of,
        name=name,
        base=base,
        target=target,
        optimizer=optimizer,
        origins=tuple(origins),
        interval=interval,
    )


def _exponent(factor: float, ratio: float) -> str:
    return str(Fraction(math.log(factor) / math.log(ratio)).limit_denominator(100))


def _parameter(kind: str, growth: Fraction, deepens: Fraction, case: Assessment) -> Parameter:
    part, axes, inside, ends = KINDS[kind]
    wide = (int(_FIXED * growth.numerator), _FIXED * growth.denominator)
    sides = {Part.EMBEDDING: (False, True), Part.HIDDEN: (True, True), Part.READOUT: (True, False)}[part]
    here, base = ([wide[place] if grows else _FIXED for grows in sides] for place in (0, 1))
    grows_in, grows_out = (growth if grows else Fraction(1) for grows in sides)
    return Parameter(
        path=kind,
        shape=tuple(here if axes.inputs else here[1:]),
        base_shape=tuple(base if axes.inputs else base[1:]),
        part=part,
        axes=axes,
        fan_in=here[0] if axes.inputs else 1,
        grows_in=grows_in,
        grows_out=grows_out,
        muon=part is Part.HIDDEN and has_muon(case.family),
        deepens=deepens if inside else Fraction(1),
        ends_branch=ends,
    )
