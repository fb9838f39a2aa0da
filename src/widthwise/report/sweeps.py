"""The figure of a sweep, in the paper's form: loss against learning rate, and below it the optimal rate against width.

Above, only stable learning rates are drawn: what lies beyond the edge says nothing but that it diverged. Below, all
panels span the same number of octaves, so that exponents can be compared by eye.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from widthwise.experiments.exhibits import Transfers
from widthwise.experiments.showing import signed, with_interval
from widthwise.fit import Curve, Optimum, Transfer, curves
from widthwise.report import ticks
from widthwise.report.style import INK, PAPER, PARAMETERIZATIONS, entitle, grid_of, plain, ramp
from widthwise.sweep.fits import GroupFit

HIGHEST = 1.35
"""How far over the best loss of the figure the vertical axis may reach: rates far too small need not be seen whole."""
FARTHEST = 3.0
"""How many octaves from an optimum its error bar may stretch the axis."""

LEAST_SPAN = 3.0
"""How many octaves an axis of learning rates has at least."""


def draw(exhibit: Transfers) -> Figure:
    """Draw sweeps: a panel for each group."""
    figure, panels = grid_of(len(exhibit.fits), width=2.5, heights=(2.4, 2.0), share_y=False)
    widths = sorted({trial.width for fit in exhibit.fits for trial in fit.trials})
    colours = dict(zip(widths, ramp(len(widths)), strict=True))
    limits = _loss_limits(exhibit.fits)
    spans = [_octaves(fit.transfer) for fit in exhibit.fits]
    tallest = max([LEAST_SPAN, *(high - low for low, high in spans)])
    for place, (fit, heading, paper) in enumerate(zip(exhibit.fits, exhibit.panels, exhibit.paper, strict=True)):
        above, below = panels[place]
        entitle(above, heading)
        _losses(above, fit, colours, limits)
        middle = sum(spans[place]) / 2
        _optima(below, fit, widths, (middle - tallest / 2, middle + tallest / 2))
        _exponent(below, fit.transfer, paper)
        if place % 4 == 0:
            above.set_ylabel("eval loss")
            below.set_ylabel("optimal learning rate")
        else:
            above.tick_params(labelleft=False)
    _legend(figure, colours)
    return figure


def _losses(axes: Axes, fit: GroupFit, colours: dict[int, str], limits: tuple[float, float]) -> None:
    drawn: list[float] = []
    for curve, optimum in zip(curves(fit.trials), fit.transfer.optima, strict=True):
        drawn += _curve(axes, curve, optimum, colours[curve.width], limits[1])
    if drawn:
        middle, reach = (min(drawn) + max(drawn)) / 2, max(max(drawn) - min(drawn) + 0.8, LEAST_SPAN) / 2
        ticks.octaves(axes, "x", middle - reach, middle + reach)
    else:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "every run diverged", transform=axes.transAxes, ha="center")
    axes.set_ylim(*limits)
    axes.set_xlabel("base learning rate")
    plain(axes)


def _curve(axes: Axes, curve: Curve, optimum: Optimum, colour: str, highest: float) -> list[float]:
    """Draw a width's stable rates; give, as log2, those that are in sight."""
    largest = optimum.edge.largest_stable
    if largest is None:
        return []
    stable = curve.octaves <= math.log2(largest) + 1e-6
    places, level = curve.octaves[stable], np.exp(curve.level[stable])
    level = np.where(np.isfinite(level), level, np.nan)  # below the optimum too, a seed may diverge
    if len(curve.losses) > 1:
        losses = np.exp(np.where(np.isfinite(curve.losses[:, stable]), curve.losses[:, stable], np.nan))
        axes.plot(2.0 ** np.tile(places, len(losses)), losses.ravel(), ".", color=colour, alpha=0.45, ms=2.5, mew=0)
    axes.plot(2.0**places, level, color=colour, marker="o", markersize=2.2, linewidth=1.3)
    if optimum.edge.smallest_unstable is not None:
        axes.plot(largest, level[-1], color=colour, marker="x", markersize=5, mew=1.5, zorder=3)
    best, loss = optimum.learning_rate.value, optimum.eval_loss
    face = colour if optimum.interior else PAPER
    axes.plot(best, loss, color=colour, marker="*", markersize=10, mfc=face, mec=INK, mew=0.6, zorder=4)
    return [float(place) for place, loss in zip(places, level, strict=True) if loss <= highest]


def _loss_limits(fits: Sequence[GroupFit]) -> tuple[float, float]:
    """Give the vertical limits that all panels share."""
    optima = [optimum for fit in fits for optimum in fit.transfer.optima if math.isfinite(optimum.eval_loss)]
    if not optima:
        return 0.0, 1.0
    losses = [optimum.eval_loss for optimum in optima]
    stable = [
        trial.eval_loss
        for fit in fits
        for trial in fit.trials
        if math.isfinite(trial.eval_loss)
        for optimum in fit.transfer.optima
        if optimum.width == trial.width and trial.learning_rate <= (optimum.edge.largest_stable or 0) * 1.0001
    ]
    highest = min(max([*stable, *losses]), HIGHEST * min(losses), 1.22 * max(losses))
    highest = max(highest, 1.02 * max(losses))
    margin = 0.06 * (highest - min(losses))
    return min(losses) - margin, highest + margin


def _optima(axes: Axes, fit: GroupFit, widths: Sequence[int], span: tuple[float, float]) -> None:
    colour = PARAMETERIZATIONS.get(fit.names["parameterization"], INK)
    law = fit.transfer.law
    if law.line is not None:
        along = np.linspace(math.log2(law.widths[0]) - 0.15, math.log2(law.widths[-1]) + 0.15, 40)
        fitted = [law.line.at([1.0, octave]).estimate for octave in along]
        low, value, high = (
            np.exp2(np.clip([getattr(each, name) for each in fitted], span[0] - 9, span[1] + 9))
            for name in ("low", "value", "high")
        )
        axes.fill_between(np.exp2(along), low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(np.exp2(along), value, color=colour, linewidth=1.2)
    for optimum in fit.transfer.optima:
        _optimum(axes, optimum, colour)
    ticks.sizes(axes, "x", widths)
    axes.set_xlim(widths[0] * 2**-0.3, widths[-1] * 2**0.3)
    ticks.octaves(axes, "y", *span)
    axes.set_xlabel("width")
    plain(axes)


def _optimum(axes: Axes, optimum: Optimum, colour: str) -> None:
    rate = optimum.learning_rate
    if not math.isfinite(rate.value):
        return
    if optimum.interior:
        bar = [[rate.value - rate.low], [min(rate.high, rate.value * 2**9) - rate.value]]
        axes.errorbar(optimum.width, rate.value, yerr=bar, color=colour, fmt="o", markersize=4, elinewidth=1, capsize=2)
    else:
        axes.plot(optimum.width, rate.value, "o", mfc=PAPER, mec=colour, markersize=5)


def _octaves(transfer: Transfer) -> tuple[float, float]:
    """Give the lowest and the highest octave that have to be in sight."""
    ends = [0.0]
    known = [optimum.octaves.estimate for optimum in transfer.optima if math.isfinite(optimum.octaves.value)]
    if known:
        ends = [
            place
            for octave in known
            for place in (
                octave.value,
                *(
                    (max(octave.low, octave.value - FARTHEST), min(octave.high, octave.value + FARTHEST))
                    if math.isfinite(octave.low)
                    else ()
                ),
            )
        ]
    return min(ends) - 0.6, max(ends) + 0.6


def _exponent(axes: Axes, transfer: Transfer, paper: float | None) -> None:
    exponent = transfer.law.exponent
    known = with_interval(exponent) if math.isfinite(exponent.value) else "not known"
    axes.set_title(f"exponent {known}", fontsize=8, loc="left", pad=5 if paper is None else 16)
    if paper is not None:
        above = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8, "fontstyle": "italic"}
        axes.annotate(f"paper: {signed(paper)}", (0, 1), (0, 5), **above)


def _legend(figure: Figure, colours: dict[int, str]) -> None:
    def mark(**style: object) -> Line2D:
        return Line2D([], [], linestyle="none", color=INK, **style)  # pyright: ignore[reportArgumentType]

    entries = {str(width): Line2D([], [], color=colour, linewidth=2.2) for width, colour in colours.items()}
    marks = {
        "optimum": mark(marker="*", markersize=9),
        "at the edge of\nwhat was tried": mark(marker="*", markersize=9, mfc="none", mew=0.7),
        "largest\nstable rate": mark(marker="x", markersize=5, mew=1.5),
    }
    figure.legend(
        [*entries.values(), *marks.values()],
        [*entries, *marks],
        loc="outside right upper",
        title="width",
        alignment="left",
        handlelength=1.4,
    )
