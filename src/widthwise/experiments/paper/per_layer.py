"""Rates per layer and constants ("Per-layer Learning Rates", §4.2, and its additional results).

A sequence of interventions on SGD, Adam and Adam + parameter scaling: (a) one global rate with default constants,
(b) rates for full alignment with default constants, (c) full alignment with optimal constants, (d) no alignment with
optimal constants; and a global rate with optimal constants, which the ablation has. They are named after the columns of
the paper's table. Losses are compared over all widths; at the base width the settings coincide by construction.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import NEGLIGIBLE, alike, improves
from widthwise.experiments.paper.values import EVAL_LOSSES, PARAMETERIZATIONS, cell, losses_of
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Scale
from widthwise.experiments.stages import optimal
from widthwise.report import showing
from widthwise.report.exhibits import AnyExhibit, present
from widthwise.report.findings import Finding
from widthwise.report.showing import called, slug
from widthwise.study.fits import GroupFit
from widthwise.study.setting import DEFAULT, Setting
from widthwise.theory import Aligned, Global

OPTIMIZERS = ("sgd", "adam", "adam_ps")
INTERVENTIONS = ("global + default", "global + optimal", "full + default", "full + optimal", "none + optimal")
COMPARISONS = {
    "rates per layer improve the eval loss over a global rate": (
        ("full + default", "global + default", "adam", ("standard", "mup", "mean_field")),
    ),
    "a global rate is better than rates for full alignment": (
        ("global + default", "full + default", "adam", ("ntk",)),
    ),
    "tuned constants improve the eval loss over default ones": (
        ("full + optimal", "full + default", "adam", PARAMETERIZATIONS),
        ("full + optimal", "full + default", "sgd", PARAMETERIZATIONS),
    ),
    "rates for no alignment are better than those for full alignment": (
        ("none + optimal", "full + optimal", "adam", ("ntk", "mup", "mean_field")),
        ("none + optimal", "full + optimal", "adam_ps", PARAMETERIZATIONS),
    ),
}
"""Claims that one intervention is better than another: for which optimizers, in which parameterizations."""
NOTES = (
    "At the base width a global rate and rates per layer are the same; the further a width is from it, the more they "
    "differ. The paper's losses are those of its largest model, with 26.8 B parameters.",
)


def settings_at(scale: Scale) -> list[Setting]:
    """Return every optimizer and parameterization with every intervention."""
    best = optimal(scale)
    interventions = (
        (Global(), DEFAULT),
        (Global(), best),
        (Aligned("full"), DEFAULT),
        (Aligned("full"), best),
        (Aligned("none"), best),
    )
    return [
        Setting(optimizer=optimizer, parameterization=name, rates=rates, constants=constants)
        for optimizer in OPTIMIZERS
        for name in PARAMETERIZATIONS
        for rates, constants in interventions
    ]


def read(results: Results) -> Reading:
    """Compare the interventions' losses."""
    fits = {cell(setting): fit for setting, fit in results.of(settings_at(results.scale)).items()}
    columns = [name for name in INTERVENTIONS if any(name == column for *_, column in fits)]
    figures: list[AnyExhibit] = []
    for optimizer in OPTIMIZERS:
        panels = {
            column: {called(name): fit for (of, name, where), fit in fits.items() if (of, where) == (optimizer, column)}
            for column in columns
        }
        title = f"Best eval loss against size, {called(optimizer)}"
        figures.append(showing.loss_against_size(panels, title, name=slug("loss-against-size", optimizer)))
        for column, sweeps in panels.items():
            name = slug("sweeps", optimizer, column.replace(" + ", "-"))
            figures.append(showing.transfers(name, f"{called(optimizer)}, {column} constants", sweeps))
    paper = {key: loss for key, loss in EVAL_LOSSES.items() if key[-1] in INTERVENTIONS}
    caption = "The eval loss at the best base learning rate, by rates (global, full, none) and constants."
    tables = showing.eval_losses(fits, columns, caption, paper)
    rows = {f"{called(optimizer, name)}, {column}": fit for (optimizer, name, column), fit in fits.items()}
    return Reading(
        findings=tuple(_findings(fits)),
        exhibits=present(*tables, *figures, showing.exponents(rows), showing.sensitivity(rows)),
        notes=NOTES if fits else (),
    )


def _findings(fits: Mapping[tuple[str, str, str], GroupFit]) -> Iterator[Finding]:
    for claim, comparisons in COMPARISONS.items():
        for better, worse, optimizer, names in comparisons:
            for name in names:
                after, before = (optimizer, name, better), (optimizer, name, worse)
                paper = losses_of(before, after)
                yield from improves(claim, called(name, optimizer), fits.get(after), fits.get(before), paper)
    for name in PARAMETERIZATIONS:
        after, before = ("adam_ps", name, "global + optimal"), ("adam_ps", name, "global + default")
        yield from alike(
            f"with parameter scaling, tuned constants change the eval loss by {100 * NEGLIGIBLE:g} % or less",
            called(name, "adam_ps"),
            fits.get(after),
            fits.get(before),
            paper=losses_of(before, after),
        )
    standard, mup = (("adam", name, "full + optimal") for name in ("standard", "mup"))
    yield from improves(
        "with rates per layer and tuned constants, standard is better than muP",
        called("adam"),
        fits.get(standard),
        fits.get(mup),
        losses_of(mup, standard),
    )


EXPERIMENT = Experiment(
    name="per-layer",
    title="What do rates per layer and tuned constants gain?",
    claim=(
        "With Adam, rates per layer improve the eval loss of standard, muP and mean-field, and constants tuned at the "
        "base width improve it at every width; with parameter scaling, rates for no alignment are best and tuned "
        "constants matter little (§4.2)."
    ),
    sizes={
        "smoke": replace(SIZES["smoke"], optimizers=("adam",)),
        "cpu": replace(SIZES["cpu"].at_widths(32, 64, 128), trials=32),
        "gpu": SIZES["gpu"],
        "paper": SIZES["paper"],
    },
    settings=settings_at,
    read=read,
)
