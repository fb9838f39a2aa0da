"""Experiments for people: what one takes, what it found, and what is missing."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from widthwise.cli.output import Output, plain_table
from widthwise.cli.watching import duration
from widthwise.experiments import exhibits
from widthwise.experiments.cost import Work, device_days
from widthwise.experiments.experiment import Reading
from widthwise.train.cost import GPU_FLOPS

SHOWN = 3
"""How many lines of what is missing are shown; the report has all."""


def show_reading(reading: Reading, output: Output) -> None:
    """Add the first table that an experiment shows, which sums it up, and the findings."""
    summary = next((one for one in reading.exhibits if isinstance(one, exhibits.Table)), None)
    if summary is not None:
        output.lines(summary.title)
        table = plain_table(*summary.columns)
        for row in summary.rows:
            table.add_row(*row)
        output.table(table)
        output.lines("")
    if reading.findings:
        output.lines("What the paper claims, and what was measured here")
        table = plain_table("claim", "of", "here", "measured", "paper")
        for finding in reading.findings:
            table.add_row(finding.claim, finding.of, str(finding.verdict), finding.measured, finding.paper or "–")
        output.table(table)
        output.lines("")


def show_missing(missing: Sequence[str], output: Output) -> None:
    """Add what is missing, the first of it in words."""
    for line in missing[:SHOWN]:
        output.lines(f"incomplete: {line}")
    if len(missing) > SHOWN:
        output.lines(f"incomplete: {len(missing) - SHOWN} more; the report has them")


def show_cost(
    title: str, works: Sequence[Work], seconds: tuple[float, float] | None, reasons: Sequence[str], output: Output
) -> None:
    """Add what an experiment takes, part by part."""
    parts: dict[str, list[Work]] = defaultdict(list)
    for work in works:
        parts[work.part].append(work)
    output.lines(f"{title}, if nothing of it is known yet; nothing was trained")
    table = plain_table("part", "widths", "searches", "runs", "tokens", "FLOPs")
    for part, some in [*parts.items(), *([("all", list(works))] if len(parts) > 1 else [])]:
        widths = sorted({work.spec.width for work in some})
        table.add_row(
            part,
            f"{widths[0]} to {widths[-1]}" if len(widths) > 1 else str(widths[0]),
            f"{len(some):,}",
            *(_range(some, measure) for measure in ("runs", "tokens", "flops")),
        )
    output.table(table)
    if seconds is not None:
        output.lines(f"time here: {duration(seconds[0])} to {duration(seconds[1])}, without compilation")
    else:
        fewest, most = device_days(works)
        output.lines(f"time: {fewest:,.0f} to {most:,.0f} days on one GPU at {GPU_FLOPS / 1e12:.0f} TFLOP/s")
    for reason in reasons:
        output.lines(f"cannot run here: {reason}")


def cost_to_json(works: Sequence[Work], seconds: tuple[float, float] | None, reasons: Sequence[str]) -> dict[str, Any]:
    """Give what an experiment takes as values that `json.dumps` takes."""
    return {
        "searches": len(works),
        "runs": _bounds(works, "runs"),
        "tokens": _bounds(works, "tokens"),
        "flops": _bounds(works, "flops"),
        "seconds": None if seconds is None else list(seconds),
        "gpu_days": list(device_days(works)),
        "cannot_run_here": list(reasons),
    }


def time_for(works: Sequence[Work], step_seconds: Mapping[float, float], at_a_time: int) -> tuple[float, float]:
    """Extend the time of a step, measured at a few sizes by their FLOPs, to all: at least, at most."""
    sizes = sorted(step_seconds)
    steps = [np.interp(work.flops_per_step, sizes, [step_seconds[size] for size in sizes]) for work in works]
    each = [float(step) * work.spec.steps / at_a_time for step, work in zip(steps, works, strict=True)]
    fewest = sum(work.fewest * one for work, one in zip(works, each, strict=True))
    return fewest, sum(work.most * one for work, one in zip(works, each, strict=True))


def _bounds(works: Sequence[Work], measure: str) -> list[float]:
    def of(work: Work) -> float:
        return 1 if measure == "runs" else getattr(work, measure)

    return [sum(work.fewest * of(work) for work in works), sum(work.most * of(work) for work in works)]


def _range(works: Sequence[Work], measure: str) -> str:
    fewest, most = (f"{x:,}" if measure == "runs" else f"{x:.3g}" for x in _bounds(works, measure))
    return fewest if fewest == most else f"{fewest} to {most}"
