"""`widthwise fit`: what the runs of a study say about the optimal learning rate and width."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from widthwise.cli.arguments import positive, unset
from widthwise.cli.fit_tables import show_fits
from widthwise.cli.output import Output
from widthwise.fit import TOLERANCE
from widthwise.sweep import Study, to_csv, to_json_lines
from widthwise.sweep.fits import fit_rows


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fit the optimal learning rate against width, for every setting in a study.

    Says whether the learning rate transfers over width, and predicts it for widths that were not trained.
    """

    study: Annotated[Path, tyro.conf.Positional]
    """The study's folder."""
    predict: tuple[int, ...] = ()
    """Widths whose optimal learning rate to predict."""
    tolerance: Annotated[float, positive("X")] = TOLERANCE
    """The size of an exponent that does not matter in practice."""
    csv: Annotated[Path | None, unset("do not")] = None
    """Write all runs to this CSV file too."""
    jsonl: Annotated[Path | None, unset("do not")] = None
    """Write all runs, with their curves, to this file of JSON lines too."""
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
        unfinished = sum(row.status not in ("finished", "diverged") for row in rows)
        output = Output()
        show_fits(fits, output)
        if not fits:
            ended = "has ended" if unfinished == len(rows) else "belongs to a search for a learning rate"
            output.lines(f"no run of the {len(rows)} asked for in {str(self.study)!r} {ended}")
        elif unfinished:
            output.lines(f"left out: {unfinished} of {len(rows)} runs, which have not ended")
        output.write()
        return 0
