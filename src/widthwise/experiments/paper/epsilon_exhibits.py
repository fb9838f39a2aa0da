"""What the experiment on underflow shows (§4.3): heatmaps, sweeps at one width, mitigations, losses, gradients."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeAlias

from widthwise.experiments.paper.values import EVAL_LOSSES, PARAMETERIZATIONS, SETTINGS, cell
from widthwise.experiments.results import Results
from widthwise.fit import Trial
from widthwise.report.exhibits import AnyExhibit, Heatmap, Heatmaps, Lines, Panel, Series, Table, present
from widthwise.report.showing import BEST_LOSSES, called, eval_losses, loss_against_size
from widthwise.study.fits import GroupFit, best_losses
from widthwise.study.setting import Setting
from widthwise.theory import Role

SWEPT, SWEPT_WIDTH = "mean_field", 4096
"""The parameterization and width of the paper's sweeps; where that width was not trained, the largest is shown."""
COLUMNS = SETTINGS[3:]
"""The columns of the table of eval losses: full and no alignment, at the baseline and with epsilons per layer."""

Fits: TypeAlias = Mapping[Setting, GroupFit]


def exhibits(
    results: Results,
    fits: Fits,
    tried: Mapping[str, Sequence[Setting]],
    baseline: Setting,
    mitigations: Sequence[Setting],
) -> tuple[AnyExhibit, ...]:
    """Show every epsilon; settings stand for all parameterizations.

    Args:
        results: The results.
        fits: What is known of every setting.
        tried: The settings of the heatmaps, by kind of epsilon.
        baseline: The setting to compare with.
        mitigations: A small constant epsilon, epsilons per layer, and Adam-atan2.
    """
    small, per_layer, _ = mitigations
    return present(
        *(_heatmaps(what, fits, kinds) for what, kinds in tried.items()),
        _sweeps({f"{what} epsilon": by_title(fits, SWEPT, *kinds) for what, kinds in tried.items()}),
        *_against_size(fits, baseline, mitigations),
        *_tables(fits, baseline, per_layer),
        _gradients(results, fits, small, baseline),
    )


def title(setting: Setting) -> str:
    """Write how epsilon is set."""
    if setting.epsilon is None:
        return called(setting.optimizer)
    per_layer = setting.epsilon_per_parameter
    return f"per-layer ε, base {setting.epsilon:.0e}" if per_layer else f"constant ε = {setting.epsilon:.0e}"


def at(fits: Fits, name: str, kind: Setting) -> GroupFit | None:
    """Return the fit of a setting in another parameterization."""
    return fits.get(replace(kind, parameterization=name))


def by_title(fits: Fits, name: str, *kinds: Setting) -> dict[str, GroupFit]:
    """Return the fits of one parameterization by what their epsilon is called."""
    return {title(kind): fit for kind in kinds if (fit := at(fits, name, kind))}


def _heatmaps(what: str, fits: Fits, kinds: Sequence[Setting]) -> Heatmaps:
    maps: list[Heatmap] = []
    for name in PARAMETERIZATIONS:
        some = [at(fits, name, kind) for kind in kinds]
        losses = [best_losses(fit) if fit else {} for fit in some]
        if rows := tuple(sorted({trial.width for fit in some if fit for trial in fit.trials})):
            values = tuple(_from_best([each.get(width, math.nan) for each in losses]) for width in rows)
            columns = tuple(f"{kind.epsilon:.0e}" for kind in kinds)
            maps.append(Heatmap(title=called(name), rows=rows, columns=columns, values=values))
    return Heatmaps(
        name=f"heatmaps-{what}",
        title=f"Eval loss by width and {what} epsilon",
        caption="Each cell: how much larger the best eval loss is than the best of its row. Adam, full alignment.",
        maps=tuple(maps),
        x_label="epsilon" if what == "constant" else "base epsilon",
    )


def _from_best(losses: list[float]) -> tuple[float, ...]:
    best = min(filter(math.isfinite, losses), default=math.nan)
    return tuple(loss - best for loss in losses)


def _sweeps(panels: Mapping[str, Mapping[str, GroupFit]]) -> Lines:
    """Show eval loss against the learning rate at one width, a line for each epsilon."""
    widths = {trial.width for fits in panels.values() for fit in fits.values() for trial in fit.trials}
    width = SWEPT_WIDTH if SWEPT_WIDTH in widths else max(widths, default=0)
    return Lines(
        name="sweeps",
        title=f"Learning rates by epsilon, {called(SWEPT)}, width {width}",
        caption="Eval loss against the base learning rate, a line for each epsilon; only stable rates are drawn.",
        panels=tuple(
            Panel(title=heading, series=tuple(_stable(name, fit, width) for name, fit in fits.items()))
            for heading, fits in panels.items()
            if widths
        ),
        x_label="base learning rate",
        y_label="eval loss",
    )


def _stable(name: str, fit: GroupFit, width: int) -> Series:
    """Return the losses of one width's stable rates, averaged over seeds."""
    edges = [optimum.edge.smallest_unstable for optimum in fit.transfer.optima if optimum.width == width]
    limit = next((edge for edge in edges if edge is not None), math.inf)
    losses: dict[float, list[float]] = defaultdict(list)
    for trial in fit.trials:
        if trial.width == width and trial.learning_rate < limit and math.isfinite(trial.eval_loss):
            losses[trial.learning_rate].append(trial.eval_loss)
    return Series(name=name, x=tuple(sorted(losses)), y=tuple(fmean(losses[rate]) for rate in sorted(losses)))


def _against_size(fits: Fits, baseline: Setting, mitigations: Sequence[Setting]) -> tuple[Lines, Lines]:
    compared = {called(name): by_title(fits, name, baseline, *mitigations) for name in PARAMETERIZATIONS}
    pairs = {
        f"{when}: {title(kind)}": {called(name): fit for name in PARAMETERIZATIONS if (fit := at(fits, name, kind))}
        for when, kind in (("before", baseline), ("after", mitigations[1]))
    }
    heading = "Equivalent parameterizations before and after epsilon is mitigated"
    caption = f"Standard and NTK are equivalent, and so are muP and mean-field. {BEST_LOSSES}"
    return (
        loss_against_size(compared, "Mitigations against the baseline", name="mitigations"),
        loss_against_size(pairs, heading, name="equivalent", caption=caption),
    )


def _tables(fits: Fits, before: Setting, after: Setting) -> tuple[Table, ...]:
    def kind(setting: Setting) -> Setting:
        return replace(setting, parameterization=before.parameterization, optimizer="adam", rates=before.rates)

    cells = {cell(setting): fit for setting, fit in fits.items() if kind(setting) in (before, after)}
    paper = {key: loss for key, loss in EVAL_LOSSES.items() if key[0] != "sgd" and key[2] in COLUMNS}
    caption = f"In the last two columns: {title(after)}; in the others: {title(before)}."
    return eval_losses(cells, COLUMNS, caption, paper)


def _gradients(results: Results, fits: Fits, kind: Setting, baseline: Setting) -> Table:
    """Show the gradients that epsilon meets: at the end of training with the best rate tried, without underflow."""
    rows: list[dict[str, str]] = []
    for name in PARAMETERIZATIONS:
        if (fit := at(fits, name, kind)) is None:
            continue
        for width in sorted({trial.width for trial in fit.trials}):
            sizes = results.gradients(fit, min((one for one in fit.trials if one.width == width), key=_loss))
            written = {role.value: f"{sizes[role]:.1e}" if role in sizes else "–" for role in Role}
            rows.append({"parameterization": called(name), "width": str(width), **written})
    return Table.of(
        "gradients",
        "Gradients that epsilon meets",
        f"Root mean square of the last gradients with {title(kind)}, at the best rate tried. Where they are not far "
        f"above the baseline, {baseline.epsilon:.0e}, it slows training.",
        rows,
    )


def _loss(trial: Trial) -> float:
    return trial.eval_loss if math.isfinite(trial.eval_loss) else math.inf
