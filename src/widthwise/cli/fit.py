"""`widthwise fit`: the optimal learning rate against width, from the runs of a study."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from widthwise.cli.arguments import positive, unset
from widthwise.cli.paths import check_file
from widthwise.fit import TOLERANCE
from widthwise.report.console import describe_transfer
from widthwise.study import to_csv, to_json_lines
from widthwise.study.decays import decay_transfers
from widthwise.study.export import reading
from widthwise.study.fits import GroupFit, fit_rows


@dataclass(frozen=True, kw_only=True)
class FitCommand:
    """Fit the optimal learning rate against width, for every setting in a study.

    Tells whether the learning rate transfers across widths, and predicts it for widths that were not trained.
    """

    study: Annotated[Path, tyro.conf.Positional]
    """The study's folder, or what `widthwise export` wrote of it as .jsonl or .jsonl.gz."""
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
        for path in (self.csv, self.jsonl):
            if path is not None:
                check_file(path)
        with reading(self.study) as study:
            rows = study.runs()
            fits = fit_rows(rows, predict=self.predict, tolerance=self.tolerance)
            if self.csv is not None:
                to_csv(study, self.csv)
            if self.jsonl is not None:
                to_json_lines(study, self.jsonl, curves=True)
        if self.json:
            decays = [found.to_json() for found in decay_transfers(fits)]
            print(json.dumps({"fits": [fit.to_json() for fit in fits], "decays": decays}, indent=2))
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
    """Return a title, a table and a verdict for each fit, and what it costs to reuse a rate and a decay together."""
    tables = [line for fit in fits for line in (fit.title, *describe_transfer(fit.transfer), "")]
    return [*tables, *map(str, decay_transfers(fits))]
