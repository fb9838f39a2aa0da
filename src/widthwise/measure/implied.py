"""From measurement to prescription: the exponents that measured alignment implies.

The paper assumes an alignment and leaves learning rates that follow the measured one to future work. Here the measured
α, ω and u replace the assumption in the solver. This involves three decisions:

- A role has one learning rate for all of its layers and all of training, so its alignment must be one number too. There
  are two choices: the median over layers and steps, and the largest value. Stability must hold for the most aligned
  layer at its most aligned step, so the largest value is the safe one. The median is typical of training.
- ω above 1/2 in hidden layers compounds: over k consecutive layers, changes grow by n^(k·(ω - 1/2)). But a LayerNorm
  bounds the input of the layers after it, so the excess accumulates only between two of them, over the `chain` of two
  matrices that a transformer has there. That is the default. The worst case, without any normalization, is a chain of
  all layers. All layers of a chain get the rate of the most limited one.
- A ratio at one width, log_n, contains a constant. A slope over widths does not, but it needs several widths and is
  noisy. Both have the same form, so either can be used.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from widthwise.coordinates import AlignmentPoint
from widthwise.measure.capture import weights_of
from widthwise.parameterize import Layout
from widthwise.theory import Alignment, Assessment, Family, Parameterization, Role, solve_by_role

Statistic: TypeAlias = Literal["median", "largest"]

EXPONENTS = ("alpha", "omega", "u")
CHAIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread of a measured exponent over the layers of a role and the steps of a run."""

    smallest: float
    median: float
    largest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.smallest:.2f}, {self.largest:.2f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAlignment:
    """The measured alignment of the layers of one role."""

    layers: int
    alpha: Spread
    omega: Spread
    u: Spread


MeasuredAlignment: TypeAlias = dict[Role, RoleAlignment]
"""The measured alignment of hidden layers and readout; the sum of an embedding does not grow."""


def summarize(points: Sequence[AlignmentPoint], layout: Layout) -> MeasuredAlignment:
    """Summarize the measurements of a run by role. Steps at which nothing has changed yet are ignored."""
    roles = {leaf.path: leaf.role for leaf in layout.leaves}
    found: MeasuredAlignment = {}
    for role in (Role.HIDDEN, Role.READOUT):
        layers = {path for point in points for path in point.layers if roles.get(weights_of(path)[0]) is role}
        values = {
            name: [x for point in points for path in layers if math.isfinite(x := point.layers[path][name])]
            for name in EXPONENTS
        }
        if not all(values.values()):
            raise ValueError(f"alignment of {role} layers was never finite: the run diverged at once, or took no step")
        spreads = {
            name: Spread(smallest=min(x), median=statistics.median(x), largest=max(x)) for name, x in values.items()
        }
        found[role] = RoleAlignment(layers=len(layers), **spreads)
    return found


def slopes(by_width: Mapping[int, Sequence[AlignmentPoint]]) -> list[AlignmentPoint]:
    """Return the slopes of the log ratios over widths, step by step: exponents without the constant of one width."""
    widths = sorted(by_width)
    if len(widths) < 2:
        raise ValueError(f"widths are {widths}: a slope needs two or more")
    at = {width: {point.step: point.layers for point in by_width[width]} for width in widths}
    logs = [math.log(width) for width in widths]

    def slope(step: int, path: str, name: str) -> float:
        layers = [at[width][step][path] for width in widths]
        ratios = [layer[name] * math.log(max(layer["fan_in"], 1)) for layer in layers]
        return statistics.linear_regression(logs, ratios).slope if all(map(math.isfinite, ratios)) else math.nan

    common = [step for step in at[widths[0]] if all(step in at[width] for width in widths)]
    paths = [path for point in by_width[widths[0]][:1] for path in point.layers]
    return [
        AlignmentPoint(
            step=step, layers={path: {name: slope(step, path, name) for name in EXPONENTS} for path in paths}
        )
        for step in common
    ]


def alignment_of(measured: MeasuredAlignment, statistic: Statistic) -> Alignment:
    """Return the measured alignment as an assumption for the solver, rounded to two decimals, between 0 and 1."""

    def number(role: Role, name: str) -> float:
        return round(min(max(getattr(getattr(measured[role], name), statistic), 0.0), 1.0), 2)

    pairs = {name: (number(Role.HIDDEN, name), number(Role.READOUT, name)) for name in EXPONENTS}
    return Alignment.of(name=f"measured, {statistic}", **pairs)


def implied(
    parameterization: Parameterization,
    family: Family,
    measured: MeasuredAlignment,
    *,
    statistic: Statistic = "median",
    chain: int = CHAIN,
) -> Assessment:
    """Solve for the largest stable exponents under the measured alignment.

    Args:
        parameterization: The a and b; its hidden layers must be alike.
        family: The optimizer family.
        measured: The measured alignment.
        statistic: Whether to use the median over layers and steps, or the largest value.
        chain: The number of consecutive hidden layers without a normalization between them.
    """
    network = parameterization.with_hidden_layers(chain)
    return solve_by_role(network, family, alignment_of(measured, statistic))
