"""Alignment through training ("Alignment Experiments", §4.1, and its additional results).

The log alignment ratio of every dense layer, at the best global learning rate of each width, with default constants.
The claims are judged at the largest width. Where the paper says that SGD shows little alignment in NTK and mean-field
and some in the others, the peaks of all layers are compared.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from widthwise.experiments.exhibits import AlignmentCurves, AnyExhibit, Table
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding, Verdict
from widthwise.experiments.paper_values import PARAMETERIZATIONS
from widthwise.experiments.results import Probed, Results
from widthwise.experiments.showing import called, signed
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import Probe, Search, Stage
from widthwise.measure import AlignmentPoint
from widthwise.sweep.constants import DEFAULT

PART = "alignment"
OPTIMIZERS = ("sgd", "adam", "adafactor")
ADAPTIVE = ("adam", "adafactor")
READOUT = "readout"
CHANCE, TOLERANCE = 0.5, 0.02
"""What the ratio is at initialization, and how far from it counts as the same."""
MLP_LIMIT = 0.8
READOUT_PEAKS = {"standard": (0.7, 0.8), "ntk": (0.7, 0.8), "mup": (0.9, math.inf), "mean_field": (0.9, math.inf)}
"""Between what the readout's peak lies, by parameterization."""
_SIZES: dict[Scale, Size] = {
    "smoke": replace(SIZES["smoke"], octaves=0.5),
    "cpu": SIZES["cpu"].at_widths(32, 64, 128),
    "gpu": replace(SIZES["gpu"], widths=(256, 512, 1024), more_seeds=()),
    "paper": replace(SIZES["paper"], widths=(1024, 2048, 4096)),
}


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """What one run's layers reached.

    Attributes:
        width: The width.
        points: What was measured.
    """

    width: int
    points: tuple[AlignmentPoint, ...]

    def highest(self, *, only: str = "", but: str | None = None) -> tuple[float, str]:
        """Give the largest ratio of the layers with a word in their path, and the layer."""
        found = [
            (ratio, layer.removesuffix("/kernel"))
            for point in self.points
            for layer, ratio in _ratios(point).items()
            if only in layer and (but is None or but not in layer)
        ]
        return max(found, default=(math.nan, "no layer"))

    def at_start(self) -> float:
        """Give how far from chance the ratio of a layer is at most, before the first step."""
        first = [_ratios(point).values() for point in self.points if point.step == 0]
        return max((abs(ratio - CHANCE) for ratios in first for ratio in ratios), default=math.nan)


def plan(size: Size) -> tuple[Stage, ...]:
    """Find the best global rate of each width, and measure alignment with it."""
    smoke = size.scale == "smoke"
    return tuple(
        Probe(part=PART, of=Search(part="rates", sweep=sweep))
        for optimizer in (("adam",) if smoke else OPTIMIZERS)
        for sweep in size.sweeps(
            optimizer,
            parameterizations=("standard", "mup") if smoke else PARAMETERIZATIONS,
            settings=("global",),
            constants=(DEFAULT,),
        )
    )


def read(results: Results) -> Reading:
    """Read the ratios at the start and their peaks."""
    runs = _by_group(results.probed(PART))
    findings = _at_start(runs)
    for (optimizer, name), peaks in runs.items():
        if optimizer in ADAPTIVE:
            findings += _of_adaptive(called(name, optimizer), name, peaks)
    findings += _of_sgd({name: peaks[-1] for (optimizer, name), peaks in runs.items() if optimizer == "sgd"})
    exhibits: list[AnyExhibit] = [
        AlignmentCurves(
            name=f"alignment-{optimizer.replace('_', '-')}",
            title=f"Alignment through training, {called(optimizer)}",
            caption=(
                "The log alignment ratio of every dense layer: 1/2 where weights and inputs are independent, 1 where "
                "they point the same way. At the best global learning rate of each width."
            ),
            panels={
                f"{called(name)}, width {one.width}": one.points
                for (of, name), peaks in runs.items()
                if of == optimizer
                for one in peaks
            },
        )
        for optimizer in OPTIMIZERS
        if any(of == optimizer for of, _ in runs)
    ]
    return Reading(findings=tuple(findings), exhibits=(*exhibits, *([_table(runs)] if runs else [])))


def _by_group(probed: list[Probed]) -> dict[tuple[str, str], list[Peaks]]:
    """Arrange runs by optimizer and parameterization, each from the smallest width up."""
    groups: dict[tuple[str, str], list[Peaks]] = {}
    for optimizer in OPTIMIZERS:
        for name in PARAMETERIZATIONS:
            found = [
                Peaks(width=one.spec["width"], points=one.points)
                for one in probed
                if (one.spec["optimizer"], one.spec["parameterization"]) == (optimizer, name)
            ]
            if found:
                groups[optimizer, name] = sorted(found, key=lambda peaks: peaks.width)
    return groups


def _at_start(runs: Mapping[tuple[str, str], list[Peaks]]) -> list[Finding]:
    if not runs:
        return []
    far, width = max((one.at_start(), one.width) for peaks in runs.values() for one in peaks)
    return [
        Finding(
            claim=f"log alignment ratio 0.5 at initialization in every layer, within {TOLERANCE}",
            of="all",
            verdict=Verdict.of(far <= TOLERANCE, far),
            measured=f"{signed(far, 3)} away from it at most, at width {width}",
            paper="0.5",
        )
    ]


def _of_adaptive(of: str, name: str, peaks: list[Peaks]) -> list[Finding]:
    low, high = READOUT_PEAKS[name]
    readouts = [one.highest(only=READOUT)[0] for one in peaks]
    others, mlps = peaks[-1].highest(but=READOUT), [one.highest(only="mlp")[0] for one in peaks]
    between = f"above {low}" if math.isinf(high) else f"between {low} and {high}"
    return [
        Finding(
            claim="the readout has the highest peak of alignment",
            of=of,
            verdict=Verdict.of(readouts[-1] > others[0], readouts[-1], others[0]),
            measured=f"{signed(readouts[-1])} in the readout, {signed(others[0])} in {others[1]}",
        ),
        Finding(
            claim=f"the readout's alignment peaks {between}",
            of=of,
            verdict=Verdict.of(low <= readouts[-1] <= high, readouts[-1]),
            measured=_over_widths(readouts, peaks),
            paper=between,
        ),
        Finding(
            claim=f"alignment of MLP layers stays below {MLP_LIMIT}",
            of=of,
            verdict=Verdict.of(mlps[-1] < MLP_LIMIT, mlps[-1]),
            measured=_over_widths(mlps, peaks),
            paper=f"below {MLP_LIMIT}",
        ),
    ]


def _of_sgd(largest: Mapping[str, Peaks]) -> list[Finding]:
    if set(largest) != set(PARAMETERIZATIONS):
        return []
    peaks = {name: one.highest()[0] for name, one in largest.items()}
    return [
        Finding(
            claim="less alignment in NTK and mean-field than in standard and muP",
            of=called("sgd"),
            verdict=Verdict.of(
                max(peaks["ntk"], peaks["mean_field"]) < min(peaks["standard"], peaks["mup"]), *peaks.values()
            ),
            measured="highest peak of a layer: " + ", ".join(f"{called(name)} {signed(peaks[name])}" for name in peaks),
        )
    ]


def _over_widths(values: list[float], peaks: list[Peaks]) -> str:
    return ", ".join(f"{signed(value)} at width {one.width}" for value, one in zip(values, peaks, strict=True))


def _ratios(point: AlignmentPoint) -> dict[str, float]:
    """Give the ratios of layers that have one: a lookup has none."""
    return {layer: fields["ratio"] for layer, fields in point.layers.items() if math.isfinite(fields["ratio"])}


def _table(runs: Mapping[tuple[str, str], list[Peaks]]) -> Table:
    return Table(
        name="peaks",
        title="Peaks of alignment",
        caption=("The largest log alignment ratio through training, and how far from 1/2 a layer is before it begins."),
        columns=("optimizer", "parameterization", "width", "at the start", "readout", "MLP", "attention"),
        rows=tuple(
            (
                called(optimizer),
                called(name),
                str(one.width),
                f"0.5 ± {signed(one.at_start(), 3)}",
                *(signed(one.highest(only=layer)[0]) for layer in (READOUT, "mlp", "attention")),
            )
            for (optimizer, name), peaks in runs.items()
            for one in peaks
        ),
    )


EXPERIMENT = Experiment(
    name="alignment",
    title="How aligned do layers become in training?",
    claim=(
        "The log alignment ratio starts at 0.5 in every layer and changes through training. With Adam and Adafactor "
        "the readout peaks highest, above 0.9 in muP and mean-field and between 0.7 and 0.8 in standard and NTK; MLP "
        "layers stay below 0.8 (§4.1)."
    ),
    sizes=_SIZES,
    plan=plan,
    read=read,
)
