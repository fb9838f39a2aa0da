"""Four rules for what weight decay does as the width grows, compared where decay matters.

Exponents and costs are measured with one decay, near the best one here: in 600 steps, half of it improves losses and
eight times as much makes them worse (docs/results.md). Whether rate and decay can be reused *together* takes other
decays as well. They are searched at the smallest and the largest width alone, which is where they are compared.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from widthwise.experiments.beyond.comparison import Named, comparison
from widthwise.experiments.experiment import Reading
from widthwise.experiments.results import Results
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.report.exhibits import Table, present
from widthwise.report.showing import percent, signed
from widthwise.study.decays import DecayTransfer, decay_transfers
from widthwise.study.setting import Setting
from widthwise.theory import DECAY_RULES

DECAY = 1e-3
"""The decay of the comparison."""
MORE = 4e-3
"""A larger one."""
ROUGH = 0.25
"""The precision of exponents with other decays: only their best losses are read, which are compared seed by seed."""
_SIZES: dict[Scale, Size] = {
    "smoke": SIZES["smoke"],
    "cpu": SIZES["cpu"].at_widths(32, 64, 128, 256, blocks=2, context=64, steps=600, warmup=100),
    "gpu": replace(SIZES["gpu"], widths=(128, 256, 512, 1024, 2048)),
}


def _with(decay: float) -> Named:
    return {f"{name} decay": Setting(weight_decay=decay, decay_rule=name) for name in DECAY_RULES}


OTHERS = (Setting(), *_with(MORE).values())
"""No decay, and the larger one with every rule."""
_BY_RATE = comparison(
    "decay-rules",
    title="How should weight decay change with width?",
    claim=(
        "Independent weight decay, the same at every width, makes the learning rate transfer (Kosson et al., arXiv "
        "2510.19093). Others scale it with the layers' learning rates, with these times √n, or as 1/n."
    ),
    compared=lambda _: _with(DECAY),
    sizes=_SIZES,
)


def _size(size: Size, setting: Setting) -> Size:
    if setting not in OTHERS:
        return size
    return replace(size, only_ends=True, precision=size.precision and max(size.precision, ROUGH), seeds=size.seeds[:1])


def _read(results: Results) -> Reading:
    reading, fits = _BY_RATE.read(results), results.of((*_with(DECAY).values(), *OTHERS))
    widest = max((optimum.width for fit in fits.values() for optimum in fit.transfer.optima), default=0)
    rows = [*_reused(decay_transfers(fits.values()), widest)]
    return replace(reading, exhibits=(*reading.exhibits, *present(_table(rows))))


def _reused(found: list[DecayTransfer], width: int) -> Iterator[dict[str, str]]:
    """Write what it costs to reuse the best rate and decay of the smallest width, a rule at a time."""
    for one in found:
        for pair in one.reuse:
            if pair.width == width > one.base_width and math.isfinite(pair.eval_loss):
                yield {
                    "group": f"{one.rule} decay",
                    "best decay": f"{one.weight_decay:g}",
                    "best rate": f"{one.learning_rate:.3g}",
                    "loss when reused": signed(pair.eval_loss, 3),
                    "best decay for the largest": f"{pair.best_decay:g}",
                    "cost": percent(pair.given_up / (pair.eval_loss - pair.given_up)),
                }


def _table(rows: list[dict[str, str]]) -> Table:
    return Table.of(
        "pairs",
        "Reusing rate and decay together",
        "The decay and the learning rate that are best at the smallest width, and what the largest loses with both, "
        "next to the best of the decays that were tried there, with the seeds that all of them have.",
        rows,
    )


EXPERIMENT = replace(
    _BY_RATE,
    settings=lambda scale: (*_BY_RATE.settings(scale), *OTHERS),
    size_of=_size,
    read=_read,
)
