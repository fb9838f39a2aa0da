"""Fits for people: a table for each group, and the verdict."""

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table

from widthwise.cli.output import Output
from widthwise.fit import Estimate, Optimum
from widthwise.sweep.fits import GroupFit

HEADINGS = (
    "width",
    "optimal learning rate",
    "95 % interval",
    "loss there",
    "stability edge",
    "loss with the base's rate",
)


def show_fits(fits: Sequence[GroupFit], output: Output) -> None:
    """Add a table and a verdict for each group."""
    for fit in fits:
        output.lines(fit.title)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for heading in HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        reuse = {each.width: each for each in fit.transfer.reuse}
        for optimum in fit.transfer.optima:
            reused = reuse.get(optimum.width)
            table.add_row(
                str(optimum.width),
                rate(optimum.learning_rate.value) + ("" if optimum.interior else " ?"),
                interval(optimum.learning_rate),
                loss(optimum.eval_loss),
                _edge(optimum),
                "–" if reused is None else loss(reused.eval_loss),
            )
        output.table(table)
        for prediction in fit.transfer.predictions:
            predicted = prediction.learning_rate
            output.lines(f"predicted for width {prediction.width}: {rate(predicted.value)} {interval(predicted)}")
        output.lines(str(fit.transfer.verdict), "")


def rate(value: float) -> str:
    """Write a learning rate."""
    return f"{value:.3g}" if math.isfinite(value) else "–"


def interval(estimate: Estimate) -> str:
    """Write the interval of a learning rate."""
    if not (math.isfinite(estimate.high) and estimate.low > 0):
        return "unknown"
    return f"[{rate(estimate.low)}, {rate(estimate.high)}]"


def loss(value: float) -> str:
    """Write a loss."""
    return "diverged" if math.isinf(value) else "–" if math.isnan(value) else f"{value:.4f}"


def _edge(optimum: Optimum) -> str:
    below, above = optimum.edge.largest_stable, optimum.edge.smallest_unstable
    if above is None:
        return "–" if below is None else f"above {rate(below)}"
    return f"below {rate(above)}" if below is None else f"{rate(below)} to {rate(above)}"
