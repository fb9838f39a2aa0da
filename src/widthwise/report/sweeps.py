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

from widthwise.fit import Transfer
from widthwise.report import points, ticks
from widthwise.report.exhibits import Transfers
from widthwise.report.points import DrawnSize
from widthwise.report.showing import signed, size_along, with_interval
from widthwise.report.style import INK, PAPER, PARAMETERIZATIONS, label_panel, panel_grid, ramp
from widthwise.study.fits import GroupFit

FARTHEST = 3.0
"""The most octaves by which an error bar may stretch the axis."""
LEAST_SPAN = 3.0
"""The fewest octaves on an axis of learning rates."""


def draw(exhibit: Transfers) -> Figure:
    """Draw sweeps, a panel for each group."""
    figure, panels = panel_grid(len(exhibit.fits), width=2.5, heights=(2.4, 2.0), share_y=False)
    widths = sorted({trial.width for fit in exhibit.fits for trial in fit.trials})
    colours = dict(zip(widths, ramp(len(widths)), strict=True))
    limits = points.loss_limits(exhibit)
    spans = [_rate_span(fit.transfer) for fit in exhibit.fits]
    half = max([LEAST_SPAN, *(high - low for low, high in spans)]) / 2
    sizes = [points.by_size(panel, fit, limits) for panel, fit in enumerate(exhibit.fits)]
    groups = zip(exhibit.fits, sizes, exhibit.panels, exhibit.paper, spans, panels, strict=True)
    for fit, drawn, title, paper, (low, high), (above, below) in groups:
        _draw_losses(above, drawn, colours, limits)
        label_panel(above, title, "base learning rate", "eval loss")
        above.tick_params(labelleft=bool(above.get_ylabel()))
        middle = (low + high) / 2
        _draw_optima(below, fit, drawn, widths, (middle - half, middle + half))
        label_panel(below, "", size_along(fit.transfer.axis), "optimal learning rate")
        _write_exponent(below, fit.transfer, paper)
    _draw_legend(figure, colours, exhibit.fits[0].transfer.axis)
    return figure


def _draw_losses(axes: Axes, sizes: Sequence[DrawnSize], colours: dict[int, str], limits: tuple[float, float]) -> None:
    visible: list[float] = []
    for size in sizes:
        if size.optimum.edge.largest_stable is not None:
            _draw_size(axes, size, colours[size.curve.width])
            visible += np.log2([*size.means.x, *size.runs.x, *size.best_loss.x]).tolist()
    if visible:
        low, high = min(visible), max(visible)
        middle, reach = (low + high) / 2, max(high - low + 0.8, LEAST_SPAN) / 2
        ticks.octaves(axes, "x", middle - reach, middle + reach)
    else:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "every run diverged", transform=axes.transAxes, ha="center")
    axes.set_ylim(*limits)


def _draw_size(axes: Axes, size: DrawnSize, colour: str) -> None:
    """Draw a dot for each seed, a line for the mean, a cross for the largest stable rate, and a star."""
    means, runs, best, optimum = size.means, size.runs, size.best_loss, size.optimum
    rates, level = 2.0 ** size.curve.octaves[size.stable], np.exp(size.curve.level[size.stable])
    level = np.where(np.isfinite(level), level, np.nan)  # a seed may diverge below the optimum too
    if runs.x:
        axes.plot(runs.x, runs.y, ".", color=colour, gid=runs.gid, alpha=0.45, ms=2.5, mew=0)
    marked = np.flatnonzero(np.isin(rates, means.x)).tolist()
    axes.plot(rates, level, color=colour, gid=means.gid, marker="o", ms=2.2, markevery=marked, linewidth=1.3)
    if optimum.edge.smallest_unstable is not None:
        axes.plot(rates[-1], level[-1], color=colour, marker="x", markersize=5, mew=1.5, zorder=3)
    face = colour if optimum.interior else PAPER
    axes.plot(best.x, best.y, color=colour, gid=best.gid, marker="*", ms=10, mfc=face, mec=INK, mew=0.6, zorder=4)


def _rate_span(transfer: Transfer) -> tuple[float, float]:
    """Return log2 of the smallest and the largest rate that a lower panel has to show."""
    ends: list[float] = []
    for octave in (optimum.octaves for optimum in transfer.optima):
        if math.isfinite(octave.value):
            bounded = math.isfinite(octave.low)
            ends.append(max(octave.low, octave.value - FARTHEST) if bounded else octave.value)
            ends.append(min(octave.high, octave.value + FARTHEST) if bounded else octave.value)
    return min(ends, default=0.0) - 0.6, max(ends, default=0.0) + 0.6


def _draw_optima(
    axes: Axes, fit: GroupFit, sizes: Sequence[DrawnSize], widths: Sequence[int], span: tuple[float, float]
) -> None:
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
    for size in sizes:
        rate, best = size.optimum.learning_rate, size.best_rate
        if size.optimum.interior:
            bar = [[rate.value - rate.low], [min(rate.high, rate.value * 2**9) - rate.value]]
            bars = axes.errorbar(best.x, best.y, yerr=bar, color=colour, fmt="o", ms=4, elinewidth=1, capsize=2)
            bars.lines[0].set_gid(best.gid)
        else:
            axes.plot(best.x, best.y, "o", gid=best.gid, mfc=PAPER, mec=colour, markersize=5)
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
