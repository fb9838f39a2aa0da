"""Exhibits that several experiments and sweeps show, and how names and numbers are written in them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from widthwise.fit import Estimate, Optimum
from widthwise.fit.transfer import CALLED, GROWN
from widthwise.report.exhibits import Lines, Panel, Series, Table, Transfers
from widthwise.study.axes import AXES, WIDTH
from widthwise.study.fits import GroupFit, best_losses
from widthwise.study.setting import Setting

NAMES = {
    "standard": "standard",
    "ntk": "NTK",
    "mup": "muP",
    "mean_field": "mean-field",
    "sgd": "SGD",
    "adam": "Adam",
    "adam_atan2": "Adam-atan2",
    "adam_ps": "Adam + parameter scaling",
    "adafactor": "Adafactor",
    "muon": "Muon",
    "muon_out_in": "Muon × √(out/in)",
    "muon_max": "Muon × √max(out, in)",
    "full": "full alignment",
    "none": "no alignment",
    "global": "global rate",
    "tensor_programs": "Tensor Programs alignment",
    "own": "own rates",
    "default": "default constants",
    "tuned": "tuned constants",
    "paper": "the paper's constants",
    "fixed": "fixed steps",
    "compute_optimal": "compute-optimal steps",
}
"""The names that people use for those of the code."""

SWEEPS = (
    "Above: eval loss against the base learning rate, a line for each width; only stable rates are drawn, and a star "
    "marks the fitted optimum. Below: the optimal rate against width and the power law fitted to it."
)
"""How to read sweeps with their power laws."""
BEST_LOSSES = "The eval loss with the best learning rate of each width."
"""How to read losses against size."""
SIZES = {"tokens": "number of tokens", "batch": "batch size", "together": "width (all else grows with it)"}
"""What a size along an axis is called, where it is not called as the axis."""
TITLES = {
    "width": "Exponents of the optimal learning rate",
    "together": "Exponents of the optimal rate as everything grows",
}
"""The titles of tables of exponents, where they are not made from the name of the axis."""

PaperExponent: TypeAlias = Callable[[Setting], float | None]
"""Returns the paper's exponent for a setting; None where it has none."""


def called(*names: str) -> str:
    """Write names for people.

    >>> called("mup", "adam_ps")
    'muP, Adam + parameter scaling'
    """
    return ", ".join(NAMES.get(name, name) for name in names)


def slug(*names: str) -> str:
    """Return names as part of an exhibit's name.

    >>> slug("sweeps", "mean_field")
    'sweeps-mean-field'
    """
    return "-".join(names).replace("_", "-")


def heading(setting: Setting, *fields: str) -> str:
    """Write some fields of a setting for people.

    >>> heading(Setting(parameterization="mup", weight_decay=1e-4), "parameterization", "rates", "weight_decay")
    'muP, full alignment, decay 0.0001'
    """
    decay = f"decay {setting.weight_decay:.3g}" if setting.weight_decay else "no decay"
    words = {**vars(setting), "rates": setting.rates.name, "weight_decay": decay}
    return called(*(words[field] for field in fields))


def select(fits: Mapping[Setting, GroupFit], **fields: object) -> dict[Setting, GroupFit]:
    """Return the fits whose setting has these values."""
    wanted = fields.items()
    return {one: fit for one, fit in fits.items() if all(getattr(one, name) == value for name, value in wanted)}


def headed(fits: Mapping[Setting, GroupFit], *fields: str) -> dict[str, GroupFit]:
    """Return fits by the fields of their settings that tell them apart, written for people."""
    return {heading(setting, *fields): fit for setting, fit in fits.items()}


def nested(
    fits: Mapping[Setting, GroupFit], outer: str | Sequence[str], inner: str | Sequence[str]
) -> dict[str, dict[str, GroupFit]]:
    """Return fits by some fields of their settings and then by others, written for people."""
    found: dict[str, dict[str, GroupFit]] = {}
    for setting, fit in fits.items():
        panel, line = (heading(setting, *([some] if isinstance(some, str) else some)) for some in (outer, inner))
        found.setdefault(panel, {})[line] = fit
    return found


def signed(value: float, digits: int = 2) -> str:
    """Write a number, with a true minus sign.

    >>> signed(-0.951), signed(0.02), signed(-0.001), signed(float("nan"))
    ('−0.95', '0.02', '0.00', '–')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


def percent(fraction: float) -> str:
    """Write a relative change.

    >>> percent(-0.0123)
    '−1.23 %'
    """
    return f"{signed(100 * fraction)} %"


def interval(estimate: Estimate) -> str:
    """Write the interval of an estimate.

    >>> interval(Estimate(value=-1, low=-1.5, high=-0.5)), interval(Estimate(value=1, low=-math.inf, high=2))
    ('[−1.50, −0.50]', '')
    """
    known = math.isfinite(estimate.low) and math.isfinite(estimate.high)
    return f"[{signed(estimate.low)}, {signed(estimate.high)}]" if known else ""


def with_interval(estimate: Estimate) -> str:
    """Write an estimate with its interval.

    >>> with_interval(Estimate(value=-1, low=-1.5, high=-0.5)), with_interval(Estimate(value=1, low=-math.inf, high=2))
    ('−1.00 [−1.50, −0.50]', '1.00 [interval unknown]')
    """
    if not math.isfinite(estimate.value):
        return "–"
    return f"{signed(estimate.value)} {interval(estimate) or '[interval unknown]'}"


def stated(estimate: Estimate, words: str = "{}") -> str:
    """Write an estimate with its interval into a phrase; empty where it is not known.

    >>> stated(Estimate(value=1, low=0.5, high=1.5), "apart by {}"), stated(Estimate(value=math.nan, low=0, high=0))
    ('apart by 1.00 [0.50, 1.50]', '')
    """
    return words.format(with_interval(estimate)) if math.isfinite(estimate.value) else ""


def transfers(
    name: str,
    title: str,
    fits: Mapping[str, GroupFit],
    paper: PaperExponent | None = None,
    *,
    caption: str = SWEEPS,
) -> Transfers:
    """Show sweeps and power laws, a panel for each fit by its heading, with the paper's exponents where it has any."""
    axis = axis_of(fits.values())
    return Transfers(
        name=along(name, axis),
        title=title,
        caption=_about(caption, axis),
        fits=tuple(fits.values()),
        panels=tuple(fits),
        paper=tuple(None if paper is None else paper(fit.setting) for fit in fits.values()),
    )


def axis_of(fits: Iterable[GroupFit]) -> str:
    """Return the axis of fits, which share one; width if there are none."""
    return next((fit.transfer.axis for fit in fits), WIDTH.name)


def size_along(axis: str) -> str:
    """Return what a figure calls the sizes along an axis."""
    return SIZES.get(axis, axis)


def _about(caption: str, axis: str) -> str:
    """Return a caption about width for another axis."""
    return caption.replace(WIDTH.name, CALLED.get(axis) or size_along(axis))


def along(name: str, axis: str) -> str:
    """Return the name of an exhibit for an axis: that of the one for width, with the axis unless it is width."""
    return name if axis == WIDTH.name else f"{name}-{axis}"


def loss_against_size(
    panels: Mapping[str, Mapping[str, GroupFit]],
    title: str = "Best eval loss against size",
    *,
    name: str = "loss-against-size",
    caption: str = BEST_LOSSES,
) -> Lines:
    """Show the best eval loss against model size: by the heading of a panel, fits by their name in the legend.

    Where the number of parameters is not known, as in sweeps of one's own, or the same for all, the size is that along
    the axis of the sweep.
    """
    fits = [fit for lines in panels.values() for fit in lines.values()]
    axis = axis_of(fits)
    counted = AXES[axis].grows and not any(fit.is_own for fit in fits)
    coloured = len({fit.names.get("parameterization") for fit in fits}) > 1  # or all lines would share a colour

    def series(label: str, fit: GroupFit) -> Series:
        sizes = {trial.width: float(trial.width) for trial in fit.trials}
        if counted:
            sizes = {trial.width: float(trial.parameters) for trial in fit.trials if trial.parameters is not None}
        losses = {width: loss for width, loss in best_losses(fit).items() if width in sizes}
        x, y = tuple(sizes[width] for width in losses), tuple(losses.values())
        return Series(name=label, x=x, y=y, parameterization=fit.names.get("parameterization") if coloured else None)

    drawn = tuple(
        Panel(title=heading, series=tuple(series(label, fit) for label, fit in lines.items()))
        for heading, lines in panels.items()
        if lines
    )
    x_label = "parameters" if counted else size_along(axis)
    caption = _about(caption, axis)
    return Lines(
        name=along(name, axis), title=title, caption=caption, panels=drawn, x_label=x_label, y_label="eval loss"
    )


def sensitivity(fits: Mapping[str, GroupFit]) -> Table:
    """Show how sensitive each setting is to its learning rate: curvature at the optimum, distance to the edge."""
    axis = axis_of(fits.values())

    def row(heading: str, optimum: Optimum) -> dict[str, str]:
        rate, octaves = optimum.learning_rate.value, optimum.octaves_to_edge
        return {
            "group": heading,
            CALLED.get(axis, axis): str(optimum.width),
            "optimal rate": (f"{rate:.3g}" if math.isfinite(rate) else "–") + ("" if optimum.interior else " ?"),
            "eval loss": signed(optimum.eval_loss, 4),
            "curvature": signed(optimum.curvature.value, 4),
            "octaves to the edge": "–" if octaves is None else signed(octaves, 1),
        }

    return Table.of(
        along("sensitivity", axis),
        "Sensitivity to the learning rate",
        "Curvature of the log of the loss at the optimum, per squared octave of the learning rate (larger: more "
        "sensitive), and how many octaves above the optimum training becomes unstable. A question mark: the best rate "
        "lies at the edge of the range that was tried.",
        [row(heading, optimum) for heading, fit in fits.items() for optimum in fit.transfer.optima],
    )


def exponents(fits: Mapping[str, GroupFit], paper: PaperExponent | None = None) -> Table:
    """Show the exponent of each setting's optimal learning rate, with its verdict and the paper's value."""
    axis = axis_of(fits.values())

    def row(heading: str, fit: GroupFit) -> dict[str, str]:
        exponent, reuse, verdict = fit.transfer.law.exponent, fit.transfer.reuse, fit.transfer.verdict
        given_up = reuse[-1].given_up if len(reuse) > 1 else math.nan
        known = None if paper is None else paper(fit.setting)
        return {
            "group": heading,
            "exponent": signed(exponent.value),
            "95 % interval": interval(exponent) or "unknown",
            "transfers?": str(verdict.outcome) + (f", but {GROWN[axis]} is worse" if verdict.worse else ""),
            "cost of reusing the rate": "diverges" if math.isinf(given_up) else signed(given_up, 4),
            **({} if paper is None else {"paper": "–" if known is None else signed(known)}),
        }

    return Table.of(
        along("exponents", axis),
        TITLES.get(axis, f"Exponents of the optimal rate in {axis}"),
        _about(
            "Exponent of the optimal base learning rate against width: 0 means that the rate can be reused. The cost "
            "is what the largest width loses with the rate that is best at the smallest.",
            axis,
        ),
        [row(heading, fit) for heading, fit in fits.items()],
    )


def eval_losses(
    fits: Mapping[tuple[str, str, str], GroupFit],
    columns: Sequence[str],
    caption: str,
    paper: Mapping[tuple[str, str, str], float],
) -> tuple[Table, ...]:
    """Show the best eval losses at the largest width, and the paper's in a table of its own.

    Args:
        fits: The fits by optimizer, parameterization and column.
        columns: The columns.
        caption: What the columns are.
        paper: The paper's losses, by the same keys.
    """
    if not fits:
        return ()
    width = max(trial.width for fit in fits.values() for trial in fit.trials)
    losses = {key: best_losses(fit).get(width, math.nan) for key, fit in fits.items()}
    theirs = tuple(dict.fromkeys(column for *_, column in paper))
    of_paper = _losses("eval-losses-paper", "The paper's eval losses at 26.8 B parameters", paper, theirs)
    return (
        _losses("eval-losses", f"Best eval losses at width {width}", losses, columns, caption),
        replace(of_paper, paper=frozenset(range(2, 2 + len(theirs)))),
    )


def _losses(
    name: str,
    title: str,
    losses: Mapping[tuple[str, str, str], float],
    columns: Sequence[str],
    caption: str = "From the paper, for comparison; not measured here.",
) -> Table:
    """Show losses, a row for each optimizer and parameterization, the best of each row marked."""
    pairs = dict.fromkeys((optimizer, parameterization) for optimizer, parameterization, _ in losses)
    values = {pair: [losses.get((*pair, column), math.nan) for column in columns] for pair in pairs}
    return Table(
        name=name,
        title=title,
        caption=f"{caption} The best setting of each row is marked.",
        columns=("optimizer", "parameterization", *columns),
        rows=tuple((*map(called, pair), *(signed(cell, 3) for cell in cells)) for pair, cells in values.items()),
        best=frozenset(
            (row, column)
            for row, cells in enumerate(values.values())
            for column, cell in enumerate(cells, start=2)
            if cell == min(filter(math.isfinite, cells), default=math.nan)
        ),
    )
