"""The figure of a sweep, in the paper's form: loss against learning rate, and below it the optimal rate against width.

The upper panels show stable learning rates only. All lower panels span the same number of octaves, so that exponents
can be compared by eye.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from widthwise.fit import Curve, Optimum, Transfer, curves
from widthwise.report import ticks
from widthwise.report.exhibits import Transfers
from widthwise.report.showing import signed, with_interval
from widthwise.report.style import INK, PAPER, PARAMETERIZATIONS, label_panel, panel_grid, ramp
from widthwise.study.fits import GroupFit

HIGHEST = 1.35
"""The most that the vertical axis may exceed the best loss: losses at tiny rates may be cut off."""
FARTHEST = 3.0
"""The most octaves by which an error bar may stretch the axis."""
LEAST_SPAN = 3.0
"""The fewest octaves on an axis of learning rates."""


def draw(exhibit: Transfers) -> Figure:
    """Draw sweeps, a panel for each group."""
    figure, panels = panel_grid(len(exhibit.fits), width=2.5, heights=(2.4, 2.0), share_y=False)
    widths = sorted({trial.width for fit in exhibit.fits for trial in fit.trials})
    colours = dict(zip(widths, ramp(len(widths)), strict=True))
    limits = _loss_limits(exhibit.fits)
    spans = [_rate_span(fit.transfer) for fit in exhibit.fits]
    half = max([LEAST_SPAN, *(high - low for low, high in spans)]) / 2
    groups = zip(exhibit.fits, exhibit.panels, exhibit.paper, spans, panels, strict=True)
    for fit, title, paper, (low, high), (above, below) in groups:
        _draw_losses(above, fit, colours, limits)
        label_panel(above, title, "base learning rate", "eval loss")
        above.tick_params(labelleft=bool(above.get_ylabel()))
        middle = (low + high) / 2
        _draw_optima(below, fit, widths, (middle - half, middle + half))
        label_panel(below, "", fit.transfer.axis, "optimal learning rate")
        _write_exponent(below, fit.transfer, paper)
    _draw_legend(figure, colours, exhibit.fits[0].transfer.axis)
    return figure


def _draw_losses(axes: Axes, fit: GroupFit, colours: dict[int, str], limits: tuple[float, float]) -> None:
    visible: list[float] = []
    for curve, optimum in zip(curves(fit.trials), fit.transfer.optima, strict=True):
        visible += _draw_width(axes, curve, optimum, colours[curve.width], limits[1])
    if visible:
        low, high = min(visible), max(visible)
        middle, reach = (low + high) / 2, max(high - low + 0.8, LEAST_SPAN) / 2
        ticks.octaves(axes, "x", middle - reach, middle + reach)
    else:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "every run diverged", transform=axes.transAxes, ha="center")
    axes.set_ylim(*limits)


def _draw_width(axes: Axes, curve: Curve, optimum: Optimum, colour: str, highest: float) -> list[float]:
    """Draw the losses at a width's stable rates, and return log2 of the rates whose loss is in the panel."""
    largest = optimum.edge.largest_stable
    if largest is None:
        return []
    stable = curve.octaves <= math.log2(largest) + 1e-6
    octaves, level = curve.octaves[stable], np.exp(curve.level[stable])
    level = np.where(np.isfinite(level), level, np.nan)  # a seed may diverge below the optimum too
    if len(curve.losses) > 1:
        losses = np.exp(np.where(np.isfinite(curve.losses[:, stable]), curve.losses[:, stable], np.nan))
        axes.plot(2.0 ** np.tile(octaves, len(losses)), losses.ravel(), ".", color=colour, alpha=0.45, ms=2.5, mew=0)
    axes.plot(2.0**octaves, level, color=colour, marker="o", markersize=2.2, linewidth=1.3)
    if optimum.edge.smallest_unstable is not None:
        axes.plot(largest, level[-1], color=colour, marker="x", markersize=5, mew=1.5, zorder=3)
    best, loss = optimum.learning_rate.value, optimum.eval_loss
    face = colour if optimum.interior else PAPER
    axes.plot(best, loss, color=colour, marker="*", markersize=10, mfc=face, mec=INK, mew=0.6, zorder=4)
    return octaves[level <= highest].tolist()


def _loss_limits(fits: Sequence[GroupFit]) -> tuple[float, float]:
    """Return the vertical limits that all upper panels share."""
    best = [each.eval_loss for fit in fits for each in fit.transfer.optima if math.isfinite(each.eval_loss)]
    if not best:
        return 0.0, 1.0
    stable: list[float] = []
    for fit in fits:
        edges = {optimum.width: optimum.edge.largest_stable or 0 for optimum in fit.transfer.optima}
        stable += [trial.eval_loss for trial in fit.trials if trial.learning_rate <= edges[trial.width] * 1.0001]
    highest = min(max([*filter(math.isfinite, stable), *best]), HIGHEST * min(best), 1.22 * max(best))
    highest = max(highest, 1.02 * max(best))
    margin = 0.06 * (highest - min(best))
    return min(best) - margin, highest + margin


def _rate_span(transfer: Transfer) -> tuple[float, float]:
    """Return log2 of the smallest and the largest rate that a lower panel has to show."""
    ends: list[float] = []
    for octave in (optimum.octaves for optimum in transfer.optima):
        if math.isfinite(octave.value):
            bounded = math.isfinite(octave.low)
            ends.append(max(octave.low, octave.value - FARTHEST) if bounded else octave.value)
            ends.append(min(octave.high, octave.value + FARTHEST) if bounded else octave.value)
    return min(ends, default=0.0) - 0.6, max(ends, default=0.0) + 0.6


def _draw_optima(axes: Axes, fit: GroupFit, widths: Sequence[int], span: tuple[float, float]) -> None:
    colour = PARAMETERIZATIONS.get(fit.names.get("parameterization", ""), INK)
    law = fit.transfer.law
    if law.landscape is not None:
        along = np.geomspace(max(1, law.widths[0] * 2**-0.15), law.widths[-1] * 2**0.15, 40)
        fitted = [law.at(width) for width in along.tolist()]
        low, value, high = (
            np.clip([getattr(each, name) for each in fitted], 2.0 ** (span[0] - 9), 2.0 ** (span[1] + 9))
            for name in ("low", "value", "high")
        )
        axes.fill_between(along, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(along, value, color=colour, linewidth=1.2)
    for optimum in fit.transfer.optima:
        width, rate = optimum.width, optimum.learning_rate
        if not math.isfinite(rate.value):
            continue
        if optimum.interior:
            bar = [[rate.value - rate.low], [min(rate.high, rate.value * 2**9) - rate.value]]
            axes.errorbar(width, rate.value, yerr=bar, color=colour, fmt="o", markersize=4, elinewidth=1, capsize=2)
        else:
            axes.plot(width, rate.value, "o", mfc=PAPER, mec=colour, markersize=5)
    ticks.sizes(axes, widths)
    axes.set_xlim(widths[0] * 2**-0.3, widths[-1] * 2**0.3)
    ticks.octaves(axes, "y", *span)


def _write_exponent(axes: Axes, transfer: Transfer, paper: float | None) -> None:
    exponent = transfer.law.exponent
    text = with_interval(exponent) if math.isfinite(exponent.value) else "not known"
    axes.set_title(f"exponent {text}", fontsize=8, loc="left", pad=5 if paper is None else 16)
    if paper is not None:
        above = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8, "fontstyle": "italic"}
        axes.annotate(f"paper: {signed(paper)}", (0, 1), (0, 5), **above)


def _draw_legend(figure: Figure, colours: dict[int, str], axis: str) -> None:
    mark: dict[str, Any] = {"linestyle": "none", "color": INK}
    handles = [
        *(Line2D([], [], color=colour, linewidth=2.2, label=str(width)) for width, colour in colours.items()),
        Line2D([], [], **mark, marker="*", markersize=9, label="optimum"),
        Line2D([], [], **mark, marker="*", markersize=9, mfc="none", mew=0.7, label="at the edge of\nwhat was tried"),
        Line2D([], [], **mark, marker="x", markersize=5, mew=1.5, label="largest\nstable rate"),
    ]
    figure.legend(handles=handles, loc="outside right upper", title=axis, alignment="left", handlelength=1.4)
