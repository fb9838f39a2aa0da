"""What the experiment on underflow shows (§4.3): heatmaps, sweeps at one width, mitigations, losses, gradients."""

import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

from widthwise.experiments.epsilon_kinds import PART, Groups, Kind, baseline, mitigations, tried
from widthwise.experiments.exhibits import AnyExhibit, Heatmap, Heatmaps, Lines, Panel, Series, Table
from widthwise.experiments.paper_values import EVAL_LOSSES, PARAMETERIZATIONS, SETTINGS
from widthwise.experiments.results import Results, best_losses
from widthwise.experiments.showing import BEST_LOSSES, called, eval_losses, largest_losses, loss_against_size
from widthwise.experiments.sizes import Scale
from widthwise.fit import Trial
from widthwise.sweep.fits import GroupFit
from widthwise.theory import Role

SWEPT = "mean_field"
"""The parameterization whose sweeps are shown."""
SWEPT_WIDTH = 4096
"""The width of the paper's sweeps; where it was not trained, the largest stands in for it."""
OPTIMIZERS = ("adam", "adam_ps")
COLUMNS = tuple(setting for setting in SETTINGS if setting.startswith(("full + optimal", "none + optimal")))
"""The columns of the table of eval losses: full and no alignment, at the baseline and with epsilons per layer."""


def exhibits(groups: Groups, results: Results) -> tuple[AnyExhibit, ...]:
    """Show what is known of every kind of epsilon."""
    kinds = dict(zip(("constant", "per-layer"), tried(groups.scale), strict=True))
    heatmaps = [_heatmaps(what, groups, some) for what, some in kinds.items()]
    gradients = _gradients(groups, results)
    return (
        *(shown for shown in heatmaps if shown.maps),
        *_sweeps({f"{what} epsilon": groups.by_kind(SWEPT, some) for what, some in kinds.items()}),
        *(shown for shown in _against_size(groups) if shown.panels),
        *_tables(groups),
        *([gradients] if gradients.rows else []),
    )


def _heatmaps(what: str, groups: Groups, kinds: tuple[Kind, ...]) -> Heatmaps:
    columns = tuple(f"{kind.epsilon:.0e}" for kind in kinds)
    maps: list[Heatmap] = []
    for name in PARAMETERIZATIONS:
        fits = [groups.get(name, kind) for kind in kinds]
        losses = [best_losses(fit) if fit else {} for fit in fits]
        rows = tuple(sorted({trial.width for fit in fits if fit for trial in fit.trials}))
        if rows:
            values = tuple(_from_best([each.get(width, math.nan) for each in losses]) for width in rows)
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


def _sweeps(panels: Mapping[str, Mapping[str, GroupFit]]) -> list[Lines]:
    """Show eval loss against the learning rate at one width, a line for each epsilon."""
    widths = {trial.width for fits in panels.values() for fit in fits.values() for trial in fit.trials}
    if not widths:
        return []
    width = SWEPT_WIDTH if SWEPT_WIDTH in widths else max(widths)
    return [
        Lines(
            name="sweeps",
            title=f"Learning rates by epsilon, {called(SWEPT)}, width {width}",
            caption="Eval loss against the base learning rate, a line for each epsilon, of stable rates.",
            panels=tuple(
                Panel(title=heading, series=tuple(_stable(title, fit, width) for title, fit in fits.items()))
                for heading, fits in panels.items()
            ),
            x_label="base learning rate",
            y_label="eval loss",
        )
    ]


def _stable(title: str, fit: GroupFit, width: int) -> Series:
    """Give the losses of one width's stable rates, averaged over seeds."""
    edges = [optimum.edge.smallest_unstable for optimum in fit.transfer.optima if optimum.width == width]
    limit = next((edge for edge in edges if edge is not None), math.inf)
    losses: dict[float, list[float]] = defaultdict(list)
    for trial in fit.trials:
        if trial.width == width and trial.learning_rate < limit and math.isfinite(trial.eval_loss):
            losses[trial.learning_rate].append(trial.eval_loss)
    return Series(name=title, x=tuple(sorted(losses)), y=tuple(fmean(losses[rate]) for rate in sorted(losses)))


def _against_size(groups: Groups) -> list[Lines]:
    before, after = baseline(groups.scale), mitigations(groups.scale)[1]
    compared = (before, *mitigations(groups.scale))
    mitigated = {called(name): fits for name in PARAMETERIZATIONS if (fits := groups.by_kind(name, compared))}
    pairs = {f"{when}: {kind.title}": groups.by_name(kind) for when, kind in (("before", before), ("after", after))}
    return [
        loss_against_size("mitigations", "Mitigations against the baseline", BEST_LOSSES, mitigated),
        loss_against_size(
            "equivalent",
            "Equivalent parameterizations before and after epsilon is mitigated",
            f"Standard and NTK are equivalent, and so are muP and mean-field. {BEST_LOSSES}",
            {heading: {called(name): fit for name, fit in fits.items()} for heading, fits in pairs.items() if fits},
        ),
    ]


def _tables(groups: Groups) -> list[Table]:
    found = {
        (optimizer, name, column): fit
        for optimizer in OPTIMIZERS
        for name in PARAMETERIZATIONS
        for column in COLUMNS
        if (fit := groups.get(name, _kind(column, groups.scale), optimizer=optimizer, setting=column.split()[0]))
    }
    if not found:
        return []
    losses, width = largest_losses(found)
    before, after = (_kind(column, groups.scale).title for column in (COLUMNS[0], COLUMNS[-1]))
    return [
        eval_losses(
            "eval-losses",
            f"Best eval losses at width {width}",
            losses,
            COLUMNS,
            caption=f"In the last two columns: {after}; in the others: {before}.",
        ),
        eval_losses(
            "eval-losses-paper",
            "The paper's eval losses at 26.8 B parameters",
            {key: loss for key, loss in EVAL_LOSSES.items() if key[0] in OPTIMIZERS and key[2] in COLUMNS},
            COLUMNS,
            caption="From the paper, for comparison; not measured here.",
            of_the_paper=True,
        ),
    ]


def _kind(column: str, scale: Scale) -> Kind:
    return mitigations(scale)[1] if column.endswith("per-layer epsilon") else baseline(scale)


def _gradients(groups: Groups, results: Results) -> Table:
    """Show the gradients that epsilon meets: at the end of training with the best rate tried, without underflow."""
    kind, epsilon = mitigations(groups.scale)[0], baseline(groups.scale).epsilon
    rows: list[tuple[str, ...]] = []
    for name, fit in groups.by_name(kind).items():
        for width in sorted({trial.width for trial in fit.trials}):
            best = min((trial for trial in fit.trials if trial.width == width), key=_loss)
            sizes = results.gradients(PART, fit, best)
            rows.append((called(name), str(width), *(f"{sizes[role]:.1e}" if role in sizes else "–" for role in Role)))
    return Table(
        name="gradients",
        title="Gradients that epsilon meets",
        caption=(
            f"Root mean square of the last gradients with {kind.title}, at the best rate tried. Where they are not far "
            f"above the baseline, {epsilon:.0e}, it slows training."
        ),
        columns=("parameterization", "width", *(role.value for role in Role)),
        rows=tuple(rows),
    )


def _loss(trial: Trial) -> float:
    return trial.eval_loss if math.isfinite(trial.eval_loss) else math.inf
