"""Rates per layer and constants ("Per-layer Learning Rates", §4.2, and its additional results).

A sequence of interventions on SGD, Adam and Adam + parameter scaling: (a) one global rate with default constants,
(b) rates for full alignment with default constants, (c) full alignment with optimal constants, (d) no alignment with
optimal constants; and a global rate with optimal constants, which the ablation has. Losses are compared over all
widths; at the base width the settings coincide by construction.
"""

from collections.abc import Mapping
from dataclasses import replace

from widthwise.experiments.comparing import alike, improves
from widthwise.experiments.exhibits import AnyExhibit
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import Finding
from widthwise.experiments.paper_values import EVAL_LOSSES, PARAMETERIZATIONS
from widthwise.experiments.paper_values import SETTINGS as PAPER_SETTINGS
from widthwise.experiments.results import Results, pick
from widthwise.experiments.showing import (
    BEST_LOSSES,
    SWEEPS,
    called,
    eval_losses,
    exponents,
    largest_losses,
    loss_against_size,
    sensitivity,
    transfers,
)
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.experiments.stages import TUNED, Search, Stage, optimal, tunings
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.fits import GroupFit

PART = "rates"
OPTIMIZERS = ("sgd", "adam", "adam_ps")
INTERVENTIONS = {
    "global + default": ("global", False),
    "global + optimal": ("global", True),
    "full + default": ("full", False),
    "full + optimal": ("full", True),
    "none + optimal": ("none", True),
}
"""What is compared, called as in the paper's table: the setting, and whether its constants are the optimal ones."""
MINOR = 0.005
"""The relative change of eval losses that is called minor."""
NOTES = (
    "At the base width a global rate and rates per layer are the same; they differ the more, the further a width is "
    "from it. The paper's losses are those of its largest model, of 26.8 B parameters.",
)
_SIZES: dict[Scale, Size] = {
    **SIZES,
    "cpu": replace(SIZES["cpu"].at_widths(32, 64, 128), trials=32),
    "gpu": replace(SIZES["gpu"], more_seeds=()),
}

Key = tuple[str, str, str]
"""Optimizer, parameterization and intervention."""


def plan(size: Size) -> tuple[Stage, ...]:
    """Tune constants where the paper's do not apply, and search the learning rates of every intervention."""
    smoke, constants = size.scale == "smoke", optimal(size.scale)
    names = ("standard", "mup") if smoke else PARAMETERIZATIONS
    optimizers = ("adam",) if smoke else OPTIMIZERS
    searches = tuple(
        Search(part=PART, sweep=sweep)
        for optimizer in optimizers
        for name, settings in ((DEFAULT, ("global", "full")), (constants, ("global", "full", "none")))
        for sweep in size.sweeps(optimizer, parameterizations=names, settings=settings, constants=(name,))
    )
    return (*(tunings(size, optimizers, names) if constants == TUNED else ()), *searches)


def read(results: Results) -> Reading:
    """Compare the interventions' losses."""
    fits = results.fits(PART)
    groups: dict[Key, GroupFit] = {}
    for optimizer in OPTIMIZERS:
        for name in PARAMETERIZATIONS:
            for intervention, (setting, tuned) in INTERVENTIONS.items():
                constants = optimal(results.scale) if tuned else DEFAULT
                fit = pick(fits, optimizer=optimizer, parameterization=name, setting=setting, constants=constants)
                if fit is not None:
                    groups[optimizer, name, intervention] = fit
    return Reading(findings=tuple(_findings(groups)), exhibits=tuple(_exhibits(groups)), notes=NOTES if groups else ())


def _findings(groups: Mapping[Key, GroupFit]) -> list[Finding]:
    def comparison(claim: str, optimizer: str, name: str, better: str, worse: str) -> list[Finding]:
        fit, than = groups.get((optimizer, name, better)), groups.get((optimizer, name, worse))
        return improves(claim, called(name, optimizer), fit, than, _paper(optimizer, name, worse, better))

    found: list[Finding] = []
    for name in ("standard", "mup", "mean_field"):
        claim = "rates per layer improve the eval loss over a global rate"
        found += comparison(claim, "adam", name, "full + default", "global + default")
    found += comparison(
        "a global rate is better than rates for full alignment", "adam", "ntk", "global + default", "full + default"
    )
    for optimizer in ("adam", "sgd"):
        for name in PARAMETERIZATIONS:
            claim = "tuned constants improve the eval loss over default ones"
            found += comparison(claim, optimizer, name, "full + optimal", "full + default")
    for optimizer, names in (("adam", ("ntk", "mup", "mean_field")), ("adam_ps", PARAMETERIZATIONS)):
        for name in names:
            claim = "rates for no alignment are better than those for full alignment"
            found += comparison(claim, optimizer, name, "none + optimal", "full + optimal")
    for name in PARAMETERIZATIONS:
        found += alike(
            f"with parameter scaling, tuned constants change the eval loss by {100 * MINOR:g} % or less",
            called(name, "adam_ps"),
            groups.get(("adam_ps", name, "global + optimal")),
            groups.get(("adam_ps", name, "global + default")),
            within=MINOR,
            paper=_paper("adam_ps", name, "global + default", "global + optimal"),
        )
    standard, mup = (EVAL_LOSSES["adam", name, "full + optimal"] for name in ("standard", "mup"))
    found += improves(
        "with rates per layer and tuned constants, standard is better than muP",
        called("adam"),
        groups.get(("adam", "standard", "full + optimal")),
        groups.get(("adam", "mup", "full + optimal")),
        f"{standard:.3f} against {mup:.3f} at 26.8 B",
    )
    return found


def _paper(optimizer: str, name: str, before: str, after: str) -> str:
    losses = (EVAL_LOSSES[optimizer, name, setting] for setting in (before, after))
    return "from {:.3f} to {:.3f} at 26.8 B".format(*losses)


def _exhibits(groups: Mapping[Key, GroupFit]) -> list[AnyExhibit]:
    if not groups:
        return []
    columns = [name for name in INTERVENTIONS if any(key[2] == name for key in groups)]
    losses, width = largest_losses(groups)
    shown: list[AnyExhibit] = [
        eval_losses(
            "eval-losses",
            f"Best eval losses at width {width}",
            losses,
            columns,
            caption="The eval loss at the best base learning rate, by rates (global, full, none) and constants.",
        ),
        eval_losses(
            "eval-losses-paper",
            "The paper's eval losses at 26.8 B parameters",
            {key: loss for key, loss in EVAL_LOSSES.items() if key[2] in INTERVENTIONS},
            [setting for setting in PAPER_SETTINGS if setting in INTERVENTIONS],
            caption="From the paper, for comparison; not measured here.",
            of_the_paper=True,
        ),
    ]
    for optimizer in OPTIMIZERS:
        panels = {
            intervention: {
                called(name): groups[optimizer, name, intervention]
                for name in PARAMETERIZATIONS
                if (optimizer, name, intervention) in groups
            }
            for intervention in columns
        }
        panels = {intervention: fits for intervention, fits in panels.items() if fits}
        if panels:
            title = f"Best eval loss against size, {called(optimizer)}"
            file = optimizer.replace("_", "-")
            shown.append(loss_against_size(f"loss-against-size-{file}", title, BEST_LOSSES, panels))
            shown += [
                transfers(
                    f"sweeps-{file}-{intervention.replace(' + ', '-')}",
                    f"{called(optimizer)}, {intervention} constants",
                    SWEEPS,
                    fits,
                )
                for intervention, fits in panels.items()
            ]
    headed = {f"{called(optimizer, name)}, {setting}": fit for (optimizer, name, setting), fit in groups.items()}
    return [
        *shown,
        exponents("exponents", "Exponents of the optimal learning rate", headed),
        sensitivity("sensitivity", headed),
    ]


EXPERIMENT = Experiment(
    name="per-layer",
    title="What do rates per layer and tuned constants gain?",
    claim=(
        "With Adam, rates per layer improve the eval loss of standard, muP and mean-field, and constants tuned at the "
        "base width improve it at every width; with parameter scaling, rates for no alignment are best and tuned "
        "constants matter little (§4.2)."
    ),
    sizes=_SIZES,
    plan=plan,
    read=read,
)
