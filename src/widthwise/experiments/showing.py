"""Exhibits that several experiments show: sweeps with their power laws, loss against size, sensitivity."""

import math
from collections.abc import Mapping, Sequence

from widthwise.experiments.exhibits import Lines, Panel, Series, Table, Transfers
from widthwise.experiments.results import best_losses
from widthwise.fit import Estimate
from widthwise.sweep.fits import GroupFit

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
"""What people call what the code has names for."""

SWEEPS = (
    "Above: eval loss against the base learning rate, a line for each width; only stable rates are drawn, the optimum "
    "is marked. Below: the optimal rate against width and the power law through it."
)
"""How to read sweeps with their power laws."""
BEST_LOSSES = "The eval loss with the best learning rate of each width."
"""How to read losses against size."""


def called(*names: str) -> str:
    """Write names for people.

    >>> called("mup", "adam_ps")
    'muP, Adam + parameter scaling'
    """
    return ", ".join(NAMES.get(name, name) for name in names)


def signed(value: float, digits: int = 2) -> str:
    """Write a number, with a sign that cannot be taken for a hyphen.

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


def with_interval(estimate: Estimate) -> str:
    """Write an estimate with its interval; without, where too little is known for one.

    >>> with_interval(Estimate(value=-1, low=-1.5, high=-0.5)), with_interval(Estimate(value=1, low=-math.inf, high=2))
    ('−1.00 [−1.50, −0.50]', '1.00 [interval unknown]')
    """
    if not math.isfinite(estimate.value):
        return "–"
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return f"{signed(estimate.value)} [interval unknown]"
    return f"{signed(estimate.value)} [{signed(estimate.low)}, {signed(estimate.high)}]"


def stated(estimate: Estimate, words: str = "{}") -> str:
    """Write an estimate with its interval into a phrase; nothing where it is not known.

    >>> stated(Estimate(value=1, low=0.5, high=1.5), "apart by {}"), stated(Estimate(value=math.nan, low=0, high=0))
    ('apart by 1.00 [0.50, 1.50]', '')
    """
    return words.format(with_interval(estimate)) if math.isfinite(estimate.value) else ""


def transfers(
    name: str, title: str, caption: str, fits: Mapping[str, GroupFit], paper: Mapping[str, float] | None = None
) -> Transfers:
    """Show sweeps and power laws, a panel for each group by its heading, with the paper's exponents if it has any."""
    values = paper or {}
    return Transfers(
        name=name,
        title=title,
        caption=caption,
        fits=tuple(fits.values()),
        panels=tuple(fits),
        paper=tuple(values.get(heading) for heading in fits),
    )


def losses_by_size(fit: GroupFit) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Give the number of parameters and the best eval loss of each width whose optimum is known."""
    sizes = {trial.width: trial.parameters for trial in fit.trials if trial.parameters is not None}
    losses = {width: loss for width, loss in best_losses(fit).items() if width in sizes}
    return tuple(float(sizes[width] or 0) for width in losses), tuple(losses.values())


def loss_against_size(name: str, title: str, caption: str, panels: Mapping[str, Mapping[str, GroupFit]]) -> Lines:
    """Show the best eval loss against model size: by the heading of a panel, groups by their name in the legend."""

    def series(label: str, fit: GroupFit) -> Series:
        x, y = losses_by_size(fit)
        return Series(name=label, x=x, y=y, parameterization=fit.names["parameterization"])

    return Lines(
        name=name,
        title=title,
        caption=caption,
        panels=tuple(
            Panel(title=heading, series=tuple(series(label, fit) for label, fit in fits.items()))
            for heading, fits in panels.items()
        ),
        x_label="parameters",
        y_label="eval loss",
    )


def sensitivity(name: str, fits: Mapping[str, GroupFit]) -> Table:
    """Show how sensitive each group is to its learning rate: curvature at the optimum, distance to the edge."""
    rows: list[tuple[str, ...]] = []
    for heading, fit in fits.items():
        for optimum in fit.transfer.optima:
            octaves = optimum.octaves_to_edge
            rows.append(
                (
                    heading,
                    str(optimum.width),
                    _scientific(optimum.learning_rate.value) + ("" if optimum.interior else " ?"),
                    signed(optimum.eval_loss, 4),
                    signed(optimum.curvature.value, 4),
                    "–" if octaves is None else signed(octaves, 1),
                )
            )
    return Table(
        name=name,
        title="Sensitivity to the learning rate",
        caption=(
            "Curvature of the log of the loss at the optimum, per squared octave of the learning rate (larger: more "
            "sensitive), and how many octaves above the optimum training becomes unstable. A question mark: the best "
            "rate lies at the edge of what was tried."
        ),
        columns=("group", "width", "optimal rate", "eval loss", "curvature", "octaves to the edge"),
        rows=tuple(rows),
    )


def largest_losses(groups: Mapping[tuple[str, str, str], GroupFit]) -> tuple[dict[tuple[str, str, str], float], int]:
    """Give the best eval loss of each group at the largest width of all, NaN where not known; and that width."""
    width = max(trial.width for fit in groups.values() for trial in fit.trials)
    losses = {key: best_losses(fit).get(width, math.nan) for key, fit in groups.items()}
    return losses, width


def eval_losses(
    name: str,
    title: str,
    losses: Mapping[tuple[str, str, str], float],
    settings: Sequence[str],
    *,
    caption: str,
    of_the_paper: bool = False,
) -> Table:
    """Show eval losses: a row for each optimizer and parameterization, a column for each setting, the best marked.

    Args:
        name: The table's name.
        title: Its heading.
        losses: The losses, by optimizer, parameterization and setting; NaN or missing where there is none.
        settings: The columns.
        caption: What models they are of.
        of_the_paper: Whether these are the paper's losses, and none of ours.
    """
    pairs = list(dict.fromkeys((optimizer, parameterization) for optimizer, parameterization, _ in losses))
    values = [[losses.get((*pair, setting), math.nan) for setting in settings] for pair in pairs]
    best = {
        (row, 2 + column)
        for row, cells in enumerate(values)
        for column, cell in enumerate(cells)
        if cell == min(filter(math.isfinite, cells), default=math.nan)
    }
    return Table(
        name=name,
        title=title,
        caption=f"{caption} The best setting of each row is marked.",
        columns=("optimizer", "parameterization", *settings),
        rows=tuple(
            (*map(called, pair), *(signed(cell, 3) for cell in cells))
            for pair, cells in zip(pairs, values, strict=True)
        ),
        best=frozenset(best),
        paper=frozenset(range(2, 2 + len(settings))) if of_the_paper else frozenset(),
    )


def exponents(name: str, title: str, fits: Mapping[str, GroupFit], paper: Mapping[str, float] | None = None) -> Table:
    """Show the exponent of the optimal learning rate of each group, with its verdict and the paper's value."""
    values: Mapping[str, float] = paper or {}
    columns = ["group", "exponent", "95 % interval", "transfers?", "cost of reusing the rate"]
    rows: list[Sequence[str]] = []
    for heading, fit in fits.items():
        exponent, reuse = fit.transfer.law.exponent, fit.transfer.reuse
        known = math.isfinite(exponent.low) and math.isfinite(exponent.high)
        given_up = reuse[-1].given_up if len(reuse) > 1 else math.nan
        loss = "diverges" if math.isinf(given_up) else signed(given_up, 4)
        row = [
            heading,
            signed(exponent.value),
            f"[{signed(exponent.low)}, {signed(exponent.high)}]" if known else "unknown",
            str(fit.transfer.verdict.outcome),
            loss,
        ]
        rows.append([*row, signed(values[heading]) if heading in values else "–"] if paper else row)
    if paper:
        columns.append("paper")
    return Table(
        name=name,
        title=title,
        caption=(
            "Exponent of the optimal base learning rate against width: 0 means that it can be reused. The cost is what "
            "the largest width loses with the rate that is best at the smallest."
        ),
        columns=tuple(columns),
        rows=tuple(map(tuple, rows)),
        paper=frozenset({len(columns) - 1}) if paper else frozenset(),
    )


def _scientific(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"
