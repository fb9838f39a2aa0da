"""`widthwise align`: train, measure alignment on the way, and show which learning-rate exponents it implies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import tyro

from widthwise.cli.arguments import unset
from widthwise.cli.output import table
from widthwise.cli.paths import check_file, check_folder
from widthwise.cli.running import SavedAndStopped, StatusLine
from widthwise.cli.runs import open_data, read_result, train_in, write_result
from widthwise.measure import AlignmentPoint, MeasuredAlignment, Probe, implied, log_spaced, slopes, summarize
from widthwise.measure.implied import CHAIN
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Layout
from widthwise.theory import FULL, NONE, PARAMETERIZATIONS, Assessment, Role, solve
from widthwise.train import Inputs, Lanes, Run, Spec, resolve

EXAMPLES = 8
IN_SERIES = 4
"""Hidden layers of a block that follow each other: value, attention output, and the two of the MLP."""


@dataclass(frozen=True, kw_only=True)
class AlignCommand:
    """Train, measure the alignment of every dense layer on the way, and print the exponents that it implies.

    The exponents of full and of no alignment are printed for comparison. With several widths, alignment is also
    measured as a slope over widths. A figure shows the log alignment ratio through training. After an interrupt, run
    the same command to resume.
    """

    spec: Annotated[Spec, tyro.conf.arg(name="")]
    widths: Annotated[tuple[int, ...], unset("--width")] = ()
    """Widths: one run for each."""
    per_doubling: int = 1
    """Measurements for each doubling of the number of steps."""
    every_step: bool = False
    """Measure after every step."""
    keep_initial: bool = False
    """Keep the initial parameters in memory instead of drawing them again for every measurement."""
    figure: Path = Path("alignment.png")
    """Where to write the figure: .png, .svg or .pdf."""
    out: Path = Path("runs")
    """The folder for checkpoints and measurements."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Train, measure, print and draw."""
        from widthwise.report.alignment import write_alignment_figure
        from widthwise.report.style import check_suffix

        check_suffix(self.figure)
        check_file(self.figure)
        check_folder(self.out)
        if self.per_doubling < 1:
            raise ValueError(f"per_doubling is {self.per_doubling}: expected 1 or more")
        measured: dict[int, list[AlignmentPoint]] = {}
        with StatusLine(quiet=self.json) as status:
            inputs = open_data(self.spec, status)
            specs = [replace(self.spec, width=width) for width in sorted(set(self.widths or (self.spec.width,)))]
            runs = [resolve(spec, vocabulary=inputs.batches.vocabulary, data=inputs.fingerprint) for spec in specs]
            for run in runs:
                ended, points = self._measure(run, inputs, status)
                measured[run.spec.width] = points
                if ended != "finished":
                    status.say(f"width {run.spec.width} {ended}: alignment was measured up to step {points[-1].step}")
        setting = f"{self.spec.parameterization}, {self.spec.optimizer}, {self.spec.rate_rule.title}"
        write_alignment_figure(self.figure, {f"{setting}, width {n}": x for n, x in measured.items()})
        summaries = _summaries(measured, runs[-1].program.layout)
        if self.json:
            values = self._to_json(measured, summaries)
            finite = json.loads(json.dumps(values), parse_constant=lambda _: None)  # JSON has no NaN
            print(json.dumps(finite, indent=2))
        else:
            print(self._tabulate(setting, summaries))
        return 0

    def _measure(self, run: Run, inputs: Inputs, status: StatusLine) -> tuple[str, list[AlignmentPoint]]:
        """Train a run, or read what was measured before; return how it ended, and the points."""
        name = "every" if self.every_step else str(self.per_doubling)
        folder = self.out / f"{run.id}-alignment-{name}"
        known = read_result(
            folder / "alignment.json",
            lambda values: (values["status"], [AlignmentPoint(**point) for point in values["points"]]),
        )
        if known is not None:
            return known
        every = range(run.spec.steps + 1)
        steps = every if self.every_step else log_spaced(run.spec.steps, per_doubling=self.per_doubling)
        examples = inputs.evaluation.tokens[0][:EXAMPLES, :-1]
        (result,) = train_in(
            folder,
            Lanes(run.program, [run.lane], inputs.batches),
            inputs.evaluation,
            status,
            label=f"width {run.spec.width}  ",
            probe=Probe(tokens=examples, steps=tuple(steps), keep_initial=self.keep_initial),
        )
        if result.status == "interrupted":
            raise SavedAndStopped
        points = [asdict(point) for point in result.alignment]
        write_result(folder / "alignment.json", {"status": result.status, "points": points})
        return result.status, result.alignment

    def _cases(self, measured: MeasuredAlignment) -> dict[str, Assessment]:
        """Solve for every assumption that is compared."""
        layers = self.spec.blocks * IN_SERIES
        network, family = PARAMETERIZATIONS[self.spec.parameterization], OPTIMIZERS[self.spec.optimizer].family
        return {
            "full alignment": solve(network, family, FULL),
            "no alignment": solve(network, family, NONE),
            "measured, median": implied(network, family, measured, statistic="median"),
            "measured, largest": implied(network, family, measured, statistic="largest"),
            f"largest, over {layers} layers without normalization": implied(
                network, family, measured, statistic="largest", chain=layers
            ),
        }

    def _tabulate(self, setting: str, summaries: Mapping[str, MeasuredAlignment]) -> str:
        alignment = [
            (name if role is Role.HIDDEN else "", role.value, *map(str, (of.layers, of.alpha, of.omega, of.u)))
            for name, summary in summaries.items()
            for role, of in summary.items()
        ]
        rates = [
            table(
                (name, "embedding", "hidden", "readout", "readout's input changes as"),
                [
                    (assumed, *map(_write, _rates(case)), _features(case))
                    for assumed, case in self._cases(summary).items()
                ],
            )
            for name, summary in summaries.items()
        ]
        return "\n\n".join(
            [
                f"{setting}, {self.spec.steps} steps: alignment, median [smallest, largest] over layers and moments.",
                table(("", "role", "layers", "α (ΔW z)", "ω (W Δz)", "u (ΔW Δz)"), alignment),
                "Largest stable learning rates, as exponents of n:",
                *rates,
                f"ω above 1/2 in hidden layers builds up over the {CHAIN} matrices between two normalizations; "
                f"the last row is the worst case.\nFigure: {self.figure}",
            ]
        )

    def _to_json(
        self, measured: Mapping[int, Sequence[AlignmentPoint]], summaries: Mapping[str, MeasuredAlignment]
    ) -> dict[str, Any]:
        def exponents(case: Assessment) -> dict[str, Any]:
            rates = dict(zip(("embedding", "hidden", "readout"), map(str, _rates(case)), strict=True))
            return {**rates, "feature_learning": case.verdict.feature_learning, "stable": case.verdict.stable}

        return {
            "spec": self.spec.to_json(),
            "figure": str(self.figure),
            "alignment": [
                {
                    "of": name,
                    "roles": {role.value: asdict(found) for role, found in summary.items()},
                    "exponents": {assumed: exponents(case) for assumed, case in self._cases(summary).items()},
                }
                for name, summary in summaries.items()
            ],
            "points": {str(width): [asdict(point) for point in points] for width, points in measured.items()},
        }


def _summaries(measured: Mapping[int, Sequence[AlignmentPoint]], layout: Layout) -> dict[str, MeasuredAlignment]:
    """Summarize the largest width by itself, and all of them by their slopes."""
    largest = max(measured)
    found = {f"width {largest}, log_n": summarize(measured[largest], layout)}
    if len(measured) > 1:
        found[f"slopes over {', '.join(map(str, sorted(measured)))}"] = summarize(slopes(measured), layout)
    return found


def _rates(case: Assessment) -> list[Fraction]:
    assert case.rates is not None
    return [-case.rates[0], -case.rates[1], -case.rates[-1]]


def _write(rate: Fraction) -> str:
    """Write halves exactly, and measured exponents as decimals."""
    return str(rate) if rate.denominator <= 2 else f"{float(rate):.2f}"


def _features(case: Assessment) -> str:
    """Write how features change: 1 where they are learned, less where ω of the readout is too large."""
    residual = case.verdict.residual
    return "–" if residual is None else "1" if residual == 0 else f"n^{-float(residual):.2f}"
