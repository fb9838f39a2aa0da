"""Four rules for what weight decay does as the width grows, compared where decay matters.

Over the whole training, decay does as much as the paper's does in 50,000 steps (`paper/weight_decay.py`). With less, a
run of a few hundred steps is over before decay acts, and all rules are alike.
"""

from widthwise.experiments.beyond.comparison import Named, comparison
from widthwise.experiments.paper.weight_decay import IN_ALL
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.study.setting import Setting
from widthwise.theory import DECAY_RULES

_SIZES: dict[Scale, Size] = {
    "smoke": SIZES["smoke"],
    "cpu": SIZES["cpu"].at_widths(32, 64, 128, 256, blocks=2, context=64, steps=600, warmup=100),
    "gpu": SIZES["gpu"].at_widths(128, 256, 512, 1024, 2048, steps=1200),
}


def compared(scale: Scale) -> Named:
    """Return every rule."""
    decay = IN_ALL / _SIZES[scale].base.steps
    return {f"{name} decay": Setting(weight_decay=decay, decay_rule=name) for name in DECAY_RULES}


EXPERIMENT = comparison(
    "decay-rules",
    title="How should weight decay change with width?",
    claim=(
        "Independent weight decay, the same at every width, makes the learning rate transfer (Kosson et al., arXiv "
        "2510.19093). Others scale it with the layers' learning rates, with these times √n, or as 1/n."
    ),
    compared=compared,
    sizes=_SIZES,
)
