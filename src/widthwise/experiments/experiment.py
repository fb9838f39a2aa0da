"""An experiment as a value: what the paper claims, what to train for it, and how the results are read."""

from collections.abc import Callable
from dataclasses import dataclass

from widthwise.experiments.exhibits import AnyExhibit
from widthwise.experiments.findings import Finding
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import Scale, Size
from widthwise.experiments.stages import Stage


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an experiment's results say.

    Attributes:
        findings: What they say about the paper's claims.
        exhibits: What to look at.
        notes: What a reader has to know, such as where a scale differs from the paper; a sentence each.
    """

    findings: tuple[Finding, ...]
    exhibits: tuple[AnyExhibit, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One of the paper's experiments.

    Attributes:
        name: What it is called on the command line.
        title: What it is about, in a few words.
        claim: What the paper claims, in a sentence, with the place where it does.
        sizes: What each scale trains; empty for an experiment that trains nothing.
        plan: Gives the stages at a size.
        read: Reads what a study holds of it, complete or not.
    """

    name: str
    title: str
    claim: str
    read: Callable[[Results], Reading]
    sizes: dict[Scale, Size]
    plan: Callable[[Size], tuple[Stage, ...]] = lambda _: ()
