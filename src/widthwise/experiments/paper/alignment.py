"""Alignment through training ("Alignment Experiments", §4.1, and its additional results).

The log alignment ratio of every dense layer, at the best global learning rate of each width, with default constants.
The claims are judged at the largest width. Where the paper says that SGD shows little alignment in NTK and mean-field
and some in the others, the peaks of all layers are compared.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import TypeAlias

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.paper.values import PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Size
from widthwise.measure import AlignmentPoint
from widthwise.report.exhibits import AlignmentCurves, Table, present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called, heading, signed, slug
from widthwise.study.setting import Setting
from widthwise.sweeps.settings import settings
from widthwise.theory import Global

OPTIMIZERS = ("sgd", "adam", "adafactor")
SETTINGS = settings(optimizer=OPTIMIZERS, parameterization=PARAMETERIZATIONS, rates=(Global(),))
READOUT = "readout"
CHANCE, TOLERANCE = 0.5, 0.02
"""The ratio at initialization, and how far from it counts as the same."""
MLP_LIMIT = 0.8
READOUT_PEAKS = {"standard": (0.7, 0.8), "ntk": (0.7, 0.8), "mup": (0.9, math.inf), "mean_field": (0.9, math.inf)}
"""The range of the readout's peak, by parameterization."""

Points: TypeAlias = tuple[AlignmentPoint, ...]


def read(results: Results) -> Reading:
    """Read the ratios at the start and their peaks."""
    measured = sorted(results.alignment().items(), key=lambda item: item[0][1])
    runs: dict[Setting, dict[int, Points]] = {}  # by width, from the smallest up
    for setting in SETTINGS:
        if by_width := {width: points for (of, width), points in measured if of == setting}:
            runs[setting] = by_width
    curves = (
        AlignmentCurves(
            name=slug("alignment", optimizer),
            title=f"Alignment through training, {called(optimizer)}",
            caption=(
                "The log alignment ratio of every dense layer: 1/2 where weights and inputs are independent, 1 where "
                "they point the same way. At the best global learning rate of each width."
            ),
            panels={
                f"{called(setting.parameterization)}, width {width}": points
                for setting, by_width in runs.items()
                if setting.optimizer == optimizer
                for width, points in by_width.items()
            },
        )
        for optimizer in OPTIMIZERS
    )
    table = Table.of(
        "peaks",
        "Peaks of alignment",
        "The largest log alignment ratio through training, and how far from 1/2 a layer is before it begins.",
        [_row(setting, width, points) for setting, by_width in runs.items() for width, points in by_width.items()],
    )
    others = Table.of(
        "alphas",
        "The three alignments that the exponents depend on",
        "Of updates with initial activations (α), of initial weights with changes of activations (ω), and of updates "
        "with changes of activations (u): the highest value during training, and the last. Means over all hidden "
        "layers, at the largest width.",
        [_alphas(setting, by_width[max(by_width)]) for setting, by_width in runs.items()],
    )
    return Reading(findings=tuple(_findings(runs)), exhibits=present(*curves, table, others))


def _ratios(point: AlignmentPoint) -> dict[str, float]:
    """Return the ratios of layers that have one: a lookup has none."""
    return {layer: fields["ratio"] for layer, fields in point.layers.items() if math.isfinite(fields["ratio"])}


def _peak(points: Points, *, only: str = "", but: str | None = None) -> tuple[float, str]:
    """Return the largest ratio of the layers with a word in their path, and the layer."""
    found = [
        (ratio, layer.removesuffix("/kernel"))
        for point in points
        for layer, ratio in _ratios(point).items()
        if only in layer and (but is None or but not in layer)
    ]
    return max(found, default=(math.nan, "no layer"))


def _at_start(points: Points) -> float:
    """Return how far from chance the ratio of a layer is at most, before the first step."""
    first = [_ratios(point).values() for point in points if point.step == 0]
    return max((abs(ratio - CHANCE) for ratios in first for ratio in ratios), default=math.nan)


def _row(setting: Setting, width: int, points: Points) -> dict[str, str]:
    return {
        "optimizer": called(setting.optimizer),
        "parameterization": called(setting.parameterization),
        "width": str(width),
        "at the start": f"0.5 ± {signed(_at_start(points), 3)}",
        "readout": signed(_peak(points, only=READOUT)[0]),
        "MLP": signed(_peak(points, only="mlp")[0]),
        "attention": signed(_peak(points, only="attention")[0]),
    }


def _alphas(setting: Setting, points: Points) -> dict[str, str]:
    """Return the highest and the last α, ω and u of hidden layers, in their mean, and of the readout."""
    row = {"optimizer": called(setting.optimizer), "parameterization": called(setting.parameterization)}
    for layers, name in (("blocks", "hidden"), (READOUT, READOUT)):
        for field, letter in (("alpha", "α"), ("omega", "ω"), ("u", "u")):
            each = [
                [
                    fields[field]
                    for layer, fields in point.layers.items()
                    if layer.startswith(layers) and field in fields
                ]
                for point in points
            ]
            means = [fmean(values) for values in each if values and all(map(math.isfinite, values))]
            row[f"{name} {letter}"] = f"{signed(max(means))}, {signed(means[-1])}" if means else "–"
    return row


def _findings(runs: Mapping[Setting, Mapping[int, Points]]) -> Iterator[Finding]:
    if not runs:
        return
    far, width = max((_at_start(points), width) for one in runs.values() for width, points in one.items())
    yield Finding(
        claim=f"log alignment ratio 0.5 at initialization in every layer, within {TOLERANCE}",
        of="all",
        verdict=Judgement.of(far <= TOLERANCE, far),
        measured=f"{signed(far, 3)} away from it at most, at width {width}",
        paper="0.5",
    )
    for setting, by_width in runs.items():
        if setting.optimizer != "sgd":
            yield from _of_adaptive(setting, by_width)
    largest = {one.parameterization: runs[one][max(runs[one])] for one in runs if one.optimizer == "sgd"}
    if set(largest) == set(PARAMETERIZATIONS):
        peaks = {name: _peak(points)[0] for name, points in largest.items()}
        less = max(peaks["ntk"], peaks["mean_field"]) < min(peaks["standard"], peaks["mup"])
        yield Finding(
            claim="less alignment in NTK and mean-field than in standard and muP",
            of=called("sgd"),
            verdict=Judgement.of(less, *peaks.values()),
            measured="highest peak of a layer: " + ", ".join(f"{called(name)} {signed(peaks[name])}" for name in peaks),
        )


def _of_adaptive(setting: Setting, by_width: Mapping[int, Points]) -> Iterator[Finding]:
    of = heading(setting, "parameterization", "optimizer")
    low, high = READOUT_PEAKS[setting.parameterization]
    between = f"above {low}" if math.isinf(high) else f"between {low} and {high}"
    readouts, mlps = (
        {width: _peak(points, only=layer)[0] for width, points in by_width.items()} for layer in (READOUT, "mlp")
    )
    widest = max(by_width)
    readout, mlp, (other, layer) = readouts[widest], mlps[widest], _peak(by_width[widest], but=READOUT)
    yield Finding(
        claim="the readout has the highest peak of alignment",
        of=of,
        verdict=Judgement.of(readout > other, readout, other),
        measured=f"{signed(readout)}, and at most {signed(other)} elsewhere (in {layer})",
    )
    yield Finding(
        claim=f"the readout's alignment peaks {between}",
        of=of,
        verdict=Judgement.of(low <= readout <= high, readout),
        measured=_over_widths(readouts),
        paper=between,
    )
    yield Finding(
        claim=f"alignment of MLP layers stays below {MLP_LIMIT}",
        of=of,
        verdict=Judgement.of(mlp < MLP_LIMIT, mlp),
        measured=_over_widths(mlps),
        paper=f"below {MLP_LIMIT}",
    )


def _over_widths(peaks: Mapping[int, float]) -> str:
    """Write the peak of the largest width, which is judged, and then the others.

    >>> _over_widths({256: 0.74, 512: 0.73, 1024: 0.71})
    '0.71 at width 1024 (0.74 at 256, 0.73 at 512)'
    """
    *others, (largest, judged) = peaks.items()
    more = ", ".join(f"{signed(peak)} at {width}" for width, peak in others)
    return f"{signed(judged)} at width {largest}" + (f" ({more})" if more else "")


EXPERIMENT = Experiment(
    name="alignment",
    title="How aligned do layers become in training?",
    claim=(
        "The log alignment ratio starts at 0.5 in every layer and changes through training. With Adam and Adafactor "
        "the readout peaks highest, above 0.9 in muP and mean-field and between 0.7 and 0.8 in standard and NTK; MLP "
        "layers stay below 0.8 (§4.1)."
    ),
    sizes={
        "smoke": replace(SIZES["smoke"], octaves=0.5, optimizers=("adam",)),
        "cpu": SIZES["cpu"].at_widths(32, 64, 128),
        "gpu": Size(
            scale="gpu",
            base=replace(SIZES["gpu"].base, blocks=4, batch=64, warmup=60),  # deeper: more layers to look at
            widths=(256, 512, 1024),
        ),
        "paper": replace(SIZES["paper"], widths=(1024, 2048, 4096)),
    },
    settings=lambda _: SETTINGS,
    read=read,
    probes=True,
)
