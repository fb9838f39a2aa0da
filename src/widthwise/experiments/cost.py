"""What an experiment takes, before it starts: runs, tokens and FLOPs of every part, counted and not timed.

Nothing is opened or allocated, so that the paper's own scale can be counted anywhere.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from widthwise.experiments.stages import ProbeStage, Stage, TuneStage
from widthwise.models import count_parameters
from widthwise.sweep.forecast import Count, count_sweep, distinct
from widthwise.train.cost import STATE_BYTES


def count_stages(stages: Iterable[Stage], *, vocabulary: int) -> list[Count]:
    """Count what stages train if nothing of it is known yet; searches that coincide are listed once.

    Args:
        stages: The stages.
        vocabulary: The number of tokens of the data, where the specification leaves it open.
    """
    return distinct(count for stage in stages for count in _counts(stage, vocabulary))


def _counts(stage: Stage, vocabulary: int) -> list[Count]:
    if isinstance(stage, TuneStage):
        trials = stage.tuning.trials
        most = trials * (1 + stage.tuning.extensions)
        return [Count(spec=stage.spec, vocabulary=vocabulary, fewest=trials, most=most, part=stage.part)]
    if isinstance(stage, ProbeStage):
        searches = _counts(stage.of, vocabulary)  # carried out first, to find the rates
        return [*searches, *(replace(search, part=stage.part, fewest=1, most=1) for search in searches)]
    return count_sweep(stage.sweep, vocabulary=vocabulary, part=stage.part)


def hindrances(counts: Sequence[Count], *, accelerator: bool, memory: int | None) -> list[str]:
    """Return the reasons why this cannot be trained here, if there are any.

    Args:
        counts: What is to be trained.
        accelerator: Whether there is one.
        memory: The memory of a device in bytes, where known: a run of a sweep is computed on one device.
    """
    found: list[str] = []
    if not accelerator:
        found.append("there is no GPU")
    largest = max(counts, key=lambda count: count.spec.width)
    spec = largest.spec
    state = STATE_BYTES * count_parameters(spec.transformer(largest.vocabulary)).total
    if memory is not None and state > memory:
        found.append(f"width {spec.width} keeps {state / 1e9:.0f} GB of state and a device has {memory / 1e9:.0f} GB")
    if spec.data == "c4" and spec.tokenizer == "bytes":
        found.append("there is no tokenizer (--tokenizer: the path of T5's SentencePiece model)")
    elif spec.data == "c4" and not os.path.exists(spec.tokenizer):
        found.append(f"there is no tokenizer at {spec.tokenizer!r}")
    return found
