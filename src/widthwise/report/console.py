"""What a sweep found, as text for a console."""

import math

from widthwise.fit import Estimate, Optimum, Transfer
from widthwise.scaling import text_table

HEADINGS = (
    "optimal learning rate",
    "95 % interval",
    "loss there",
    "stability edge",
    "loss with the base's rate",
)


def describe_transfer(transfer: Transfer) -> list[str]:
    """Return a table of optima, predictions, the verdict, and what it costs to reuse the rate of the smallest width."""
    reuse = {each.width: _loss(each.eval_loss) for each in transfer.reuse}
    rows = [
        (
            str(optimum.width),
            _rate(optimum.learning_rate.value) + ("" if optimum.interior else " ?"),
            _interval(optimum.learning_rate),
            _loss(optimum.eval_loss),
            _edge(optimum),
            reuse.get(optimum.width, "–"),
        )
        for optimum in transfer.optima
    ]
    headings = (transfer.axis, *HEADINGS)
    lines = [text_table(headings, rows, right=range(len(headings)))]
    for prediction in transfer.predictions:
        predicted = prediction.learning_rate
        lines.append(
            f"predicted for {transfer.axis} {prediction.width}: {_rate(predicted.value)} {_interval(predicted)}"
        )
    return [*lines, str(transfer.verdict), *_cost(transfer)]


def _cost(transfer: Transfer) -> list[str]:
    known = [optimum.width for optimum in transfer.optima if optimum.interior]
    if len(known) < 2 or math.isnan((last := transfer.reuse[-1]).eval_loss):
        return []
    share = 100 * last.given_up / (last.eval_loss - last.given_up)
    cost = "diverges" if math.isinf(last.eval_loss) else f"costs {last.given_up:.4f} ({share:.2f} %)"
    return [f"reusing the rate of {transfer.axis} {known[0]} at {transfer.axis} {last.width} {cost}"]


def _rate(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"


def _interval(estimate: Estimate) -> str:
    if not (math.isfinite(estimate.high) and estimate.low > 0):
        return "unknown"
    return f"[{_rate(estimate.low)}, {_rate(estimate.high)}]"


def _loss(value: float) -> str:
    return "diverged" if math.isinf(value) else "–" if math.isnan(value) else f"{value:.4f}"


def _edge(optimum: Optimum) -> str:
    below, above = optimum.edge.largest_stable, optimum.edge.smallest_unstable
    if above is None:
        return "–" if below is None else f"above {_rate(below)}"
    return f"below {_rate(above)}" if below is None else f"{_rate(below)} to {_rate(above)}"
