"""Whether differences from the paper are a matter of training length: an experiment of our own.

The paper trains for 50,000 steps, the other scales for a few hundred. Three of its claims do not hold there, and a
longer training could be why: rates for no alignment, since alignment falls during training; Adafactor next to Adam with
parameter scaling, since it has no momentum; and weight decay, which takes many steps to act. So the same settings are
trained at one width for 1/16 and 1/4 of a longer training, and in full. Each length is searched for its own best rate.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.findings import NEGLIGIBLE, changes, difference, percent_interval
from widthwise.experiments.paper.values import PARAMETERIZATIONS
from widthwise.experiments.paper.weight_decay import IN_ALL
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.fit import Estimate
from widthwise.fit.intervals import average
from widthwise.report import showing
from widthwise.report.exhibits import Lines, Panel, Series, Table, present
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called, nested
from widthwise.study.axes import TOKENS
from widthwise.study.setting import Setting
from widthwise.theory import Aligned

FULL, NONE = Aligned("full"), Aligned("none")
LENGTHS = (1 / 16, 1 / 4, 1.0)
SOME = ("standard", "mup")
"""The parameterizations of effects that are alike in all four."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A change that the paper reports, and what it would take for longer training to explain ours.

    Attributes:
        claim: What happens to the change of the loss if so.
        what: The change.
        after: The setting after it.
        before: The setting before it.
        size: Whether its size is meant, and not its direction.
    """

    claim: str
    what: str
    after: Setting
    before: Setting
    size: bool = False

    def of(self, change: Estimate) -> Estimate:
        """Return what of a change should fall."""
        return -change if self.size and change.value < 0 else change


def effects(scale: Scale) -> list[Effect]:
    """Return the effects, parameterization by parameterization."""
    decay = IN_ALL / _SIZES[scale].base.steps
    found: list[Effect] = []
    for name in PARAMETERIZATIONS:
        adam_ps = Setting(optimizer="adam_ps", parameterization=name, rates=FULL)
        claim = "rates for no alignment do better with longer training, next to those for full alignment"
        found.append(Effect(claim=claim, what="no alignment", after=replace(adam_ps, rates=NONE), before=adam_ps))
        if name in SOME:
            claim = "Adafactor comes nearer to Adam + parameter scaling with longer training"
            adafactor = replace(adam_ps, optimizer="adafactor")
            found.append(Effect(claim=claim, what="Adafactor", after=adafactor, before=adam_ps, size=True))
            claim, adam = "weight decay does better with longer training", replace(adam_ps, optimizer="adam")
            decayed = replace(adam, weight_decay=decay)
            found.append(Effect(claim=claim, what="weight decay", after=decayed, before=adam))
    return sorted(found, key=lambda one: ("no alignment", "Adafactor", "weight decay").index(one.what))


def settings_at(scale: Scale) -> list[Setting]:
    """Return the settings that are compared, each once."""
    return list(dict.fromkeys(setting for one in effects(scale) for setting in (one.before, one.after)))


def read(results: Results) -> Reading:
    """Compare how changes of the loss depend on the length of training."""
    fits = results.of(settings_at(results.scale))
    found = {one: changes(fits.get(one.after), fits.get(one.before)) for one in effects(results.scale)}
    known = {one: change for one, change in found.items() if change}
    return Reading(
        findings=tuple(_findings(known)),
        exhibits=present(
            _table(known),
            _figure(known),
            showing.loss_against_size(
                nested(fits, "parameterization", ("optimizer", "rates", "weight_decay")),
                "Best eval loss against training length",
            ),
        ),
    )


def _findings(known: Mapping[Effect, Mapping[int, Estimate]]) -> Iterator[Finding]:
    """Judge each effect in every parameterization, and then in their mean."""
    moved: dict[str, list[Estimate]] = {}
    for one, change in known.items():
        if len(change) > 1:
            first, last = change[min(change)], change[max(change)]
            apart = difference(one.of(last), one.of(first))
            moved.setdefault(one.claim, []).append(apart)
            yield Finding(
                claim=one.claim,
                of=called(one.after.parameterization, one.after.optimizer),
                verdict=Judgement.below_zero(apart, negligible=NEGLIGIBLE),
                measured=f"{percent_interval(last)} instead of {percent_interval(first)}",
                losses_of=(one.after, one.before),
            )
    for claim, each in moved.items():
        if len(each) > 1:
            mean = average(each)
            yield Finding(
                claim=claim,
                of=f"the mean of {len(each)} parameterizations",
                verdict=Judgement.below_zero(mean, negligible=NEGLIGIBLE),
                measured=f"changed by {percent_interval(mean)}",
            )


def _figure(known: Mapping[Effect, Mapping[int, Estimate]]) -> Lines:
    def series(one: Effect, change: Mapping[int, Estimate]) -> Series:
        name, points = one.after.parameterization, sorted(change.items())
        return Series(
            name=called(name),
            x=tuple(float(tokens) for tokens, _ in points),
            y=tuple(100 * each.value for _, each in points),
            parameterization=name,
            intervals=tuple((100 * each.low, 100 * each.high) for _, each in points),
        )

    panels: dict[str, list[Series]] = {}
    for one, change in known.items():
        panels.setdefault(one.what, []).append(series(one, change))
    return Lines(
        name="changes-by-length",
        title="Changes of the loss by training length",
        caption="Change of the eval loss at the best rate of each length, with 95 % intervals: from rates for full "
        "alignment to those for no alignment, from Adam + parameter scaling to Adafactor, and from no weight decay to "
        "some. Below 0, the loss improves.",
        panels=tuple(Panel(title=what, series=tuple(some)) for what, some in panels.items()),
        x_label="tokens",
        y_label="change of the loss, %",
    )


def _table(known: Mapping[Effect, Mapping[int, Estimate]]) -> Table:
    lengths = sorted({tokens for change in known.values() for tokens in change})
    return Table.of(
        "changes",
        "Changes of the loss by training length",
        "Change of the eval loss at the best rate of each length, in millions of training tokens: from rates for full "
        "alignment to those for no alignment with Adam + parameter scaling, from that optimizer to Adafactor, and from "
        "no weight decay to some with Adam.",
        [
            {
                "change": one.what,
                "parameterization": called(one.after.parameterization),
                **{f"{n / 1e6:.3g} M": percent_interval(change[n]) if n in change else "–" for n in lengths},
            }
            for one, change in known.items()
        ],
    )


def _longer(scale: Scale, *, steps: int, **changes: int) -> Size:
    """Return a scale at one width, four times the base width, with a longer training."""
    size = SIZES[scale]
    warmup = steps * size.base.warmup // size.base.steps
    base = replace(size.base, steps=steps, warmup=warmup, **changes)
    width = 4 * base.base_width
    return replace(
        size,
        base=replace(base, width=width),
        widths=(width,),
        axis=TOKENS.name,
        growth=LENGTHS,
        precision=None,
        until_verdict=False,
    )


_SIZES: dict[Scale, Size] = {
    "smoke": replace(
        _longer("smoke", steps=80, base_width=8),
        octaves=1,
        parameterizations=("standard",),
        optimizers=("adam_ps",),
    ),
    "cpu": _longer("cpu", steps=1600, base_width=32),
    "gpu": _longer("gpu", steps=9600, base_width=64, batch=16),
    "paper": _longer("paper", steps=50_000),
}

EXPERIMENT = Experiment(
    name="length",
    title="Are differences from the paper a matter of training length?",
    claim=(
        "If rates for no alignment, Adafactor or weight decay do worse here than in the paper because training is "
        "shorter, they do better the longer it is."
    ),
    sizes=_SIZES,
    settings=settings_at,
    read=read,
    of_paper=False,
)
