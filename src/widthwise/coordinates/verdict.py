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
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from widthwise.coordinates.measured import FIELDS, Measured, weights_of
from widthwise.coordinates.result import INDEX, CoordinateCheck, Expectation, LayerCheck, Term
from widthwise.fit import Estimate, exponent, fit_takeover, mean_of
from widthwise.theory import Assessment, Role
from widthwise.theory.exact import HALF


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
    apart: Collection[str] = (),
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
        apart: The paths of weights whose updates do not have the exponents of their role: hidden ones beside Muon.
    """
    seeds = len(after[0])
    slopes = _Slopes(widths, seeds, before, after)
    layers = [
        _judge(
            path,
            role,
            slopes,
            exponents,
            tolerance,
            own=role is not roles[weights_of(path)[0]] or not set(weights_of(path)).isdisjoint(apart),
        )
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


def checked_widths(
    widths: Sequence[int], *, seeds: int, steps: int, tolerance: float, called: str = "width"
) -> tuple[int, ...]:
    """Return the widths, or sizes of another name, in order; raise if the options of a check make no sense."""
    widths = tuple(sorted(set(widths)))
    if widths and widths[0] < 1:
        raise ValueError(f"a {called} is {widths[0]}: expected 1 or more")
    if len(widths) < 2:
        raise ValueError(f"{called}s are {list(widths)}: expected two or more different ones")
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


def _judge(path: str, role: Role, slopes: _Slopes, exponents: Assessment, tolerance: float, *, own: bool) -> LayerCheck:
    return LayerCheck(
        layer=path,
        role=role,
        initial=slopes.size(path, "output", trained=False),
        size=slopes.size(path, "output"),
        change=slopes.size(path, "output_change"),
        expected=_expect(path, role, slopes, exponents, own=own),
        tolerance=tolerance,
    )


def _expect(path: str, role: Role, slopes: _Slopes, exponents: Assessment, *, own: bool) -> Expectation:
    """Return the largest of the three terms of the change, in exponents of n.

    Those that scale in a way of their own have no exponents of the theory: a tied readout, which has the size of an
    embedding, and whose inputs have that of the logits; and hidden weights beside Muon.
    """
    index = INDEX[role]
    layer = exponents.parameterization.layers[index]
    assert exponents.rates is not None
    assert exponents.gradients is not None
    family = exponents.family.at(role)
    d = family.update(b=layer.b, c=exponents.rates[index], g=exponents.gradients.trained[index])
    moved = -float(layer.a + d)
    if role is Role.EMBEDDING:  # its sum does not grow, and its input does not change
        return Expectation(slope=moved, term="updated", fastest="updated", fastest_slope=moved)
    alpha, omega, u = (slopes.alignment(path, name) for name in ("alpha", "omega", "u"))
    entered = slopes.size(path, "input_change").value
    # An isometric update of low rank has smaller entries than d says, and is as much more aligned with its inputs.
    updated, joint = (0.5, 0.5) if family.isometric else (alpha, u)
    terms: dict[Term, float] = {
        "updated": updated + moved,
        "inherited": omega - float(layer.total) + entered,
        "joint": joint + moved + entered,
    }
    term: Term = max(terms, key=lambda name: slopes.at_largest(path, name))
    if own:
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
