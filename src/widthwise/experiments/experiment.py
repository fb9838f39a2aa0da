"""An experiment as a value: what is claimed, the settings to train, and how the results are read.

What to train follows from the settings, a size, and what was chosen on the command line, so that an experiment's file
states what is compared and nothing about options.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale, Size
from widthwise.experiments.stages import EVERYTHING, TUNED, Choice, ProbeStage, Stage, SweepStage, TuneStage
from widthwise.report.exhibits import AnyExhibit
from widthwise.report.findings import Finding
from widthwise.study.axes import WIDTH
from widthwise.study.setting import Setting
from widthwise.sweeps.constants import tuned_for
from widthwise.sweeps.sweep import Sweep
from widthwise.train import Spec


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an experiment's results say.

    Attributes:
        findings: What they say about the claims.
        exhibits: The figures and tables to show.
        notes: What a reader has to know, such as where a scale differs from the paper; a sentence each.
    """

    findings: tuple[Finding, ...]
    exhibits: tuple[AnyExhibit, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: the paper's, or our own.

    Attributes:
        name: Its name on the command line.
        title: What it is about, in a few words.
        claim: What is claimed, in a sentence, with its source.
        read: Reads what a study holds of it, complete or not.
        sizes: What each scale trains; empty for an experiment that trains nothing.
        settings: Returns the settings of a scale, in the order in which they are shown.
        size_of: Returns what a setting is trained at, if that is not the size of the whole experiment.
        probes: Whether alignment is measured at the optimum of each search.
        of_paper: Whether it is one of the paper's.
    """

    name: str
    title: str
    claim: str
    read: Callable[[Results], Reading]
    sizes: Mapping[Scale, Size]
    settings: Callable[[Scale], Iterable[Setting]] = lambda _: ()
    size_of: Callable[[Size, Setting], Size] = lambda size, _: size
    probes: bool = False
    of_paper: bool = True

    def plan(
        self, size: Size, choice: Choice = EVERYTHING, *, prepare: Callable[[Spec], Spec] = lambda spec: spec
    ) -> tuple[Stage, ...]:
        """Return the stages at a size: tune the constants that settings use, then search every optimizer's rates.

        Args:
            size: What to train the settings at.
            choice: What to keep of them.
            prepare: Makes other changes to every specification, such as its data.
        """
        chosen = choice.of([setting for setting in self.settings(size.scale) if size.trains(setting)])
        sweeps: list[Sweep] = []
        for optimizer in dict.fromkeys(setting.optimizer for setting in chosen):
            sizes = {setting: self.size_of(size, setting) for setting in chosen if setting.optimizer == optimizer}
            for each in [one for place, one in enumerate(sizes.values()) if one not in list(sizes.values())[:place]]:
                settings = tuple(setting for setting, its in sizes.items() if its == each)
                sweeps.append(_sweep(optimizer, settings, each, choice, prepare))
        tuned = ((tuned_for(one.optimizer)[-1], one.parameterization) for one in chosen if one.constants == TUNED)
        specs = [
            size.spec(optimizer, width=size.base.base_width, parameterization=name)
            for optimizer, name in dict.fromkeys(tuned)
        ]
        searches = map(SweepStage, sweeps)
        return (
            *(TuneStage(prepare(spec), size.tuning) for spec in specs),
            *(map(ProbeStage, searches) if self.probes else searches),
        )


def _sweep(
    optimizer: str, settings: tuple[Setting, ...], size: Size, choice: Choice, prepare: Callable[[Spec], Spec]
) -> Sweep:
    """Return the sweep of settings of one optimizer that are trained at one size."""
    widths = tuple(sorted(choice.widths)) or size.widths
    if size.only_ends:
        widths = tuple(dict.fromkeys((widths[0], widths[-1])))
    base = prepare(size.spec(optimizer, width=widths[0]))
    if size.base.base_tokens == size.base.tokens:
        base = replace(base, base_tokens=base.tokens)  # with other steps, it is still the base
    if size.axis == WIDTH.name:
        grown: dict[str, Any] = {"widths": widths}
    elif len(widths) > 1:
        raise ValueError(f"widths are {', '.join(map(str, widths))}: expected one, since {size.axis} grows here")
    else:
        grown = {"axis": size.axis, "values": size.grown(base)}
    sizes = grown.get("values", widths)
    return Sweep(
        base=base,
        settings=settings,
        seeds=choice.seeds or size.seeds,
        search=size.search(base.learning_rate),
        edge=size.edge,
        precision=(precision := size.precision_with(sizes)),
        until_verdict=size.until_verdict and precision is not None,
        **grown,
    )
