"""Reusing a learning rate and a weight decay together: what groups that differ in their decay say about it.

Each group is a search for the learning rate at one decay. At the base width, the best of them gives a rate and a decay.
At another width, the same two are compared with the best that any of the decays reaches there. Groups are compared
where two or more were searched, with the seeds that they share.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from widthwise.fit import Transfer
from widthwise.study.fits import GroupFit
from widthwise.theory import INDEPENDENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusedPair:
    """A rate and a decay of the base width, used at another width.

    Attributes:
        width: The width.
        eval_loss: The loss with them; infinite if it diverges, NaN if too far from what was tried.
        best_decay: The decay with the best loss at this width.
        given_up: How much larger the loss is than that one.
    """

    width: int
    eval_loss: float
    best_decay: float
    given_up: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayTransfer:
    """Whether a rate and a decay can be reused together.

    Attributes:
        title: What the groups share.
        rule: The rule by which decay changes with width.
        weight_decay: The best decay at the base width.
        learning_rate: The best learning rate there.
        base_width: The base width, the smallest that was searched.
        reuse: What they cost at each width.
    """

    title: str
    rule: str
    weight_decay: float
    learning_rate: float
    base_width: int
    reuse: tuple[ReusedPair, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for `json.dumps`; infinite and unknown numbers are null."""
        reuse = [
            {name: value if math.isfinite(value) else None for name, value in asdict(pair).items()}
            for pair in self.reuse
        ]
        return {**asdict(self), "reuse": reuse}

    def __str__(self) -> str:
        each = ", ".join(
            f"{_cost(pair)} at width {pair.width} (best decay {pair.best_decay:g})"
            for pair in self.reuse
            if pair.width != self.base_width
        )
        return (
            f"{self.title}, {self.rule} decay: with rate {self.learning_rate:.3g} and decay {self.weight_decay:g} of "
            f"width {self.base_width}, the loss is {each or 'known at no other width'}"
        )


def decay_transfers(fits: Iterable[GroupFit]) -> list[DecayTransfer]:
    """Compare groups that differ in their decay alone, for every rule that two or more decays were tried with."""
    alike: dict[tuple[Any, ...], list[GroupFit]] = {}
    for fit in fits:
        if not fit.is_own and fit.transfer.axis == "width":
            shared = {name: value for name, value in fit.spec.items() if name not in ("weight_decay", "decay_rule")}
            alike.setdefault(tuple(shared.items()), []).append(fit)
    return [found for groups in alike.values() for found in _by_rule(groups)]


def _by_rule(groups: Sequence[GroupFit]) -> Iterator[DecayTransfer]:
    without = [fit for fit in groups if not fit.setting.weight_decay]
    rules = dict.fromkeys(fit.setting.decay_rule for fit in groups if fit.setting.weight_decay)
    for rule in rules or {INDEPENDENT.name: None}:
        tried = [*without, *(fit for fit in groups if fit.setting.weight_decay and fit.setting.decay_rule == rule)]
        if len(tried) > 1 and (found := _compare(rule, tried)) is not None:
            yield found


def _compare(rule: str, fits: Sequence[GroupFit]) -> DecayTransfer | None:
    of_decay = {fit.setting.weight_decay: fit.transfer for fit in fits}
    widths = sorted(
        {optimum.width for transfer in of_decay.values() for optimum in transfer.optima if optimum.interior}
    )
    losses = {width: _losses(of_decay, width) for width in widths}
    if not widths or not losses[widths[0]]:
        return None  # nothing to choose from
    base = losses[widths[0]]
    chosen = min(base, key=base.__getitem__)
    transfer = of_decay[chosen]
    own = {optimum.width: optimum for optimum in transfer.optima if optimum.interior}
    pairs: list[ReusedPair] = []
    for reused in transfer.reuse:
        if here := losses.get(reused.width, {}):
            best, loss = min(here, key=here.__getitem__), reused.eval_loss
            if chosen in here:
                loss *= here[chosen] / own[reused.width].eval_loss  # with the seeds that are compared
            pairs.append(ReusedPair(width=reused.width, eval_loss=loss, best_decay=best, given_up=loss - here[best]))
    return DecayTransfer(
        title=replace(fits[0].setting, weight_decay=0.0, decay_rule=INDEPENDENT.name).title,
        rule=rule,
        weight_decay=chosen,
        learning_rate=own[widths[0]].learning_rate.value,
        base_width=widths[0],
        reuse=tuple(pairs),
    )


def _losses(of_decay: Mapping[float, Transfer], width: int) -> dict[float, float]:
    """Return the best loss of each decay at a width, with the seeds that all share; empty if there are not two."""
    levels = {
        decay: optimum.levels
        for decay, transfer in of_decay.items()
        for optimum in transfer.optima
        if optimum.width == width and optimum.interior
    }
    seeds = set[int].intersection(*map(set, levels.values())) if len(levels) > 1 else ()
    return {decay: math.exp(fmean(each[seed].value for seed in seeds)) for decay, each in levels.items() if seeds}


def _cost(pair: ReusedPair) -> str:
    if not math.isfinite(pair.eval_loss):
        return "unknown" if math.isnan(pair.eval_loss) else "infinite"
    return f"{100 * pair.given_up / (pair.eval_loss - pair.given_up):.2f} % larger"
