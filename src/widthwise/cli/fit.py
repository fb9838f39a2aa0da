"""`widthwise fit`: the optimal learning rate against width, from the runs of a study."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from widthwise.cli.arguments import positive, unset
from widthwise.cli.output import table
from widthwise.fit import TOLERANCE, Estimate, Optimum
from widthwise.study import Study, to_csv, to_json_lines
from widthwise.study.fits import GroupFit, fit_rows

HEADINGS = (
    "width",
    "optimal learning rate",
    "95 % interval",
    "loss there",
    "stability edge",
    "loss with the base's rate",
)


@dataclass(frozen=True, kw_only=True)
class FitCommand:
    """Fit the optimal learning rate against width, for every setting in a study.

    Tells whether the learning rate transfers across widths, and predicts it for widths that were not trained.
    """

    study: Annotated[Path, tyro.conf.Positional]
    """The study's folder."""
    predict: Annotated[tuple[int, ...], unset("none")] = ()
    """Widths to predict the optimal learning rate for."""
    tolerance: Annotated[float, positive("X")] = TOLERANCE
    """Exponents up to this size do not matter in practice."""
    csv: Annotated[Path | None, unset("none")] = None
    """Also write all runs to this CSV file."""
    jsonl: Annotated[Path | None, unset("none")] = None
    """Also write all runs, with their curves, to this file, as JSON lines."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Fit and print."""
        with Study.open(self.study, create=False) as study:
            rows = study.runs()
            if self.csv is not None:
                to_csv(study, self.csv)
            if self.jsonl is not None:
                to_json_lines(study, self.jsonl, curves=True)
        fits = fit_rows(rows, predict=self.predict, tolerance=self.tolerance)
        if self.json:
            print(json.dumps({"fits": [fit.to_json() for fit in fits]}, indent=2))
            return 0
        unfinished = sum(not row.ended for row in rows)
        lines = tabulate_fits(fits)
        if not fits:
            ended = "has ended" if unfinished == len(rows) else "belongs to a search for a learning rate"
            lines.append(f"none of the {len(rows)} runs requested in {str(self.study)!r} {ended}")
        elif unfinished:
            lines.append(f"left out: {unfinished} of {len(rows)} runs, which have not ended")
        print("\n".join(lines))
        return 0


def tabulate_fits(fits: Sequence[GroupFit]) -> list[str]:
    """Return a title, a table and a verdict for each fit."""
    lines = []
    for fit in fits:
        reuse = {each.width: _loss(each.eval_loss) for each in fit.transfer.reuse}
        rows = [
            (
                str(optimum.width),
                _rate(optimum.learning_rate.value) + ("" if optimum.interior else " ?"),
                _interval(optimum.learning_rate),
                _loss(optimum.eval_loss),
                _edge(optimum),
                reuse.get(optimum.width, "–"),
            )
            for optimum in fit.transfer.optima
        ]
        lines += [fit.title, table(HEADINGS, rows, right=range(len(HEADINGS)))]
        for prediction in fit.transfer.predictions:
            predicted = prediction.learning_rate
            lines.append(f"predicted for width {prediction.width}: {_rate(predicted.value)} {_interval(predicted)}")
        lines += [str(fit.transfer.verdict), ""]
    return lines


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
