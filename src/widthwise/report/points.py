"""The points of sweeps, lines and alignment in figures, and what a page says about each when the pointer is on it.

A figure and its texts are made of the same points, in the same order. The markers of a figure are in groups with names,
which tell where a text belongs. Only what can be seen is a point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widthwise.coordinates import AlignmentPoint
from widthwise.fit import Curve, Estimate, Optimum, curves
from widthwise.report.exhibits import AlignmentCurves, AnyExhibit, Lines, Series, Transfers
from widthwise.study.fits import GroupFit

HIGHEST = 1.35
"""The most that the vertical axis may exceed the best loss: losses at tiny rates may be cut off."""


@dataclass(frozen=True, kw_only=True)
class Markers:
    """A group of markers.

    Attributes:
        name: The name of the group in the file.
        x: Where they are.
        y: Where they are.
        texts: What to say about each, in lines.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    texts: tuple[str, ...]

    @property
    def gid(self) -> str | None:
        """The name for Matplotlib; None if there is no marker to be found by it."""
        return self.name if self.x else None


@dataclass(frozen=True, kw_only=True)
class DrawnSize:
    """What is drawn of a width, or of another size along the axis.

    Attributes:
        curve: The losses.
        optimum: The optimum.
        stable: Which rates of the curve are stable.
        means: The mean losses at stable rates; with one seed, these are its runs.
        runs: The losses of all seeds at stable rates; none if there is but one seed.
        best_loss: The optimum among losses.
        best_rate: The optimum among rates against width.
    """

    curve: Curve
    optimum: Optimum
    stable: np.ndarray
    means: Markers
    runs: Markers
    best_loss: Markers
    best_rate: Markers

    @property
    def points(self) -> tuple[Markers, ...]:
        """All of its points."""
        return self.means, self.runs, self.best_loss, self.best_rate


def texts(exhibit: AnyExhibit) -> dict[str, tuple[str, ...]]:
    """Return what to say about the points of a figure, by the name of their group."""
    match exhibit:
        case Transfers():
            return _of_sweeps(exhibit)
        case Lines():
            return {
                line_name(panel, index): of_line(exhibit, series)
                for panel, one in enumerate(exhibit.panels)
                for index, series in enumerate(one.series)
                if of_line(exhibit, series)
            }
        case AlignmentCurves():
            return {
                points.name: points.texts
                for panel, run in enumerate(exhibit.panels.values())
                for points in of_layers(panel, run).values()
            }
        case _:
            return {}


def of_layers(panel: int, run: Sequence[AlignmentPoint]) -> dict[str, Markers]:
    """Return the alignment of each layer of a run, by its path, without layers that have no ratio, such as lookups."""
    found: dict[str, Markers] = {}
    for index, path in enumerate(run[0].layers):
        known = [(point.step, point.layers[path]["ratio"]) for point in run]
        known = [(step, ratio) for step, ratio in known if math.isfinite(ratio)]
        if known:
            found[path] = Markers(
                name=line_name(panel, index),
                x=tuple(max(step, 0.5) for step, _ in known),  # a place for step 0 on a logarithmic axis
                y=tuple(ratio for _, ratio in known),
                texts=tuple(f"{path}\nstep {step}, log alignment ratio {ratio:.3f}" for step, ratio in known),
            )
    return found


def line_name(panel: int, index: int) -> str:
    """Return the name of the markers of a line."""
    return f"line-{panel}-{index}"


def of_line(exhibit: Lines, series: Series) -> tuple[str, ...]:
    """Return what to say about the points of a line; what has no place on its axes is not drawn."""
    found: list[str] = []
    for place, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not exhibit.log_x) and (y > 0 or not exhibit.log_y):
            text = f"{series.name}\n{exhibit.x_label} {x:.6g}, {exhibit.y_label} {y:.4g}"
            if series.intervals:
                text += " [{:.4g}, {:.4g}]".format(*series.intervals[place])
            found.append(text)
    return tuple(found)


def _of_sweeps(exhibit: Transfers) -> dict[str, tuple[str, ...]]:
    limits = loss_limits(exhibit)
    sizes = [size for panel, fit in enumerate(exhibit.fits) for size in by_size(panel, fit, limits)]
    return {points.name: points.texts for size in sizes for points in size.points if points.gid}


def by_size(panel: int, fit: GroupFit, limits: tuple[float, float]) -> list[DrawnSize]:
    """Return what is drawn of a group, whose losses are seen between these limits."""
    pairs = zip(curves(fit.trials), fit.transfer.optima, strict=True)
    return [_size(f"{panel}-{curve.width}", fit.transfer.axis, curve, optimum, limits) for curve, optimum in pairs]


def _size(place: str, axis: str, curve: Curve, optimum: Optimum, limits: tuple[float, float]) -> DrawnSize:
    stable = curve.octaves <= math.log2(optimum.edge.largest_stable or 2.0**-1000) + 1e-6
    seeds = [f"seed {seed}" for seed in curve.seeds]
    several = len(seeds) > 1

    def runs(kind: str, levels: np.ndarray, names: Sequence[str]) -> Markers:
        losses = np.exp(levels)
        rows, columns = np.nonzero(stable & (losses >= limits[0]) & (losses <= limits[1]))
        rates: list[float] = (2.0 ** curve.octaves[columns]).tolist()
        seen: list[float] = losses[rows, columns].tolist()
        return Markers(
            name=f"{kind}-{place}",
            x=tuple(rates),
            y=tuple(seen),
            texts=tuple(
                f"{axis} {curve.width}, {names[row]}\nlearning rate {rate:.3g}, eval loss {loss:.4f}"
                for row, rate, loss in zip(rows.tolist(), rates, seen, strict=True)
            ),
        )

    def best(kind: str, x: float, y: float, text: str) -> Markers:
        known = math.isfinite(x) and math.isfinite(y)
        return Markers(name=f"{kind}-{place}", x=(x,) * known, y=(y,) * known, texts=(text,) * known)

    rate, loss = optimum.learning_rate, optimum.eval_loss
    heading = f"{'optimum' if optimum.interior else 'best of those tried'} at {axis} {curve.width}"
    found = f"{heading}\nlearning rate {_rate(rate)}"
    return DrawnSize(
        curve=curve,
        optimum=optimum,
        stable=stable,
        means=runs("means", curve.level[None], ["mean of the seeds"] if several else seeds),
        runs=runs("runs", curve.losses[: len(seeds) * several], seeds),
        best_loss=best("optimum", rate.value, loss, f"{found}, eval loss {loss:.4f}"),
        best_rate=best("rate", curve.width, rate.value, found),
    )


def loss_limits(exhibit: Transfers) -> tuple[float, float]:
    """Return the vertical limits that all panels of losses share."""
    fits = exhibit.fits
    best = [each.eval_loss for fit in fits for each in fit.transfer.optima if math.isfinite(each.eval_loss)]
    if not best:
        return 0.0, 1.0
    losses: list[float] = []
    for fit in fits:
        edges = {optimum.width: optimum.edge.largest_stable or 0 for optimum in fit.transfer.optima}
        losses += [trial.eval_loss for trial in fit.trials if trial.learning_rate <= edges[trial.width] * 1.0001]
    highest = min(max([*filter(math.isfinite, losses), *best]), HIGHEST * min(best), 1.22 * max(best))
    highest = max(highest, 1.02 * max(best))
    margin = 0.06 * (highest - min(best))
    return min(best) - margin, highest + margin


def _rate(rate: Estimate) -> str:
    known = math.isfinite(rate.high) and rate.low > 0
    return f"{rate.value:.3g} " + (f"[{rate.low:.3g}, {rate.high:.3g}]" if known else "[interval unknown]")
