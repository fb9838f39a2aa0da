"""An experiment as a value: what the paper claims, the settings to train, and how the results are read.

What to train follows from the settings, a size, and what was chosen on the command line, so that an experiment's file
states what the paper did and nothing about options.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale, Size
from widthwise.experiments.stages import EVERYTHING, TUNED, Choice, ProbeStage, Stage, SweepStage, TuneStage
from widthwise.report.exhibits import AnyExhibit
from widthwise.report.findings import Finding
from widthwise.study.setting import Setting
from widthwise.sweeps.constants import tuned_for
from widthwise.sweeps.sweep import Sweep
from widthwise.train import Spec


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an experiment's results say.

    Attributes:
        findings: What they say about the paper's claims.
        exhibits: The figures and tables to show.
        notes: What a reader has to know, such as where a scale differs from the paper; a sentence each.
    """

    findings: tuple[Finding, ...]
    exhibits: tuple[AnyExhibit, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One of the paper's experiments.

    Attributes:
        name: Its name on the command line.
        title: What it is about, in a few words.
        claim: What the paper claims, in a sentence, with the place where it does.
        read: Reads what a study holds of it, complete or not.
        sizes: What each scale trains; empty for an experiment that trains nothing.
        settings: Returns the settings of a scale, in the order in which they are shown.
        probes: Whether alignment is measured at the optimum of each search.
    """

    name: str
    title: str
    claim: str
    read: Callable[[Results], Reading]
    sizes: Mapping[Scale, Size]
    settings: Callable[[Scale], Iterable[Setting]] = lambda _: ()
    probes: bool = False

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
        widths = tuple(sorted(choice.widths)) or size.widths
        sweeps: list[Sweep] = []
        for optimizer in dict.fromkeys(setting.optimizer for setting in chosen):
            base = prepare(size.spec(optimizer, width=widths[0]))
            sweeps.append(
                Sweep(
                    base=base,
                    settings=tuple(setting for setting in chosen if setting.optimizer == optimizer),
                    widths=widths,
                    seeds=choice.seeds or size.seeds,
                    search=size.search(base.learning_rate),
                    edge=size.edge,
                    precision=size.precision_with(widths),
                    until_verdict=size.until_verdict and len(set(widths)) > 1,
                    loss_precision=size.loss_precision,
                )
            )
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
