"""Transfer along depth, batch size and training length, each by itself, and along all of them together with width.

Theory decides what changes with depth. For batch size and training length there are only rules that others have found
(theory/axes.py). All of them are compared with changing nothing, in muP, since the embedding of the standard
parameterization starts so small that the residual stream consists of what blocks add.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from widthwise.experiments.beyond.comparison import Named, comparison
from widthwise.experiments.sizes import SIZES, Scale, Size
from widthwise.study.axes import BATCH, DEPTH, TOGETHER, TOKENS
from widthwise.study.setting import Setting
from widthwise.theory import Global

PLAIN = Setting(parameterization="mup")
DEPTHS: Named = {
    "nothing changes": PLAIN,
    "branches as L^-1/2 (sqrt)": replace(PLAIN, depth_rule="sqrt"),
    "branches as 1/L (completep)": replace(PLAIN, depth_rule="completep"),
}
BATCHES: Named = {
    "nothing changes": PLAIN,
    "rate as the root of the batch (sqrt)": replace(PLAIN, batch_rule="sqrt"),
    "rate, epsilon and β₂ (sde)": replace(PLAIN, batch_rule="sde"),
    "epsilon and β₂ (sde2)": replace(PLAIN, batch_rule="sde2"),
}
LENGTHS: Named = {
    "nothing changes": PLAIN,
    "rate as T^-0.32 (horizon)": replace(PLAIN, token_rule="horizon"),
    "rate as T^-0.56 (scion)": replace(PLAIN, token_rule="scion"),
}
ALL: Named = {
    "one rate for all layers": replace(PLAIN, rates=Global()),
    "rules for width and depth": replace(PLAIN, depth_rule="completep"),
    "those, sqrt and horizon": replace(PLAIN, depth_rule="completep", batch_rule="sqrt", token_rule="horizon"),
    "those, sde and horizon": replace(PLAIN, depth_rule="completep", batch_rule="sde", token_rule="horizon"),
}


def _sizes(axis: str, growth: tuple[float, ...], changes: Mapping[Scale, Mapping[str, Any]]) -> dict[Scale, Size]:
    """Return the sizes of an experiment, given how the base of each scale differs from the usual one.

    That base is the base of every rule.
    """
    sizes: dict[Scale, Size] = {}
    for scale, values in changes.items():
        base = replace(SIZES[scale].base, **values)
        bases = {"base_width": base.width, "base_blocks": base.blocks, "base_batch": base.batch}
        sizes[scale] = replace(
            SIZES[scale],
            base=replace(base, **bases, base_tokens=base.tokens),
            widths=(base.width,),
            axis=axis,
            growth=(1, 2) if scale == "smoke" else growth,
        )
    return sizes


_CPU: Mapping[str, Any] = {"width": 64, "blocks": 2, "context": 64, "steps": 300, "warmup": 60}
_GPU: Mapping[str, Any] = {"width": 256}

EXPERIMENTS = (
    comparison(
        "depth",
        title="Does the learning rate transfer over depth?",
        claim=(
            "With residual branches multiplied by 1/L, and the learning rates that theory derives for that, the best "
            "base learning rate does not change with the number of blocks L (CompleteP, EleutherAI/nanoGPT-mup)."
        ),
        compared=lambda _: DEPTHS,
        sizes=_sizes(DEPTH.name, (1, 2, 4, 8), {"smoke": {}, "cpu": _CPU})
        | _sizes(DEPTH.name, (1, 2, 4, 8, 16), {"gpu": _GPU}),
    ),
    comparison(
        "batch",
        title="Does the learning rate transfer over the batch size?",
        claim=(
            "On the same number of tokens, the best learning rate with Adam grows as the root of the batch size, if "
            "epsilon and β₂ change with it (microsoft/ArchScale, after Malladi et al.)."
        ),
        compared=lambda _: BATCHES,
        sizes=_sizes(BATCH.name, (1 / 4, 1 / 2, 1, 2, 4), {"smoke": {}, "cpu": _CPU})
        | _sizes(BATCH.name, (1, 2, 4, 8, 16, 32), {"gpu": {**_GPU, "batch": 16, "steps": 4800, "warmup": 800}}),
    ),
    comparison(
        "tokens",
        title="Does the learning rate transfer over training length?",
        claim=(
            "The best learning rate falls with the number of training tokens T, as T^-0.32 (microsoft/ArchScale, which "
            "credits arXiv 2409.19913) or T^-0.56 (Scion)."
        ),
        compared=lambda _: LENGTHS,
        sizes=_sizes(
            TOKENS.name,
            (1, 2, 4, 8, 16),
            {"smoke": {}, "cpu": {**_CPU, "batch": 8, "steps": 150, "warmup": 30}, "gpu": {**_GPU, "steps": 300}},
        ),
    ),
    comparison(
        "together",
        title="Does the learning rate transfer when everything grows?",
        claim=(
            "What is tuned on a small model can be used for one that is larger in every way: width, batch size and "
            "tokens in proportion, and depth as their power 2/3."
        ),
        compared=lambda _: ALL,
        sizes=_sizes(TOGETHER.name, (1, 2, 4), {"smoke": {}, "cpu": {**_CPU, "width": 32, "batch": 8}})
        | _sizes(TOGETHER.name, (1, 2, 4, 8), {"gpu": {"width": 128, "blocks": 4, "context": 64, "steps": 300}}),
    ),
)
