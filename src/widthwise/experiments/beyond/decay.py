"""Four rules for what weight decay does as the width grows, compared where decay matters.

Exponents and costs are measured with one decay, near the best one here: in 600 steps, half of it improves losses and
eight times as much makes them worse (docs/results.md). Whether rate and decay can be reused *together* takes other
decays as well. They are searched at the smallest and the largest width alone, which is where they are compared.
"""

import math
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
"""The decay beside it; without any, all rules are the same."""
ROUGH = 0.25
"""The precision of exponents with other decays than the one of the comparison: only their best losses are read."""
_SIZES: dict[Scale, Size] = {
    "smoke": SIZES["smoke"],
    "cpu": SIZES["cpu"].at_widths(32, 64, 128, 256, blocks=2, context=64, steps=600, warmup=100),
    "gpu": replace(SIZES["gpu"], widths=(128, 256, 512, 1024, 2048)),
}


def _with(decay: float) -> Named:
    return {f"{name} decay": Setting(weight_decay=decay, decay_rule=name) for name in DECAY_RULES}


OTHERS = (Setting(), *_with(MORE).values())
"""The other decays, by rule."""
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
    ends = (size.widths[0], size.widths[-1])
    return replace(size, widths=ends, precision=size.precision and ROUGH, seeds=size.seeds[:1])


def _read(results: Results) -> Reading:
    reading, fits = _BY_RATE.read(results), results.of((*_with(DECAY).values(), *OTHERS))
    return replace(reading, exhibits=(*reading.exhibits, *present(_table(decay_transfers(fits.values())))))


def _table(found: list[DecayTransfer]) -> Table:
    """Show what is lost where rate and decay are chosen at the smallest width and used at the largest."""
    return Table.of(
        "pairs",
        "Reusing rate and decay together",
        "The learning rate and the decay that are best at the smallest width, next to the best pair of those that were "
        "tried at the largest.",
        [
            {
                "group": f"{one.rule} decay",
                f"best decay at {one.base_width}": f"{one.weight_decay:g}",
                "its rate": f"{one.learning_rate:.3g}",
                f"loss with them at {last.width}": signed(last.eval_loss, 3),
                "best decay there": f"{last.best_decay:g}",
                "cost": percent(last.given_up / (last.eval_loss - last.given_up)),
            }
            for one in found
            for last in one.reuse[-1:]
            if last.width > one.base_width and math.isfinite(last.eval_loss)
        ],
    )


EXPERIMENT = replace(
    _BY_RATE,
    settings=lambda scale: (*_BY_RATE.settings(scale), *OTHERS),
    size_of=_size,
    read=_read,
)
