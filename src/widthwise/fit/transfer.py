"""The verdict of a sweep over widths: does the learning rate tuned at a small width hold at a large one?

A wide interval around 0 is not evidence of transfer. The learning rate *transfers* if the whole interval of the
exponent is negligible in practice. It *drifts* if the interval excludes 0 and the exponent itself is not negligible.
Otherwise the sweep *cannot tell*.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from widthwise.fit.intervals import Estimate
from widthwise.fit.landscape import Landscape
from widthwise.fit.losslaw import LossLaw, fit_loss_law
from widthwise.fit.optimum import Optimum, find_optima
from widthwise.fit.powerlaw import PowerLaw, fit_power_law
from widthwise.fit.trials import Curve, Trial, curves

TOLERANCE = 0.125
"""The largest exponent that is negligible in practice: one grid step, 2^0.5, over a sixteenfold width."""

NEAR_ENOUGH = 0.25
"""How many octaves away a run may be that shows what a learning rate costs: half a step of the usual grid."""

WORSE = 0.01
"""The relative rise of the best loss with width that is more than the noise of a small run, about 0.5 %."""


GROWN = {"width": "wider", "depth": "deeper", "tokens": "longer", "together": "larger"}
"""What a larger run is called along the axes on which it should be better; a larger batch need not be."""
CALLED = {"together": "width"}
"""What a size is called, where it is not called as its axis."""


class TransferOutcome(StrEnum):
    """The outcome of a sweep with respect to transfer."""

    TRANSFERS = "transfers"
    DRIFTS = "drifts"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferVerdict:
    """The outcome of a sweep, and what it is based on.

    Attributes:
        outcome: The outcome.
        exponent: The exponent of the optimal learning rate.
        left_out: Widths whose optimum lies outside the range that was tried.
        worse: Widths whose best loss is worse than that of the next narrower one by more than `WORSE`. With a sound
            prescription wider is better, whatever the exponent says (docs/width-4096.md).
        axis: The name of the axis along which sizes differ. Where it is not width, all "widths" are sizes along it.
    """

    outcome: TransferOutcome
    exponent: Estimate
    left_out: tuple[int, ...] = ()
    worse: tuple[int, ...] = ()
    axis: str = "width"

    def __str__(self) -> str:
        known = f"exponent {self.exponent}" if math.isfinite(self.exponent.value) else "fewer than two optima known"
        widths = ", ".join(str(width) for width in self.left_out)
        called = CALLED.get(self.axis, self.axis)
        left_out = f" (optimum not inside what was tried at {called} {widths})" if widths else ""
        worse = f"; {GROWN[self.axis]} is worse at {called} {', '.join(map(str, self.worse))}" if self.worse else ""
        return f"{self.outcome}: {known}{left_out}{worse}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """The cost of reusing the optimal learning rate of the base width.

    Attributes:
        width: The width.
        eval_loss: The loss with that learning rate; infinite if it diverges, NaN if too far from what was tried.
        given_up: How much larger this is than the loss at the width's own optimum.
        stable: Whether that learning rate lies below the stability edge.
    """

    width: int
    eval_loss: float
    given_up: float
    stable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted optimal learning rate at a width."""

    width: int
    learning_rate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The results of one setting's sweep over learning rates and widths.

    Attributes:
        optima: The optimum at every width, in ascending order.
        law: The power law through the known optima.
        verdict: Whether the learning rate transfers.
        reuse: The cost at each width of reusing the optimal learning rate of the smallest width that has one.
        predictions: Optimal learning rates at the requested widths.
        loss_law: Loss at the optimum against parameters; None if the numbers of parameters are unknown.
    """

    optima: tuple[Optimum, ...]
    law: PowerLaw
    verdict: TransferVerdict
    reuse: tuple[Reuse, ...]
    predictions: tuple[Prediction, ...]
    loss_law: LossLaw | None

    @property
    def axis(self) -> str:
        """The name of the axis along which sizes differ."""
        return self.verdict.axis

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for `json.dumps`; infinite and unknown numbers are null."""
        law = self.loss_law
        return {
            "exponent": _number(self.law.exponent.value),
            "interval": _interval(self.law.exponent),
            "verdict": str(self.verdict.outcome),
            "summary": str(self.verdict),
            "optima": [{self.axis: optimum.width, **_optimum(optimum)} for optimum in self.optima],
            "reuse": [
                {self.axis if name == "width" else name: _number(value) for name, value in asdict(reuse).items()}
                for reuse in self.reuse
            ],
            "predictions": [
                {
                    self.axis: prediction.width,
                    "learning_rate": _number(prediction.learning_rate.value),
                    "interval": _interval(prediction.learning_rate),
                }
                for prediction in self.predictions
            ],
            "loss_law": law
            and {
                "irreducible": _number(law.irreducible.value),
                "irreducible_interval": _interval(law.irreducible),
                "exponent": _number(law.exponent.value),
                "exponent_interval": _interval(law.exponent),
                "amplitude": _number(law.amplitude),
            },
        }


def fit_transfer(
    trials: Iterable[Trial], *, predict: Sequence[int] = (), tolerance: float = TOLERANCE, axis: str = "width"
) -> Transfer:
    """Fit the sweep of one setting over learning rates and widths, or sizes along another axis.

    Args:
        trials: The runs, of any number of widths and seeds.
        predict: Widths whose optimal learning rate to predict.
        tolerance: The size of an exponent that does not matter in practice.
        axis: What the `width` of the trials stands for: width, depth, batch, tokens or together.
    """
    if not tolerance > 0:
        raise ValueError(f"tolerance is {tolerance}: expected a number above 0")
    by_width = curves(trials)
    if not by_width:
        raise ValueError("no trials: expected one or more")
    found = find_optima(by_width)
    optima, known, law = found.each, found.known, fit_power_law(found.runs)
    sizes = [
        (curve.parameters, optimum.eval_loss)
        for curve, optimum in zip(by_width, optima, strict=True)
        if curve.parameters is not None and optimum.interior
    ]
    return Transfer(
        optima=optima,
        law=law,
        verdict=TransferVerdict(
            outcome=judge(law.exponent, tolerance=tolerance),
            exponent=law.exponent,
            left_out=tuple(optimum.width for optimum in optima if not optimum.interior),
            worse=tuple(
                wide.width
                for narrow, wide in itertools.pairwise(known)
                if axis in GROWN and wide.eval_loss > narrow.eval_loss * (1 + WORSE)
            ),
            axis=axis,
        ),
        reuse=tuple(
            _reuse(curve, optimum, known[0], found.landscape)
            for curve, optimum in zip(by_width, optima, strict=True)
            if known
        ),
        predictions=tuple(Prediction(width=width, learning_rate=law.predict(width)) for width in predict),
        loss_law=fit_loss_law(*zip(*sizes, strict=True)) if sizes else None,
    )


def judge(exponent: Estimate, *, tolerance: float = TOLERANCE) -> TransferOutcome:
    """Return what an exponent with this interval means for transfer.

    >>> str(judge(Estimate(value=0.02, low=-0.05, high=0.09)))
    'transfers'
    >>> str(judge(Estimate(value=0.02, low=-0.55, high=0.59)))
    'cannot tell'
    >>> str(judge(Estimate(value=0.07, low=0.01, high=0.13)))  # not 0, but perhaps too small to matter
    'cannot tell'
    """
    if -tolerance <= exponent.low and exponent.high <= tolerance:
        return TransferOutcome.TRANSFERS
    negligible = abs(exponent.value) <= tolerance
    return TransferOutcome.CANNOT_TELL if negligible or exponent.contains(0.0) else TransferOutcome.DRIFTS


def _reuse(curve: Curve, optimum: Optimum, base: Optimum, landscape: Landscape | None) -> Reuse:
    learning_rate = base.learning_rate.value
    if optimum is base:
        loss = optimum.eval_loss
    elif landscape and optimum.fitted is not None and optimum.fitted[0] <= learning_rate <= optimum.fitted[1]:
        # Here the fit is more reliable than the noisy points.
        rise = landscape.rise(base.octaves.value - optimum.octaves.value, curve.width)
        loss = optimum.eval_loss * math.exp(rise)
    else:
        # The run that a precision adds for this may end up a little below the rate in question.
        highest = float(curve.octaves[-1])
        near = highest < base.octaves.value <= highest + NEAR_ENOUGH
        tried = math.exp(curve.level_at(highest if near else base.octaves.value))
        loss = tried if math.isnan(tried) else max(tried, optimum.eval_loss)
    unstable = optimum.edge.smallest_unstable
    return Reuse(
        width=curve.width,
        eval_loss=loss,
        given_up=loss - optimum.eval_loss,
        stable=unstable is None or learning_rate < unstable,
    )


def _optimum(optimum: Optimum) -> dict[str, Any]:
    learning_rate, edge = optimum.learning_rate, optimum.edge
    return {
        "learning_rate": _number(learning_rate.value),
        "interval": _interval(learning_rate),
        "eval_loss": _number(optimum.eval_loss),
        "interior": optimum.interior,
        "seeds": optimum.seeds,
        "curvature": _number(optimum.curvature.value),
        "curvature_interval": _interval(optimum.curvature),
        "largest_stable": edge.largest_stable,
        "smallest_unstable": edge.smallest_unstable,
        "edge_located": edge.located,
        "octaves_to_edge": optimum.octaves_to_edge,
    }


def _interval(estimate: Estimate) -> list[float | None]:
    return [_number(estimate.low), _number(estimate.high)]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
