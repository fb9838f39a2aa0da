"""What a sweep of one's own found."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widthwise.fit import Estimate, Transfer, TransferVerdict, Trial
from widthwise.report.console import describe_transfer
from widthwise.report.sections import read_sweeps
from widthwise.study import Study
from widthwise.study.fits import describe_own


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The result of a sweep; print it for a table.

    Attributes:
        settings: What the sweep is known by.
        trials: Its runs.
        transfer: What they say: optima, power law, verdict, cost of reusing the learning rate.
        missing: What is missing of what was asked for, in a line each.
        study: The folder of its study, if it has one.
    """

    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]
    transfer: Transfer
    missing: tuple[str, ...]
    study: Path | None

    @property
    def exponent(self) -> Estimate:
        """How the optimal learning rate changes with width: as n to this power."""
        return self.transfer.law.exponent

    @property
    def verdict(self) -> TransferVerdict:
        """Whether the learning rate transfers."""
        return self.transfer.verdict

    def report(self, folder: Path | str | None = None) -> Path:
        """Write the report of the study, with all the sweeps it holds next to each other; return its page.

        Args:
            folder: Where to write; `report` in the study's folder if None.
        """
        if self.study is None:
            raise ValueError("there is nothing to report from: expected a sweep with a study")
        try:
            from widthwise.report.write import write_report  # Matplotlib takes a second to import
        except ModuleNotFoundError as error:
            message = f"a report needs {error.name}, which is not installed: pip install 'widthwise[report]'"
            raise ModuleNotFoundError(message, name=error.name) from None

        with Study.open(self.study, create=False) as study:
            contents = read_sweeps(study)
        return write_report(contents, Path(folder) if folder is not None else self.study / "report").page

    def __str__(self) -> str:
        runs = f"{len(self.trials)} {'run' if len(self.trials) == 1 else 'runs'}"
        title = ", ".join([describe_own(self.settings), runs])
        return "\n".join([title, *describe_transfer(self.transfer), *(f"incomplete: {line}" for line in self.missing)])
