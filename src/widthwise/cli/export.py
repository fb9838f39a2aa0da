"""`widthwise export`: the runs of a study as a file, to read elsewhere or to publish."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from widthwise.cli.arguments import unset
from widthwise.cli.paths import check_file
from widthwise.study import Study, to_csv, to_json_lines

ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")


@dataclass(frozen=True, kw_only=True)
class ExportCommand:
    """Write the runs of a study to a file: a table as .csv, or everything that is known as .jsonl.

    `widthwise merge` turns .jsonl files into a study again. With the further ending .gz, the file is compressed; equal
    studies give equal files.
    """

    study: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """The study's folder."""
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The file to write, which ends in .csv, .csv.gz, .jsonl or .jsonl.gz."""
    curves: Annotated[tuple[str, ...] | None, unset("none")] = None
    """For .jsonl: also the curves whose names begin with one of these, such as alignment/; without words, all."""
    compact: bool = False
    """For .csv: leave out columns in which all runs agree, and write numbers as short as they can be without loss."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Write the file, and print what it holds."""
        if not self.file.name.endswith(ENDINGS):
            raise ValueError(f"{str(self.file)!r} has no known ending: expected one of {', '.join(ENDINGS)}")
        check_file(self.file)
        table = self.file.name.removesuffix(".gz").endswith(".csv")
        if table and self.curves is not None:
            raise ValueError(f"--curves with {str(self.file)!r}: expected a file that ends in .jsonl or .jsonl.gz")
        if self.compact and not table:
            raise ValueError(f"--compact with {str(self.file)!r}: expected a file that ends in .csv or .csv.gz")
        with Study.open(self.study, create=False) as study:
            if table:
                to_csv(study, self.file, compact=self.compact)
            else:
                to_json_lines(study, self.file, curves=self.curves or self.curves is not None)
            found = {"file": str(self.file), "requests": len(study.runs()), "runs": sum(study.counts().values())}
        size = self.file.stat().st_size
        if self.json:
            print(json.dumps({**found, "bytes": size}, indent=2))
        else:
            print(f"{self.file}: {found['requests']} requests, {found['runs']} runs, {size / 1e3:,.1f} kB")
        return 0
