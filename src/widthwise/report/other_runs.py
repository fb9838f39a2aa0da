"""The runs of a study that belong to no experiment, such as those of `widthwise sweep`, read and shown all the same."""

from collections.abc import Mapping, Sequence

from widthwise.experiments.exhibits import AlignmentCurves, AnyExhibit, Table
from widthwise.experiments.experiment import Reading
from widthwise.experiments.results import alignment_points
from widthwise.experiments.showing import called, exponents, loss_against_size, sensitivity, signed, transfers
from widthwise.sweep import Row, Study
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.fits import GroupFit, fit_rows

MOST_PANELS = 4
"""The most groups in a figure of sweeps."""
MOST_MEASURED = 12
"""The most runs whose alignment is drawn."""
_DEFAULTS = {"constants": DEFAULT, "horizon": "fixed"}
"""What need not be said of a group."""


def other_runs(study: Study, beside: Sequence[str]) -> tuple[Reading, tuple[str, ...]]:
    """Read runs that no experiment asked for.

    Args:
        study: Where they are.
        beside: How the labels of experiments begin.

    Returns:
        What there is to see, and which optima are missing, in a line each.
    """
    rows = study.runs(beside=beside)
    fits = fit_rows(rows)
    exhibits = [*_sweeps(fits), *_alignment(study, rows), *_constants(study, beside)]
    missing = [
        f"{label(fit)}: no optimum inside what was tried at width {', '.join(map(str, left_out))}"
        for fit in fits
        if (left_out := fit.transfer.verdict.left_out)
    ]
    return Reading(findings=(), exhibits=tuple(exhibits)), tuple(missing)


def label(fit: GroupFit, *, without: str = "") -> str:
    """Write what a group is called by, less what need not be said."""
    return ", ".join(word for name, word in _words(fit).items() if name != without) or "all"


def _words(fit: GroupFit) -> dict[str, str]:
    names = {name: called(value) for name, value in fit.names.items() if _DEFAULTS.get(name) != value}
    return names | {name: _said(name, value) for name, value in fit.where.items()}


def _said(name: str, value: object) -> str:
    """Write what tells groups of a study apart.

    >>> _said("probe", True), _said("weight_decay", 1e-4), _said("epsilon_per_parameter", False)
    ('alignment measured', 'weight decay 0.0001', 'epsilon per parameter off')
    """
    if name == "probe":
        return "alignment measured"
    if isinstance(value, bool):
        value = "on" if value else "off"
    return f"{name.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"


def _sweeps(fits: Sequence[GroupFit]) -> list[AnyExhibit]:
    """Show sweeps in figures of a few panels that differ in one thing, the parameterization if they can."""
    if not fits:
        return []
    axis = next(
        (name for name in fits[0].names if len({fit.names[name] for fit in fits}) > 1),
        "parameterization",
    )
    together: dict[str, dict[str, GroupFit]] = {}
    for fit in fits:
        panels = together.setdefault(label(fit, without=axis), {})
        panels[called(fit.names[axis])] = fit
    exhibits: list[AnyExhibit] = [
        transfers(
            f"rates-{number}",
            heading,
            "Above: eval loss against the base learning rate, a line for each width; only stable rates are drawn. "
            "Below: the optimal rate against width, with 95 % intervals, and the power law through it.",
            panels,
        )
        for number, (heading, panels) in enumerate(_parts(together), 1)
    ]
    named = {label(fit): fit for fit in fits}
    caption = "The eval loss with the best learning rate of each width."
    return [
        *exhibits,
        exponents("exponents", "Exponents of the optimal learning rate", named),
        loss_against_size(
            "loss-against-size",
            "Best eval loss against size",
            caption,
            together,
        ),
        sensitivity("sensitivity", named),
    ]


def _parts(together: Mapping[str, dict[str, GroupFit]]) -> list[tuple[str, dict[str, GroupFit]]]:
    parts: list[tuple[str, dict[str, GroupFit]]] = []
    for heading, panels in together.items():
        names = list(panels)
        for start in range(0, len(names), MOST_PANELS):
            parts.append((heading, {name: panels[name] for name in names[start : start + MOST_PANELS]}))
    return parts


def _alignment(study: Study, rows: Sequence[Row]) -> list[AnyExhibit]:
    """Show alignment in the best run of every group and width that was measured."""
    measured = [row for row in rows if row.spec.get("probe") and row.status == "finished"]
    best: dict[str, Row] = {}
    for row in measured:
        names = (row.spec["parameterization"], row.spec["optimizer"], row.spec["alignment"])
        heading = f"{called(*names)}, width {row.spec['width']}"
        if heading not in best or row.results["eval_loss"] < best[heading].results["eval_loss"]:
            best[heading] = row
    shown = dict(list(best.items())[:MOST_MEASURED])
    curves = study.curves([row.run for row in shown.values()])
    panels = {heading: alignment_points(curves[row.run]) for heading, row in shown.items()}
    panels = {heading: points for heading, points in panels.items() if points}
    if not panels:
        return []
    more = f" Shown are the first {len(shown)} of {len(best)}." if len(shown) < len(best) else ""
    return [
        AlignmentCurves(
            name="alignment",
            title="Alignment through training",
            caption="The log alignment ratio of every dense layer, in the run with the best learning rate: 1/2 means "
            f"no alignment, 1 full alignment; later blocks are darker.{more}",
            panels=panels,
        )
    ]


def _constants(study: Study, beside: Sequence[str]) -> list[AnyExhibit]:
    rows: list[tuple[str, ...]] = []
    for note, kept in study.notes("constants/").items():
        name, optimizer, parameterization = note.removeprefix("constants/").rsplit("/", 2)
        if name.startswith(tuple(beside)):
            continue
        constants, about = kept["constants"], kept.get("about") or {}
        edges = ", ".join(about.get("at_edge", ()))
        rows.append(
            (
                name,
                called(optimizer),
                called(parameterization),
                *(f"{constants[role]:.3g}" for role in ("embedding", "hidden", "readout")),
                signed(about.get("eval_loss", float("nan")), 4),
                edges or "–",
            )
        )
    if not rows:
        return []
    return [
        Table(
            name="constants",
            title="Constants tuned",
            caption="Factors on the learning rates of the layers, found at the base width.",
            columns=(
                "name",
                "optimizer",
                "parameterization",
                "embedding",
                "hidden",
                "readout",
                "eval loss",
                "at an edge",
            ),
            rows=tuple(rows),
        )
    ]
