"""The coordinate check: train a few steps at several widths and check that sizes do not change with width.

If activations and their changes neither grow nor shrink with width, what was tuned at one width holds at the next. For
every layer, the check estimates the slope of log size against log width, with a confidence interval over seeds.
Activations and their changes must have slope 0, logits and their change at most 0.

The result also contains the slope that the theory expects, given the prescribed exponents and the alignment measured
*in the same runs*. That alignment is a slope of log ratios over widths, because a ratio at one width, log_n, contains a
constant. The expectation explains a slope; it does not affect the verdict.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from widthwise.coordinates.measured import FIELDS, Measured, weights_of
from widthwise.fit import Estimate, exponent, fit_takeover, mean_of
from widthwise.scaling import text_table
from widthwise.theory import FULL, Assessment, Role, solve
from widthwise.theory.exact import HALF

Term: TypeAlias = Literal["updated", "inherited", "joint"]
"""The terms of a change: ΔW z⁰ (the layer's own update), W⁰Δz (from the layers below), ΔW Δz (both)."""

_INDEX = {Role.EMBEDDING: 0, Role.HIDDEN: 1, Role.READOUT: -1}


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
                _slope(layer.size),
                _slope(layer.change),
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
                    **{name: _plain(getattr(layer, name)) for name in ("initial", "size", "change")},
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
    if now != full:
        return f"the {layer.role} learning rate scales as n^{now}: under full alignment n^{full} is the largest stable"
    if expected.term == "inherited" and worst.value > 0:
        assumed = "above the 1/2 assumed" if expected.omega > 0.5 + layer.tolerance else "about the 1/2 assumed"
        return (
            f"its {what} grows as n^{worst.value:.2f}, and its change is inherited from the layers below, with "
            f"ω = {expected.omega:.2f}, {assumed}: look at those first, or lower their learning rates"
        )
    return (
        f"its {what} scales as n^{worst.value:.2f}, though its learning rate scales as n^{now}, as full alignment "
        f"requires: here it needs {_more_or_less(worst.value)}"
    )


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


def _slope(slope: Estimate) -> str:
    if not math.isfinite(slope.low):
        return _number(slope.value)
    return f"{_number(slope.value)} [{_number(slope.low)}, {_number(slope.high)}]"


def _more_or_less(slope: float) -> str:
    return f"an exponent about {abs(slope):.2f} {'lower' if slope > 0 else 'higher'}"


def _full(exponents: Assessment) -> Assessment:
    return solve(exponents.parameterization, exponents.family, FULL)


def _rate(exponents: Assessment, role: Role) -> Fraction:
    assert exponents.rates is not None
    return -exponents.rates[_INDEX[role]]


def _plain(estimate: Estimate) -> dict[str, Any]:
    return {"slope": _finite(estimate.value), "interval": [_finite(end) for end in estimate.interval]}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def judge(
    before: Sequence[Sequence[Measured]],
    after: Sequence[Sequence[Measured]],
    *,
    widths: tuple[int, ...],
    steps: int,
    tolerance: float,
    roles: Mapping[str, Role | None],
    products: Sequence[str],
    exponents: Assessment,
) -> CoordinateCheck:
    """Judge how the sizes of layers scale, from measurements before and after training.

    Args:
        before: Measurements before training, by width and seed.
        after: Measurements after training.
        widths: The widths, in ascending order.
        steps: The number of training steps.
        tolerance: The largest allowed distance of a slope from its bound.
        roles: The roles of the parameters by path; None for those that are not scaled.
        products: The paths of scaled weights that act in products, and should have been measured.
        exponents: The prescribed exponents.
    """
    seeds = len(after[0])
    slopes = _Slopes(widths, seeds, before, after)
    layers = [
        _judge(path, role, slopes, exponents, tolerance, tied=role is not roles[weights_of(path)[0]])
        for path in slopes.paths
        if (role := slopes.role(path, roles)) is not None
    ]
    seen = {weight for path in slopes.paths for weight in weights_of(path)}
    return CoordinateCheck(
        widths=widths,
        seeds=seeds,
        steps=steps,
        layers=tuple(layers),
        unseen=tuple(path for path in products if path not in seen),
        exponents=exponents,
    )


def checked_widths(widths: Sequence[int], *, seeds: int, steps: int, tolerance: float) -> tuple[int, ...]:
    """Return the widths in order; raise if the options of a check make no sense."""
    widths = tuple(sorted(set(widths)))
    if len(widths) < 2 or widths[0] < 1:
        raise ValueError(f"widths are {list(widths)}: expected two or more different ones")
    for name, value in (("seeds", seeds), ("steps", steps)):
        if value < 1:
            raise ValueError(f"{name} is {value}: expected 1 or more")
    if not tolerance > 0:
        raise ValueError(f"tolerance is {tolerance}: expected a number above 0")
    return widths


class _Slopes:
    """Slopes of the measurements against log width, one per seed."""

    def __init__(
        self,
        widths: Sequence[int],
        seeds: int,
        before: Sequence[Sequence[Measured]],
        after: Sequence[Sequence[Measured]],
    ) -> None:
        self.paths = after[0][0].paths
        self._widths, self._seeds = widths, seeds
        self._tables = {False: _tabulate(before), True: _tabulate(after)}

    def role(self, path: str, roles: Mapping[str, Role | None]) -> Role | None:
        """Return the role of a use. A tied embedding is a readout where it sums over inputs that grow."""
        role = roles[weights_of(path)[0]]
        fan_in = self._tables[True][path]["fan_in"]
        return Role.READOUT if role is Role.EMBEDDING and fan_in[0, 0] != fan_in[-1, 0] else role

    def size(self, path: str, name: str, *, trained: bool = True) -> Estimate:
        """Estimate the slope of a size."""
        table = self._tables[trained][path][name]
        return mean_of([exponent(self._widths, table[:, seed].tolist()) for seed in range(self._seeds)])

    def alignment(self, path: str, name: str) -> float:
        """Return the slope of log(rms(Wz) / (rms W · rms z)) over all seeds: α, ω or u."""
        table = self._tables[True][path]
        logs = (table[name] * np.log(np.maximum(table["fan_in"], 1))).mean(axis=1)
        if not np.isfinite(logs).all():
            return math.nan
        return statistics.linear_regression([math.log(width) for width in self._widths], logs.tolist()).slope

    def takeover(self, path: str) -> float:
        """Return the width from which most of W⁰Δz is aligned; NaN where seeds do not agree that any is."""
        sizes, largest = self._tables[True][path]["inherited"], self._widths[-1]
        if not (np.isfinite(sizes).all() and (sizes > 0).all()):
            return math.nan
        by_seed = [fit_takeover(self._widths, sizes[:, seed].tolist()) for seed in range(self._seeds)]
        if mean_of([found.share(largest) for found in by_seed]).low <= 0:
            return math.nan
        return fit_takeover(self._widths, np.sqrt(np.square(sizes).mean(axis=1)).tolist()).width

    def at_largest(self, path: str, name: str) -> float:
        """Return the mean size at the largest width."""
        return float(self._tables[True][path][name][-1].mean())


def _tabulate(measured: Sequence[Sequence[Measured]]) -> Mapping[str, Mapping[str, np.ndarray]]:
    """Return an array over widths and seeds, by layer and field."""
    paths = measured[0][0].paths
    if any(found.paths != paths for at_width in measured for found in at_width):
        raise ValueError("the layers of the model differ between widths: expected the same ones")
    columns = {
        name: np.stack([np.stack([getattr(found.values, name) for found in row]) for row in measured]).astype(float)
        for name in FIELDS
    }
    return {path: {name: columns[name][..., i] for name in FIELDS} for i, path in enumerate(paths)}


def _judge(
    path: str, role: Role, slopes: _Slopes, exponents: Assessment, tolerance: float, *, tied: bool
) -> LayerCheck:
    return LayerCheck(
        layer=path,
        role=role,
        initial=slopes.size(path, "output", trained=False),
        size=slopes.size(path, "output"),
        change=slopes.size(path, "output_change"),
        expected=_expect(path, role, slopes, exponents, tied=tied),
        tolerance=tolerance,
    )


def _expect(path: str, role: Role, slopes: _Slopes, exponents: Assessment, *, tied: bool) -> Expectation:
    """Return the largest of the three terms of the change, in exponents of n.

    A tied readout has the size of an embedding, and its inputs that of the logits: no exponents of the theory are its.
    """
    index = _INDEX[role]
    layer = exponents.parameterization.layers[index]
    assert exponents.rates is not None
    assert exponents.gradients is not None
    d = exponents.family.update(b=layer.b, c=exponents.rates[index], g=exponents.gradients.trained[index])
    moved = -float(layer.a + d)
    if role is Role.EMBEDDING:  # its sum does not grow, and its input does not change
        return Expectation(slope=moved, term="updated", fastest="updated", fastest_slope=moved)
    alpha, omega, u = (slopes.alignment(path, name) for name in ("alpha", "omega", "u"))
    entered = slopes.size(path, "input_change").value
    terms: dict[Term, float] = {
        "updated": alpha + moved,
        "inherited": omega - float(layer.total) + entered,
        "joint": u + moved + entered,
    }
    term: Term = max(terms, key=lambda name: slopes.at_largest(path, name))
    if tied:
        unknown = math.nan
        return Expectation(slope=unknown, term=term, fastest=term, fastest_slope=unknown, alpha=alpha, omega=omega, u=u)
    fastest: Term = max(terms, key=lambda name: terms[name] if math.isfinite(terms[name]) else -math.inf)
    starts_large = role is Role.READOUT and layer.total == HALF
    return Expectation(
        slope=terms[term],
        term=term,
        fastest=fastest,
        fastest_slope=terms[fastest],
        alpha=alpha,
        omega=omega,
        u=u,
        takeover=slopes.takeover(path) if starts_large else math.nan,
    )
