"""`widthwise merge`: add exported files, or other studies, to a study."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from widthwise.study import Study
from widthwise.study.lines import read_json_lines
from widthwise.study.records import Exported


@dataclass(frozen=True, kw_only=True)
class MergeCommand:
    """Add what `widthwise export` wrote as .jsonl, or what other studies hold, to a study.

    The study is created if necessary. What it holds already stays as it is, so merging again changes nothing. Commands
    that go on with it train only what none of the studies had.
    """

    study: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """The folder of the study to add to."""
    sources: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE [SOURCE ...]")]
    """Exported files, which end in .jsonl or .jsonl.gz, and folders of studies."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Merge, and print how many runs were new."""
        if not self.sources:
            raise ValueError("there is nothing to merge: expected exported files or folders of studies")
        exported = [_read(source) for source in self.sources]  # all of them before anything is changed
        with Study.open(self.study) as study:
            merged = [study.merge(each) for each in exported]
        pairs = list(zip(map(str, self.sources), merged, strict=True))
        if self.json:
            found = [{"source": source, "new": each.new, "known": each.known} for source, each in pairs]
            print(json.dumps({"study": str(self.study), "merged": found}, indent=2))
        else:
            print("\n".join(f"{source}: {each.new} new and {each.known} known runs" for source, each in pairs))
        return 0


def _read(source: Path) -> Exported:
    if source.is_file() and not source.name.endswith((".jsonl", ".jsonl.gz")):
        raise ValueError(f"{str(source)!r} cannot be merged: expected a study's folder, or a .jsonl or .jsonl.gz file")
    if not source.is_dir():
        return read_json_lines(source)
    with Study.open(source, create=False) as study:
        exported = study.exported(curves=True)
        return Exported(runs=list(exported.runs), notes=exported.notes)
