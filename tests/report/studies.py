"""Synthetic studies that look like real ones: losses on parabolas, optima that move with width, runs that diverge."""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from widthwise.experiments.carry_out import NOTE
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.paper.values import EVAL_LOSSES, PARAMETERIZATIONS
from widthwise.experiments.results import Results
from widthwise.measure import AlignmentPoint
from widthwise.report.exhibits import AlignmentCurves, Heatmap, Heatmaps, Plane, PlanePoint, Planes, Table
from widthwise.report.findings import Finding, Judgement
from widthwise.study import Outcome, Request, Row, Study
from widthwise.study.encoding import encode, key
from widthwise.study.fits import GroupFit, fit_rows
from widthwise.train import Spec

EXPONENTS = {
    "global": (-0.95, -0.66, -1.09, -0.16),
    "full": (-0.05, 0.0, -0.06, 0.2),
    "none": (-0.6, -0.6, -0.65, -0.2),
}
"""Of the optimal rate, by setting and parameterization."""
STARTS = (-8.0, -6.0, -7.0, -3.0)
"""log2 of the optimal rate at the base width, by parameterization."""
LAYERS = [
    f"blocks/{block}/{kind}/kernel" for block in (0, 1) for kind in ("query", "key", "value", "out", "up", "down")
]

Pair = tuple[Request, Outcome]


def sweep(
    parameterization: str = "standard",
    setting: str = "full",
    *,
    widths: Sequence[int] = (64, 128, 256, 512),
    rates: int = 10,
    seeds: Sequence[int] = (0,),
    probe: bool = False,
    curves: dict[str, Any] | None = None,
    **changes: Any,
) -> Iterator[Pair]:
    """Yield one group: a run for each width, learning rate and seed."""
    which = PARAMETERIZATIONS.index(parameterization)
    noise = np.random.default_rng([which, len(setting)])
    for width, place, seed in itertools.product(widths, range(rates), seeds):
        optimum = STARTS[which] + EXPONENTS[setting][which] * math.log2(width / 64)
        octave = round(optimum * 2) / 2 + (place - rates // 2) / 2
        away = octave - optimum
        loss = 2.9 + 1.4 * (width / 64) ** -0.35 + 0.03 * which + 0.06 * away**2 + 0.02 * max(away, 0) ** 4
        loss += 0.15 * (setting != "full") * math.log2(width / 64) / 3 + noise.normal(0, 0.004)
        spec = Spec(
            width=width,
            base_width=64,
            parameterization=parameterization,
            alignment=setting,
            learning_rate=2.0**octave,
            seed=seed,
            **changes,
        )
        diverges = away > 1.9
        yield pair(
            {**spec.to_json(), "constants": "default", "horizon": "fixed"} | ({"probe": True} if probe else {}),
            status="diverged" if diverges else "finished",
            results={"eval_loss": math.nan if diverges else loss, "parameters": 12 * 4 * width**2 + 700 * width},
            curves=(curves or {}) | (alignment_curves(which + width) if probe else {}),
        )


def pair(spec: dict[str, Any], **outcome: Any) -> Pair:
    """Return a request for a run, and the run's outcome."""
    run = key(encode(spec))
    return Request(request=spec, id=run, identity={"made up": run}), Outcome(run=run, **outcome)


def fill(study: Study, pairs: Iterator[Pair] | Sequence[Pair], label: str | None = None) -> None:
    """Put runs into a study."""
    pairs = list(pairs)
    study.ask([asked for asked, _ in pairs], label=label)
    study.record([outcome for _, outcome in pairs])


def transfer(study: Study, *, ended: bool = True, missing: Sequence[str] = (), **changes: Any) -> None:
    """Put the experiment `transfer` into a study: all parameterizations and settings."""
    for setting, name in itertools.product(EXPONENTS, PARAMETERIZATIONS):
        fill(study, sweep(name, setting, **changes), "transfer/cpu/rates")
    note = {"began": "2024-05-05T10:00:00+00:00", "ended": "2024-05-05T10:05:00+00:00" if ended else None}
    study.put(f"{NOTE}transfer/cpu", {**note, "missing": list(missing)})


def mixed(folder: Path, **changes: Any) -> Path:
    """Create a study with everything in it: an experiment, sweeps, measurements, constants, failures."""
    with Study.open(folder) as study:
        transfer(study, missing=["standard, adam, full, width 512: no stability edge found"], **changes)
        fill(study, sweep("mup", "full", probe=True, widths=(64, 128), rates=6), "a-sweep")
        fill(study, sweep("standard", "full", weight_decay=1e-4, rates=3), "another")
        fill(study, failures(3), "another")
        about = {"eval_loss": 3.01, "default_loss": 3.05, "averaged": 4, "at_edge": ["readout"]}
        constants = {"embedding": 5.4, "hidden": 1.1, "readout": 2.6}
        for name in ("mine", "transfer/cpu/tuned"):
            study.put(f"constants/{name}/adam/mup", {"constants": constants, "about": about})
    return folder


def failures(count: int) -> list[Pair]:
    """Return runs that failed."""
    error = "XlaRuntimeError: RESOURCE_EXHAUSTED: out of memory <while> trying to allocate 3 & more bytes"
    specs = [Spec(width=1024, base_width=64, learning_rate=2.0**-place).to_json() for place in range(count)]
    return [pair(spec, status="failed", provenance={"error": error}) for spec in specs]


def alignment_points(seed: int) -> tuple[AlignmentPoint, ...]:
    """Return alignment over 300 steps: 1/2 at first, then up and down again."""
    noise = np.random.default_rng(seed)
    peaks = {layer: 0.6 + 0.1 * noise.random() for layer in LAYERS} | {"readout/kernel": 0.85}

    def ratio(peak: float, step: int) -> float:
        return 0.5 + (peak - 0.5) * math.exp(-((math.log2(step + 1) - 4) ** 2) / 6) + noise.normal(0, 0.006)

    return tuple(
        AlignmentPoint(
            step=step, layers={name: {"ratio": ratio(peak, step), "fan_in": 64.0} for name, peak in peaks.items()}
        )
        for step in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300)
    )


def alignment_curves(seed: int) -> dict[str, Any]:
    """Return the same points as curves, the form in which a study stores them."""
    points = alignment_points(seed)
    steps = [point.step for point in points]
    return {
        f"alignment/{layer}/{field}": (steps, [point.layers[layer][field] for point in points])
        for layer, fields in points[0].layers.items()
        for field in fields
    }


def small(folder: Path) -> Path:
    """Create a small study with every kind of exhibit; `GALLERY` has to be registered when it is read."""
    with Study.open(folder) as study:
        study.put(f"{NOTE}gallery/smoke", {"began": "now", "ended": None, "missing": ["ntk, adam: no edge found"]})
        fill(study, sweep("mup", "full", probe=True, widths=(64, 128), rates=6), "a-sweep")
        fill(study, failures(3), "a-sweep")
    return folder


def heatmaps() -> Heatmaps:
    """Return losses against epsilon: a large epsilon is bad, and worse at larger widths."""
    widths, columns = (64, 128, 256, 512), tuple(f"1e-{power}" for power in (5, 7, 9, 11, 13, 15))

    def values(row: int, worse: float) -> tuple[float, ...]:
        losses = [worse * 0.002 * (row + 1) ** 2 * 4.0 ** (2 - column) for column in range(6)]
        return tuple(math.nan if (row, column) == (3, 0) else loss - min(losses) for column, loss in enumerate(losses))

    return Heatmaps(
        name="epsilon",
        title="Loss against epsilon",
        caption="Difference of the eval loss from the best of its row.",
        maps=tuple(
            Heatmap(
                title=name,
                rows=widths,
                columns=columns,
                values=tuple(values(row, worse) for row in range(len(widths))),
            )
            for name, worse in (("standard", 1.0), ("mean-field", 4.0))
        ),
        x_label="epsilon",
    )


def alignment() -> AlignmentCurves:
    """Return the alignment of five runs."""
    return AlignmentCurves(
        name="alignment",
        title="Alignment through training",
        caption="The log alignment ratio of every dense layer.",
        panels={
            f"{name}, SGD, full alignment, width 64": alignment_points(number)
            for number, name in enumerate((*PARAMETERIZATIONS, "another"))
        },
    )


def planes() -> Planes:
    """Return the planes of the three roles."""
    places = {"embedding": [(0, 0), (0, 0), (-0.5, 0.5), (0, 0)], "hidden": [(0, 0.5), (0.5, 0), (0, 0.5), (0.5, 0)]}
    places["readout"] = [(0, 0.5), (0.5, 0), (0.5, 0.5), (1, 0)]
    return Planes(
        name="planes",
        title="Equivalent parameterizations",
        caption="Each role's multiplier and initialization.",
        planes=tuple(
            Plane(
                role=role,
                points=tuple(
                    PlanePoint(parameterization=name, a=a, b=b)
                    for name, (a, b) in zip(PARAMETERIZATIONS, where, strict=True)
                ),
                stable_total=0.0 if role == "embedding" else 0.5,
                exact=role != "readout",
            )
            for role, where in places.items()
        ),
    )


def losses_table() -> Table:
    """Return eval losses beside the paper's."""
    settings = ("global + default", "full + optimal")
    rows = [
        ("adam", name, *(f"{EVAL_LOSSES['adam', name, each] + shift:.3f}" for each in settings for shift in (0.4, 0)))
        for name in PARAMETERIZATIONS
    ]
    return Table(
        name="losses",
        title="Eval loss at the largest width",
        caption="The best of each column is marked.",
        columns=("optimizer", "parameterization", settings[0], settings[0], settings[1], settings[1]),
        rows=tuple(rows),
        best=frozenset({(1, 2), (0, 4)}),
        paper=frozenset({3, 5}),
    )


def fitted(name: str = "standard", setting: str = "full", **changes: Any) -> GroupFit:
    """Fit a synthetic group."""
    pairs = list(sweep(name, setting, **changes))
    (fit,) = fit_rows([Row(asked.request, asked.id, outcome.status, outcome.results) for asked, outcome in pairs])
    return fit


def read_gallery(results: Results) -> Reading:
    """Show the kinds of exhibit that sweeps do not have."""
    return Reading(
        findings=tuple(
            Finding(claim=claim, of="muP, Adam", verdict=verdict, measured="−1.00 [−1.10, −0.90]", paper="−0.95")
            for claim, verdict in zip(("falls & falls", "stays < 1", "rises", "differs"), Judgement, strict=True)
        ),
        exhibits=(
            heatmaps(),
            planes(),
            losses_table(),
            Table(name="empty", title="Nothing yet", caption="", columns=("a", "b"), rows=()),
        ),
        notes=("Everything here is made up.",),
    )


GALLERY = Experiment(
    name="gallery", title="What can be shown", claim="All of it (nowhere).", read=read_gallery, sizes={}
)
