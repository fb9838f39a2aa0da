"""The result of a coordinate check: a verdict for every layer, what explains it, and what to change.

Activations and their changes must have slope 0 against log width, logits and their change at most 0.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from widthwise.fit import Estimate
from widthwise.scaling import text_table
from widthwise.theory import FULL, Assessment, Role, solve

Term: TypeAlias = Literal["updated", "inherited", "joint"]
"""The terms of a change: ΔW z⁰ (the layer's own update), W⁰Δz (from the layers below), ΔW Δz (both)."""

INDEX = {Role.EMBEDDING: 0, Role.HIDDEN: 1, Role.READOUT: -1}
"""The place of a role among the layers of the theory's network."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """How the theory expects a layer's change to scale under the alignment measured in the same runs.

    Attributes:
        slope: The exponent of the term that is largest at the largest width.
        term: That term.
        fastest: The term with the largest exponent, which will dominate at some width.
        fastest_slope: Its exponent.
        alpha: The slope of the log ratio of ΔW z⁰ in these runs; NaN for an embedding.
        omega: The slope of the log ratio of W⁰Δz.
        u: The slope of the log ratio of ΔW Δz.
        takeover: The width from which most of W⁰Δz is aligned; NaN where seeds do not agree that any is.
    """

    slope: float
    term: Term
    fastest: Term
    fastest_slope: float
    alpha: float = math.nan
    omega: float = math.nan
    u: float = math.nan
    takeover: float = math.nan


@dataclass(frozen=True, kw_only=True)
class LayerCheck:
    """The result for one layer.

    Attributes:
        layer: The path of its weight.
        role: Its role.
        initial: The slope of its output before training.
        size: The slope of its output after training.
        change: The slope of the change of its output.
        expected: The change that the theory expects under the measured alignment.
        tolerance: The largest allowed distance of a slope from its bound.
    """

    layer: str
    role: Role
    initial: Estimate
    size: Estimate
    change: Estimate
    expected: Expectation
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether size and change are within tolerance."""
        return self.within(self.size) and self.within(self.change)

    def within(self, slope: Estimate) -> bool:
        """Return whether a slope is within tolerance of its bound; False for the NaN of a zero or infinite size."""
        if self.role is Role.READOUT:
            return slope.value <= self.tolerance
        return abs(slope.value) <= self.tolerance

    @property
    def settled(self) -> bool:
        """Whether the intervals are clear of the tolerance, so that more seeds would not change the verdict."""
        slopes = (self.size, self.change)
        if any(math.isnan(slope.value) for slope in slopes):
            return True
        inside = [[self.within(Estimate(value=end, low=end, high=end)) for end in x.interval] for x in slopes]
        clear = [not any(ends) and x.low * x.high > 0 for ends, x in zip(inside, slopes, strict=True)]
        return any(clear) or all(all(ends) for ends in inside)


@dataclass(frozen=True, kw_only=True)
class CoordinateCheck:
    """The result for all layers.

    Attributes:
        widths: The widths compared.
        seeds: The number of seeds per width.
        steps: The number of training steps.
        layers: The layers in the order of the forward pass.
        unseen: Weights that scale with width but were not captured, so that nothing is known about their layers.
        exponents: The prescribed exponents.
    """

    widths: tuple[int, ...]
    seeds: int
    steps: int
    layers: tuple[LayerCheck, ...]
    unseen: tuple[str, ...]
    exponents: Assessment

    @property
    def passed(self) -> bool:
        """Whether every layer was captured and passed."""
        return not self.unseen and all(layer.passed for layer in self.layers)

    @property
    def failed(self) -> tuple[LayerCheck, ...]:
        """The layers that did not pass."""
        return tuple(layer for layer in self.layers if not layer.passed)

    def __str__(self) -> str:
        rows = [
            (
                _short(layer.layer),
                layer.role.value,
                describe_slope(layer.size),
                describe_slope(layer.change),
                _number(layer.expected.slope),
                layer.expected.term,
                ("pass" if layer.passed else "FAIL") + ("" if layer.settled else " ?"),
            )
            for layer in self.layers
        ]
        steps = f"{self.steps} step{'' if self.steps == 1 else 's'}"
        seeds = f"{self.seeds} seed{'' if self.seeds == 1 else 's'}"
        lines = [
            f"{steps} at widths {', '.join(map(str, self.widths))}, {seeds}.",
            "Slopes of log size against log width [95 % interval over seeds]. Expected: the slope that the theory",
            "gives with the alignment measured in these runs, and the term of the change that it comes through.",
            "",
            text_table(("layer", "role", "size", "change", "expected", "through", "verdict"), rows, right=(2, 3, 4)),
            "",
            *_grouped((layer.layer, advice(layer, self.exponents)) for layer in self.layers),
            *_grouped(
                (layer.layer, warning(layer))
                for layer in self.layers
                if layer.passed or math.isfinite(layer.expected.takeover)  # which explains why a readout fails
            ),
        ]
        if self.unseen:
            lines.append(f"Not measured, because they were not seen to act: {', '.join(self.unseen)}.")
        passed = len(self.layers) - len(self.failed)
        lines.append(f"{'PASS' if self.passed else 'FAIL'}: {passed} of {len(self.layers)} layers pass.")
        if not all(layer.settled for layer in self.layers):
            tolerance = self.layers[0].tolerance
            lines.append(f"?: the interval reaches across the tolerance of {tolerance:g}; use more seeds.")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for `json.dumps`; numbers that are not finite are null."""
        return {
            "passed": self.passed,
            "widths": list(self.widths),
            "seeds": self.seeds,
            "steps": self.steps,
            "unseen": list(self.unseen),
            "layers": [
                {
                    "layer": layer.layer,
                    "role": layer.role.value,
                    "passed": layer.passed,
                    "settled": layer.settled,
                    **{name: plain_slope(getattr(layer, name)) for name in ("initial", "size", "change")},
                    "expected": {name: _finite(value) for name, value in asdict(layer.expected).items()},
                    "advice": advice(layer, self.exponents),
                    "warning": warning(layer),
                }
                for layer in self.layers
            ],
        }


def advice(layer: LayerCheck, exponents: Assessment) -> str | None:
    """Return what to change so that a layer passes; None if it does."""
    if layer.passed:
        return None
    if math.isnan(layer.size.value) or math.isnan(layer.change.value):
        return "its output is zero, unchanged or not finite: check that it trains, or lower the learning rate"
    if not layer.within(layer.initial):
        return (
            f"it starts out as n^{layer.initial.value:.2f}: initialization and multiplier together need "
            f"{_more_or_less(layer.initial.value)}"
        )
    failed = [slope for slope in (layer.change, layer.size) if not layer.within(slope)]
    worst = max(failed, key=lambda slope: abs(slope.value))
    what = "change" if worst is layer.change else "size"
    now, full = (_rate(case, layer.role) for case in (exponents, _full(exponents)))
    expected = layer.expected
    has_exponents = not math.isnan(expected.slope)  # not if it is tied, or beside Muon: its rate is not its role's
    if has_exponents and now != full:
        return f"the {layer.role} learning rate scales as n^{now}: under full alignment n^{full} is the largest stable"
    if expected.term == "inherited" and worst.value > 0:
        assumed = "above the 1/2 assumed" if expected.omega > 0.5 + layer.tolerance else "about the 1/2 assumed"
        return (
            f"its {what} grows as n^{worst.value:.2f}, and its change is inherited from the layers below, with "
            f"ω = {expected.omega:.2f}, {assumed}: look at those first, or lower their learning rates"
        )
    though = f", though its learning rate scales as n^{now}, as full alignment requires" if has_exponents else ""
    return f"its {what} scales as n^{worst.value:.2f}{though}: here the rate needs {_more_or_less(worst.value)}"


def warning(layer: LayerCheck) -> str | None:
    """Return a warning if a term that is small at these widths will dominate at larger ones, else None."""
    expected = layer.expected
    if math.isfinite(expected.takeover):
        where = f"from width {expected.takeover:.0f}" if expected.takeover >= 1 else "at every width"
        return (
            "part of the change of its inputs is aligned with its initial weights and moves the logits as n^1/2; this "
            f"part dominates {where}. Start with a smaller readout, as muP does (small_readout)"
        )
    if expected.fastest == expected.term or expected.fastest_slope <= layer.tolerance:
        return None
    return (
        f"the {expected.fastest} term of its change is not the largest at these widths, "
        f"but is expected to grow as n^{expected.fastest_slope:.2f}"
    )


def _grouped(messages: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return each message once, with all layers that it applies to."""
    layers: dict[str, list[str]] = {}
    for layer, message in messages:
        if message is not None:
            layers.setdefault(message, []).append(_short(layer))
    return [f"{', '.join(names)}: {message}." for message, names in layers.items()]


def _short(path: str) -> str:
    return path.removesuffix("/kernel").removesuffix("/embedding").removesuffix(".weight")


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value + 0:.2f}".replace("-0.00", "0.00")


def describe_slope(slope: Estimate) -> str:
    """Write a slope, with its interval if it has one."""
    if not math.isfinite(slope.low):
        return _number(slope.value)
    return f"{_number(slope.value)} [{_number(slope.low)}, {_number(slope.high)}]"


def _more_or_less(slope: float) -> str:
    return f"an exponent about {abs(slope):.2f} {'lower' if slope > 0 else 'higher'}"


def _full(exponents: Assessment) -> Assessment:
    return solve(exponents.parameterization, exponents.family, FULL)


def _rate(exponents: Assessment, role: Role) -> Fraction:
    assert exponents.rates is not None
    return -exponents.rates[INDEX[role]]


def plain_slope(estimate: Estimate) -> dict[str, Any]:
    """Return a slope as values for `json.dumps`."""
    return {"slope": _finite(estimate.value), "interval": [_finite(end) for end in estimate.interval]}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
