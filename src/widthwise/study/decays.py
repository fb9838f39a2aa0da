"""Reusing a learning rate and a weight decay together: what groups that differ in their decay say about it.

Each group is a search for the learning rate at one decay. At the base width, the best of them gives a rate and a decay.
At another width, the same two are compared with the best that any of the decays reaches there.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

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
    losses = {fit.setting.weight_decay: {x.width: x for x in fit.transfer.optima if x.interior} for fit in fits}
    widths = sorted({width for optima in losses.values() for width in optima})
    if not widths:
        return None
    # A group that lacks an optimum at the base width measures its reuse from another one.
    base = {decay: optima[widths[0]] for decay, optima in losses.items() if widths[0] in optima}
    chosen = min(base, key=lambda decay: base[decay].eval_loss)
    transfer = next(fit.transfer for fit in fits if fit.setting.weight_decay == chosen)
    pairs: list[ReusedPair] = []
    for reused in transfer.reuse:
        here = {decay: optima[reused.width].eval_loss for decay, optima in losses.items() if reused.width in optima}
        if here:
            best = min(here, key=lambda decay: here[decay])
            pairs.append(
                ReusedPair(
                    width=reused.width,
                    eval_loss=reused.eval_loss,
                    best_decay=best,
                    given_up=reused.eval_loss - here[best],
                )
            )
    return DecayTransfer(
        title=replace(fits[0].setting, weight_decay=0.0, decay_rule=INDEPENDENT.name).title,
        rule=rule,
        weight_decay=chosen,
        learning_rate=base[chosen].learning_rate.value,
        base_width=widths[0],
        reuse=tuple(pairs),
    )


def _cost(pair: ReusedPair) -> str:
    if not math.isfinite(pair.eval_loss):
        return "unknown" if math.isnan(pair.eval_loss) else "infinite"
    return f"{100 * pair.given_up / (pair.eval_loss - pair.given_up):.2f} % larger"
