"""Turn the output of `wide.py` into the CSV files, figures and tables of docs/width-4096.md.

    python benchmarks/wide_report.py collect FOLDER... --to docs/results
    python benchmarks/wide_report.py draw --to docs/results

`collect` writes CSV files from the output folders of `wide.py`. `draw` needs only these files.
"""

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from widthwise.fit import Takeover, Trial, exponent, fit_takeover, fit_transfer
from widthwise.report.style import COLOURS, panel_grid, ramp, styled

WIDTHS = (256, 512, 1024, 2048, 4096)
RUNS, LOOKS, LAYERS, CURVES = (f"width-4096-{name}.csv" for name in ("runs", "looks", "layers", "losses"))
CHOICES = ("rates", "b1", "b2", "epsilon", "init", "factors", "early", "until")
PAPER = {"warmup": 30, "readout": "standard"}
OURS = {"warmup": 100, "readout": "small"}


def collect(folders: Sequence[Path], to: Path) -> None:
    """Write all runs to CSV files."""
    found = [json.loads(line) for folder in folders for line in (folder / "runs.jsonl").open()]
    runs = [_run(number, line) for number, line in enumerate(found) if line["stop"] is None]
    _write(to / RUNS, runs)
    chosen = [
        (run["run"], line["loss"])
        for run, line in zip(runs, (x for x in found if x["stop"] is None), strict=True)
        if run["kind"] == "plain" and run["seed"] == 0 and (run["rate"], run["steps"]) in ((0.005, 300), (0.0035, 300))
    ]
    _write(
        to / CURVES,
        [{"step": step, **{f"run {name}": loss[step] for name, loss in chosen}} for step in range(300)],
    )
    looks = [json.loads(line) for folder in folders for line in (folder / "looks.jsonl").open()]
    _write(to / LOOKS, [_look(line) for line in looks])
    layers = [
        {**{name: line[name] for name in ("width", "rate", "warmup", "seed", "step")}, "layer": path, **values}
        for line in looks
        if len(line["layers"]) > 1 and line["step"]
        for path, values in (
            (path, {name: x[name] for name in ("output_change", "updated", "inherited", "joint")})
            for path, x in line["layers"].items()
        )
    ]
    _write(to / LAYERS, layers)


def _run(number: int, line: dict[str, Any]) -> dict[str, Any]:
    """Describe a run; a plain one varies only the rate, the warm-up and the initial size of the readout."""
    usual = {"rates": None, "b1": 0.9, "b2": 0.98, "epsilon": 1e-9, "factors": {}, "early": {}, "until": 0}
    readout = line["init"].get("readout", 1.0)
    small = (line["width"] / 256) ** -0.5
    plainly = all(line[name] == value for name, value in usual.items()) and set(line["init"]) <= {"readout"}
    plainly &= line["parameterization"] == "standard" and readout in (1.0, small)
    return {
        "run": number,
        "kind": "plain" if plainly else "other",
        "readout": "standard" if readout == 1.0 and "readout" not in line["init"] else _name(readout, small),
        **{name: line[name] for name in ("width", "rate", "steps", "warmup", "seed", "parameterization")},
        **{name: json.dumps(line[name]) if isinstance(line[name], dict) else line[name] for name in CHOICES},
        **{f"eval_{step}": round(line["eval"][str(step)], 5) if str(step) in line["eval"] else None for step in EVALS},
    }


EVALS = tuple(range(100, 1300, 100))


def _name(readout: float, small: float) -> str:
    return "small" if readout == small else "zero" if readout == 0 else "other"


def _look(line: dict[str, Any]) -> dict[str, Any]:
    readout, summary = line["layers"]["readout/kernel"], dict(line["summary"])
    residual = summary.pop("residual")
    small = line["label"] in ("ours", "small readout")
    return {
        "readout": "small" if small else "standard",
        **{name: line[name] for name in ("width", "rate", "warmup", "seed", "step")},
        **summary,
        **{f"readout_{name}": readout[name] for name in ("output_change", "updated", "inherited", "joint", "omega")},
        **{f"stream_{place}_{name}": x[name] for place, x in residual.items() for name in ("rms", "common")},
    }


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open() as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "." not in text else number


class Results:
    """The contents of the CSV files."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.looks, self.layers = (_read(folder / name) for name in (RUNS, LOOKS, LAYERS))
        self.curves = _read(folder / CURVES)

    def plain(self, **wanted: Any) -> list[dict[str, Any]]:
        """Return the plain runs with these settings; at width 256, the small and the standard readout are the same."""
        wanted = {"steps": 300, **wanted}
        return [run for run in self.runs if run["kind"] == "plain" and _fits(run, wanted)]

    def losses(self, run: int) -> np.ndarray:
        """Return the training loss of a run at every step."""
        return np.array([row[f"run {run}"] for row in self.curves])

    def at(self, **wanted: Any) -> list[dict[str, Any]]:
        """Return the measurements in runs with these settings."""
        return [look for look in self.looks if _fits(look, wanted)]


def _fits(row: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(
        row[name] == value or (name == "readout" and row["width"] == 256 and row[name] in ("standard", "small"))
        for name, value in wanted.items()
    )


def trials(runs: Iterable[dict[str, Any]]) -> list[Trial]:
    """Return runs as trials; a run that was repeated counts once, with its mean loss."""
    found = defaultdict(list)
    for run in runs:
        found[run["width"], run["rate"], run["seed"]].append(run[f"eval_{run['steps']}"])
    return [
        Trial(width=width, learning_rate=rate, seed=seed, eval_loss=float(np.mean(losses)))
        for (width, rate, seed), losses in found.items()
    ]


def tables(results: Results) -> None:
    """Print the numbers that the page quotes."""
    for name, setting in (("paper", PAPER), ("ours", OURS), ("small readout, 30", {**OURS, "warmup": 30})):
        fitted = fit_transfer(trials(results.plain(**setting)))
        print(f"\n{name}: {fitted.verdict}")
        for optimum, reuse in zip(fitted.optima, fitted.reuse, strict=True):
            rate = optimum.learning_rate
            print(
                f"  {optimum.width:5} optimum {rate.value:.5f} [{rate.low:.5f}, {rate.high:.5f}] "
                f"interior {optimum.interior} seeds {optimum.seeds} loss {optimum.eval_loss:.4f} "
                f"reuse {reuse.eval_loss:.4f} gives up {reuse.given_up:.4f} = {reuse.given_up / optimum.eval_loss:.2%}"
            )
        for rate in (0.0025, 0.0035, 0.005):
            mine = trials(run for run in results.plain(**setting) if run["rate"] == rate)
            by_width = {w: [f"{x.eval_loss:.4f}" for x in mine if x.width == w] for w in WIDTHS}
            print(f"  at {rate}: {by_width}")
    print("\nslope of the change of each layer's output against width, paper, rate 0.005, by step")
    steps = (2, 3, 4, 6, 8, 10, 15, 20, 30)
    for layer in dict.fromkeys(row["layer"] for row in results.layers):
        mine = {(row["step"], row["width"]): row["output_change"] for row in results.layers if row["layer"] == layer}
        slopes = [exponent(WIDTHS, [mine[step, width] for width in WIDTHS]) for step in steps]
        print(f"  {layer:34}", " ".join(f"{slope:6.2f}" for slope in slopes))
    print("\nthe first update: squares of W0 dz = B + A n")
    for rate in (0.00125, 0.0025, 0.005, 0.01):
        sizes = first(results, rate)
        line = _line(sizes)
        told = {width: round(line.at(width), 3) for width in (2048, 4096)}
        part = math.sqrt(line.aligned * 1024)
        print(f"  {rate}: {sizes}; equal at {line.width:.0f}, predicted {told}, aligned at 1024 {part:.2f}")


def _line(sizes: dict[int, float]) -> Takeover:
    narrow = {width: size for width, size in sizes.items() if width <= 1024}
    return fit_takeover(list(narrow), list(narrow.values()))


def first(results: Results, rate: float) -> dict[int, float]:
    """Return the size of W⁰Δz of the standard readout after the first update, by width."""
    found = defaultdict(list)
    for look in results.at(readout="standard", rate=rate, warmup=30, step=2):
        if look["readout"] == "standard":
            found[look["width"]].append(look["readout_inherited"] ** 2)
    return {width: round(math.sqrt(np.mean(found[width])), 3) for width in sorted(found)}


def smooth(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average over a window that grows with the step."""
    steps = np.unique(np.round(np.geomspace(1, len(losses) - 1, 90)).astype(int))
    return steps, np.array([losses[max(0, s - s // 12) : s + s // 12 + 1].mean() for s in steps])


def draw_curves(results: Results, to: Path) -> None:
    """Draw the loss against steps at all widths."""
    with styled():
        panels = (
            ("as the paper prescribes it,\nrate 0.005", {**PAPER, "rate": 0.005}),
            ("small readout, 100 steps of\nwarm-up, rate 0.005", {**OURS, "rate": 0.005}),
            ("the same, rate 0.0035,\nthe best of width 256", {**OURS, "rate": 0.0035}),
        )
        figure, axes = panel_grid(len(panels), width=3.0, heights=(2.9,), beside=0.9)
        for (axis,), (title, setting) in zip(axes, panels, strict=True):
            for width, colour in zip(WIDTHS, ramp(len(WIDTHS)), strict=True):
                run = results.plain(**setting, width=width, seed=0)[0]
                steps, losses = smooth(results.losses(run["run"]))
                axis.plot(steps, losses, color=colour, label=str(width))
            axis.set(xscale="log", yscale="log", title=title, xlabel="step", yticks=[1.5, 2, 3, 4, 6, 9])
            axis.set_yticks([], minor=True)
            axis.set_yticklabels(["1.5", "2", "3", "4", "6", "9"])
            axis.set_xticks([1, 3, 10, 30, 100, 300], ["1", "3", "10", "30", "100", "300"])
            axis.set_xticks([], minor=True)
        axes[0][0].set_ylabel("training loss")
        axes[-1][0].legend(title="width", loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(to / "width-4096-losses.svg")


def draw_sweeps(results: Results, to: Path) -> None:
    """Draw the eval loss against the rate."""
    with styled():
        panels = (
            ("as the paper prescribes it", PAPER),
            ("small readout, 100 steps of warm-up", OURS),
        )
        figure, axes = panel_grid(len(panels), width=3.6, heights=(3.0,), beside=0.9)
        for (axis,), (title, setting) in zip(axes, panels, strict=True):
            found = trials(results.plain(**setting))
            fitted = {optimum.width: optimum for optimum in fit_transfer(found).optima}
            for width, colour in zip(WIDTHS, ramp(len(WIDTHS)), strict=True):
                mine = [x for x in found if x.width == width]
                rates = sorted({x.learning_rate for x in mine})
                means = [np.mean([x.eval_loss for x in mine if x.learning_rate == rate]) for rate in rates]
                axis.plot(rates, means, color=colour, label=str(width))
                axis.plot([x.learning_rate for x in mine], [x.eval_loss for x in mine], ".", color=colour, ms=4)
                best = fitted[width].learning_rate
                axis.errorbar(
                    best.value,
                    fitted[width].eval_loss,
                    xerr=[[best.value - best.low], [min(best.high, 0.02) - best.value]],
                    fmt="D",
                    ms=5,
                    color=colour,
                    capsize=2,
                )
            axis.set(xscale="log", title=title, xlabel="base learning rate", ylim=(1.22, 1.85), xlim=(0.0011, 0.0115))
            axis.set_xticks([0.00125, 0.0025, 0.005, 0.01], ["0.00125", "0.0025", "0.005", "0.01"])
            axis.set_xticks([], minor=True)
        axes[0][0].set_ylabel("eval loss after 300 steps")
        axes[-1][0].legend(title="width", loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(to / "width-4096-sweeps.svg")


def draw_cause(results: Results, to: Path) -> None:
    """Draw the first update, and how much of the stream all tokens share in the first steps."""
    with styled():
        figure, axes = panel_grid(3, width=3.1, heights=(2.9,), beside=0.9, share_y=False)
        axis = axes[0][0]
        for rate, colour in zip((0.00125, 0.0025, 0.005), COLOURS, strict=False):
            sizes = first(results, rate)
            axis.plot(list(sizes), list(sizes.values()), "o", color=colour, label=f"rate {rate:g}")
            grid = np.geomspace(200, 5000, 50)
            axis.plot(grid, [_line(sizes).at(width) for width in grid], color=colour, lw=1)
        small = results.at(readout="small", rate=0.005, warmup=30, step=2, seed=0)
        small = {x["width"]: x["readout_inherited"] for x in small if x["readout"] == "small" or x["width"] == 256}
        axis.plot(list(small), list(small.values()), "D--", color=COLOURS[3], label="rate 0.005,\nsmall readout", lw=1)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="width",
            title="change of logits through the\ninitial readout, first update",
        )
        axis.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
        axis.set_xticks([], minor=True)
        axis.set_yticks([0.1, 0.2, 0.5, 1.0], ["0.1", "0.2", "0.5", "1"])
        axis.set_yticks([], minor=True)
        axis.set_ylim(0.06, 1.8)
        axis.legend(fontsize=7, loc="lower right")
        for (axis,), readout, title in (
            (axes[1], "standard", "share of the stream that all tokens\nhave in common: standard readout"),
            (axes[2], "small", "the same,\nsmall readout"),
        ):
            for width, colour in zip(WIDTHS, ramp(len(WIDTHS)), strict=True):
                mine = [
                    x
                    for x in results.at(readout=readout, rate=0.005, warmup=30, seed=0, width=width)
                    if 0 < x["step"] <= 100
                ]
                by_step = {x["step"]: x["stream_mlp_0_common"] for x in mine}
                steps = sorted(by_step)
                axis.plot(steps, [by_step[step] for step in steps], ".-", color=colour, label=str(width))
            axis.set(xscale="log", ylim=(0, 1), xlabel="step", title=title)
            axis.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
            axis.set_xticks([], minor=True)
        axes[2][0].legend(title="width", loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(to / "width-4096-cause.svg")


def main() -> None:
    """Parse the arguments and run the action."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["collect", "draw"])
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--to", type=Path, default=Path("docs/results"))
    chosen = parser.parse_args()
    if chosen.action == "collect":
        collect(chosen.folders, chosen.to)
        return
    results = Results(chosen.to)
    tables(results)
    draw_curves(results, chosen.to)
    draw_sweeps(results, chosen.to)
    draw_cause(results, chosen.to)


if __name__ == "__main__":
    main()
