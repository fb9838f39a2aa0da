"""`widthwise align`: train, measure alignment on the way, and say which learning-rate exponents it implies."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from widthwise.cli.output import Output, plain_table
from widthwise.cli.status_line import StatusLine
from widthwise.cli.stopping import stoppable
from widthwise.cli.train import INTERRUPTED, line
from widthwise.measure import AlignmentPoint, Measured, Probe, implied, log_spaced, slopes, summarize
from widthwise.measure.implied import CHAIN
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Layout
from widthwise.theory import FULL, NONE, PARAMETERIZATIONS, Assessment, Role, solve
from widthwise.train import Checkpoints, Inputs, Lanes, Run, Spec, load_inputs, resolve, train
from widthwise.train.spec import describe

EXAMPLES = 8
IN_SERIES = 4
"""Hidden layers of a block that follow each other: value, attention output, and the two of the MLP."""


@dataclass(frozen=True, kw_only=True)
class Align:
    """Train, measure the alignment of every dense layer on the way, and print the exponents that it implies.

    Beside them stand the exponents of full and of no alignment. With several widths alignment is also given as a slope
    over widths. A figure shows the log alignment ratio through training. Interrupted, the same command goes on.
    """

    spec: Annotated[Spec, tyro.conf.arg(name="")]
    widths: tuple[int, ...] = ()
    """Several widths, in place of --width: a run for each."""
    per_doubling: int = 1
    """Measurements for each doubling of the number of steps."""
    every_step: bool = False
    """Measure after every step."""
    keep_initial: bool = False
    """Keep initial parameters in memory, in place of drawing them again at every measurement."""
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
        if self.per_doubling < 1:
            raise ValueError(f"per_doubling is {self.per_doubling}: expected 1 or more")
        status = StatusLine(quiet=self.json)
        inputs = load_inputs(self.spec, progress=lambda done: status.show(f"tokenizing: {done / 1e6:.1f} MB"))
        specs = [replace(self.spec, width=width) for width in sorted(set(self.widths or (self.spec.width,)))]
        runs = [resolve(spec, vocabulary=inputs.batches.vocabulary, data=inputs.fingerprint) for spec in specs]
        measured: dict[int, list[AlignmentPoint]] = {}
        for run in runs:
            found = self._measured(run, inputs, status)
            if found is None:
                status.say("interrupted and saved: the same command goes on from here")
                return INTERRUPTED
            ended, measured[run.spec.width] = found
            if ended != "finished":
                last = measured[run.spec.width][-1].step
                status.say(f"width {run.spec.width} {ended}: alignment is that of the steps up to {last}")
        status.clear()
        setting = f"{self.spec.parameterization}, {self.spec.optimizer}, {describe(self.spec.setting)}"
        write_alignment_figure(self.figure, {f"{setting}, width {n}": x for n, x in measured.items()})
        summaries = _summaries(measured, runs[-1].program.layout)
        if self.json:
            print(json.dumps(_finite(self._to_json(measured, summaries)), indent=2))
        else:
            self._show(setting, summaries, runs[-1])
        return 0

    def _measured(self, run: Run, inputs: Inputs, status: StatusLine) -> tuple[str, list[AlignmentPoint]] | None:
        """Train a run, or read what was measured before: how it ended, and the points; None when interrupted."""
        steps = (
            range(run.spec.steps + 1) if self.every_step else log_spaced(run.spec.steps, per_doubling=self.per_doubling)
        )
        name = "every" if self.every_step else str(self.per_doubling)
        folder = self.out / f"{run.id}-alignment-{name}"
        saved = folder / "alignment.json"
        if saved.exists():
            try:
                values = json.loads(saved.read_text())
                return values["status"], [AlignmentPoint(**point) for point in values["points"]]
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{str(saved)!r} cannot be read: delete it to train again") from None
        probe = Probe(
            tokens=inputs.evaluation.tokens[0][:EXAMPLES, :-1], steps=tuple(steps), keep_initial=self.keep_initial
        )
        began = time.monotonic()
        with stoppable() as stop, Checkpoints(folder / "checkpoints", say=status.say) as checkpoints:
            (result,) = train(
                Lanes(run.program, [run.lane], inputs.batches),
                inputs.evaluation,
                checkpoints=checkpoints,
                probe=probe,
                progress=lambda now: status.show(f"width {run.spec.width}  {line(now, time.monotonic() - began)}"),
                stop=stop,
            )
        if result.status == "interrupted":
            return None
        partial = folder / ".alignment.json.partial"
        points = [asdict(point) for point in result.alignment]
        partial.write_text(json.dumps({"status": result.status, "points": points}))
        partial.replace(saved)
        return result.status, result.alignment

    def _cases(self, measured: Measured) -> dict[str, Assessment]:
        """Solve for every assumption that is compared."""
        layers = self.spec.blocks * IN_SERIES
        network, family = PARAMETERIZATIONS[self.spec.parameterization], OPTIMIZERS[self.spec.optimizer].family
        cases = {"full alignment": solve(network, family, FULL), "no alignment": solve(network, family, NONE)}
        for statistic in ("median", "largest"):
            cases[f"measured, {statistic}"] = implied(network, family, measured, statistic=statistic)
        worst = implied(network, family, measured, statistic="largest", chain=layers)
        return {**cases, f"largest, over {layers} layers without normalization": worst}

    def _show(self, setting: str, summaries: Mapping[str, Measured], run: Run) -> None:
        output = Output()
        output.lines(
            f"{setting}, {self.spec.steps} steps: alignment, median [smallest, largest] over layers and moments.", ""
        )
        table = plain_table("", "role", "layers", "α (ΔW z)", "ω (W Δz)", "u (ΔW Δz)")
        for name, summary in summaries.items():
            for role, found in summary.items():
                first = name if role is Role.HIDDEN else ""
                table.add_row(first, role.value, str(found.layers), str(found.alpha), str(found.omega), str(found.u))
        output.table(table)
        output.lines("", "Largest stable learning rates, as exponents of n:", "")
        for name, summary in summaries.items():
            table = plain_table(name, "embedding", "hidden", "readout", "readout's input changes as")
            for assumption, case in self._cases(summary).items():
                table.add_row(assumption, *_rates(case), _features(case))
            output.table(table)
            output.lines("")
        output.lines(
            f"ω above 1/2 in hidden layers builds up over the {CHAIN} matrices between two normalizations; "
            "the last row is the worst case.",
            f"Figure: {self.figure}",
        )
        output.write()

    def _to_json(
        self, measured: Mapping[int, Sequence[AlignmentPoint]], summaries: Mapping[str, Measured]
    ) -> dict[str, Any]:
        return {
            "spec": self.spec.to_json(),
            "figure": str(self.figure),
            "alignment": [
                {
                    "of": name,
                    "roles": {role.value: asdict(found) for role, found in summary.items()},
                    "exponents": {
                        assumption: {
                            **dict(zip(("embedding", "hidden", "readout"), _exact(case), strict=True)),
                            "feature_learning": case.verdict.feature_learning,
                            "stable": case.verdict.stable,
                        }
                        for assumption, case in self._cases(summary).items()
                    },
                }
                for name, summary in summaries.items()
            ],
            "points": {str(width): [asdict(point) for point in points] for width, points in measured.items()},
        }


def _summaries(measured: Mapping[int, Sequence[AlignmentPoint]], layout: Layout) -> dict[str, Measured]:
    """Summarize the largest width by itself, and all of them by their slopes."""
    largest = max(measured)
    found = {f"width {largest}, log_n": summarize(measured[largest], layout)}
    if len(measured) > 1:
        found[f"slopes over {', '.join(map(str, sorted(measured)))}"] = summarize(slopes(measured), layout)
    return found


def _three(case: Assessment) -> list[Any]:
    assert case.rates is not None
    return [-case.rates[0], -case.rates[1], -case.rates[-1]]


def _exact(case: Assessment) -> list[str]:
    return [str(rate) for rate in _three(case)]


def _rates(case: Assessment) -> list[str]:
    """Write halves as they are, and measured exponents as decimals."""
    return [str(rate) if rate.denominator <= 2 else f"{float(rate):.2f}" for rate in _three(case)]


def _features(case: Assessment) -> str:
    """Say how features change: 1 where they are learned, less where ω of the readout is above what it can bear."""
    residual = case.verdict.residual
    return "–" if residual is None else "1" if residual == 0 else f"n^{-float(residual):.2f}"


def _finite(values: Any) -> Any:
    """Write null for what is not finite, wherever it is."""
    if isinstance(values, dict):
        return {key: _finite(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
