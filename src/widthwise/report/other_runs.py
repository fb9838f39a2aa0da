"""Runs of a study that belong to no experiment, such as those of `widthwise sweep`: what to show of them."""

from collections.abc import Sequence

from widthwise.report import showing
from widthwise.report.exhibits import AlignmentCurves, AnyExhibit, Table
from widthwise.report.showing import called
from widthwise.study import Row, Setting, Study
from widthwise.study.alignment import alignment_points
from widthwise.study.axes import AXES
from widthwise.study.fits import GroupFit, describe_own, fit_rows
from widthwise.study.setting import DEFAULT

MOST_PANELS = 4
"""The most groups in a figure of sweeps."""
MOST_MEASURED = 12
"""The most runs whose alignment is drawn."""
ROLES = ("embedding", "hidden", "readout")
_DEFAULTS = {"constants": DEFAULT, "horizon": "fixed"}
"""Names that labels leave out."""


def other_runs(study: Study, labels: Sequence[str]) -> tuple[tuple[AnyExhibit, ...], tuple[str, ...]]:
    """Read the runs that no experiment asked for.

    Args:
        study: The study.
        labels: The prefixes of the experiments' labels.

    Returns:
        The exhibits, axis by axis, and a line for each group without an optimum at some width or other size.
    """
    rows = study.runs(beside=labels)
    fits = fit_rows(rows)
    missing = [
        f"{_label(fit)}: no optimum inside the rates tried at {fit.transfer.axis} {', '.join(map(str, left_out))}"
        for fit in fits
        if (left_out := fit.transfer.verdict.left_out)
    ]
    by_axis = [[fit for fit in fits if fit.transfer.axis == axis] for axis in AXES]
    sweeps = [exhibit for along in by_axis for exhibit in _sweeps(along)]
    return (*sweeps, *_alignment(study, rows), *_constants(study, labels)), tuple(missing)


def _label(fit: GroupFit, *, without: str = "") -> str:
    """Return what distinguishes a group, in words, leaving out defaults and one name."""
    words = _words(fit) | {name: _describe(name, value) for name, value in fit.where.items()}
    return ", ".join(word for name, word in words.items() if name != without) or "learning rates"


def _words(fit: GroupFit) -> dict[str, str]:
    """Return the names of a group for people; those of one's own as they are."""
    if fit.is_own:
        return {name: describe_own({name: value}) for name, value in fit.names.items()}
    return {name: called(value) for name, value in fit.names.items() if _DEFAULTS.get(name) != value}


def _describe(name: str, value: object) -> str:
    """Describe an option in which groups differ.

    >>> _describe("probe", True), _describe("weight_decay", 1e-4), _describe("epsilon_per_parameter", False)
    ('alignment measured', 'weight decay 0.0001', 'epsilon per parameter off')
    """
    if name == "probe":
        return "alignment measured"
    if isinstance(value, bool):
        value = "on" if value else "off"
    return f"{name.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}"


def _sweeps(fits: Sequence[GroupFit]) -> list[AnyExhibit]:
    """Return figures of a few panels that differ in one name, the parameterization if possible, and their tables."""
    if not fits:
        return []
    names = dict.fromkeys(name for fit in fits for name in fit.names)
    differing = [name for name in names if len({fit.names.get(name) for fit in fits}) > 1]
    axis = next(iter([*differing, *names]), "")
    titled: dict[str, dict[str, GroupFit]] = {}
    for fit in fits:
        value = fit.names.get(axis, "")
        panel = describe_own({axis: value} if axis in fit.names else {}) if fit.is_own else called(value)
        titled.setdefault(_label(fit, without=axis), {})[panel] = fit
    caption = f"{showing.SWEEPS} Bars and bands are 95 % intervals."
    figures: list[AnyExhibit] = []
    for title, panels in titled.items():
        for start in range(0, len(panels), MOST_PANELS):
            part = dict(list(panels.items())[start : start + MOST_PANELS])
            figures.append(showing.transfers(f"rates-{len(figures) + 1}", title, part, caption=caption))
    labelled = {_label(fit): fit for fit in fits}
    return [
        *figures,
        showing.exponents(labelled),
        showing.loss_against_size(titled),
        showing.sensitivity(labelled),
    ]


def _alignment(study: Study, rows: Sequence[Row]) -> list[AnyExhibit]:
    """Return a figure of the alignment in the best measured run of each setting and width."""
    best: dict[str, Row] = {}
    for row in rows:
        if row.spec.get("probe") and row.status == "finished":
            setting = Setting.of(row.spec)
            names = called(setting.parameterization, setting.optimizer, setting.rates.name)
            title = f"{names}, width {row.spec['width']}"
            best[title] = min(best.get(title, row), row, key=lambda each: each.results["eval_loss"])
    shown = dict(list(best.items())[:MOST_MEASURED])
    curves = study.curves([row.run for row in shown.values()])
    panels = {title: points for title, row in shown.items() if (points := alignment_points(curves[row.run]))}
    more = f" Shown are the first {len(shown)} of {len(best)}." if len(shown) < len(best) else ""
    figure = AlignmentCurves(
        name="alignment",
        title="Alignment during training",
        caption="The log alignment ratio of every dense layer, in the run with the best learning rate: 1/2 means "
        f"no alignment, 1 full alignment; later blocks are darker.{more}",
        panels=panels,
    )
    return [figure] if panels else []


def _constants(study: Study, labels: Sequence[str]) -> list[AnyExhibit]:
    """Return a table of the constants that were tuned."""
    rows: list[tuple[str, ...]] = []
    for note, kept in study.notes("constants/").items():
        name, optimizer, parameterization = note.removeprefix("constants/").rsplit("/", 2)
        if name.startswith(tuple(labels)):
            continue
        about = kept.get("about") or {}
        factors = [f"{kept['constants'][role]:.3g}" for role in ROLES]
        loss = showing.signed(about.get("eval_loss", float("nan")), 4)
        edges = ", ".join(about.get("at_edge", ())) or "–"
        rows.append((name, called(optimizer), called(parameterization), *factors, loss, edges))
    table = Table(
        name="constants",
        title="Tuned constants",
        caption="Factors on the learning rates of the layers, tuned at the base width.",
        columns=("name", "optimizer", "parameterization", *ROLES, "eval loss", "at an edge"),
        rows=tuple(rows),
    )
    return [table] if rows else []
