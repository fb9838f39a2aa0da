"""What an experiment takes, before it starts: runs, tokens and FLOPs of every part, counted and not timed.

Nothing is opened or allocated, so that the paper's own scale can be counted anywhere. A search does not know how many
learning rates it will try: it is bounded from both sides, as a sweep's forecast does.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from widthwise.experiments.stages import Probe, Search, Stage, Tune
from widthwise.models import Transformer, count_parameters
from widthwise.parameterize import Constants
from widthwise.sweep.forecast import fewest_points, most_points
from widthwise.train import Spec
from widthwise.train.cost import GPU_FLOPS, STATE_BYTES, flops_per_step
from widthwise.train.spec import exponents_of


@dataclass(frozen=True, kw_only=True)
class Work:
    """Runs that differ in learning rate and seed, or in constants, alone.

    Attributes:
        part: The part of the experiment they belong to.
        spec: One of them.
        vocabulary: The number of tokens of the model.
        fewest: How many there are at least.
        most: How many there may be.
    """

    part: str
    spec: Spec
    vocabulary: int
    fewest: int
    most: int

    @property
    def model(self) -> Transformer:
        """The model that they train."""
        spec = self.spec
        return Transformer(
            width=spec.width,
            blocks=spec.blocks,
            head_dim=spec.head_dim,
            context=spec.context,
            vocabulary=self.vocabulary,
        )

    @property
    def flops_per_step(self) -> float:
        """What a step of one of them takes."""
        return flops_per_step(self.model, self.spec.batch)

    @property
    def flops(self) -> float:
        """What one of them takes."""
        return self.spec.steps * self.flops_per_step

    @property
    def tokens(self) -> int:
        """What one of them sees."""
        return self.spec.steps * self.spec.batch * self.spec.context


def work_of(stages: Iterable[Stage], *, vocabulary: int) -> list[Work]:
    """List what stages train if nothing of it is known yet; what comes down to the same runs is listed once.

    Args:
        stages: The stages.
        vocabulary: The number of tokens of the data, where the specification leaves it open.
    """
    found: dict[object, Work] = {}
    for stage in stages:
        for key, work in _works(stage, vocabulary):
            found.setdefault((work.part, key), work)
    return list(found.values())


def _works(stage: Stage, vocabulary: int) -> Iterable[tuple[object, Work]]:
    if isinstance(stage, Tune):
        most = stage.tuning.trials * (1 + stage.tuning.extensions)
        room = stage.spec.vocabulary or vocabulary
        yield (
            stage.spec,
            Work(part=stage.part, spec=stage.spec, vocabulary=room, fewest=stage.tuning.trials, most=most),
        )
        return
    if isinstance(stage, Probe):
        yield from _works(stage.of, vocabulary)  # carried out first, to find the rates
    search = stage if isinstance(stage, Search) else stage.of
    sweep, lattice = search.sweep, search.sweep.search
    seeds = len(sweep.all_seeds)
    bounds = (1, 1) if isinstance(stage, Probe) else (seeds * fewest_points(lattice), seeds * most_points(lattice))
    for group in sweep.groups(lambda *_: Constants()):
        for width in sweep.all_widths:
            rate = sweep.base.learning_rate
            spec = group.at(width=width, learning_rate=rate, seed=sweep.all_seeds[0], vocabulary=vocabulary)
            room = spec.vocabulary or vocabulary
            work = Work(part=stage.part, spec=spec, vocabulary=room, fewest=bounds[0], most=bounds[1])
            yield (_rates(spec), group.constants, group.horizon), work


def _rates(spec: Spec) -> object:
    """Give what tells searches apart: at the base width all settings prescribe the same rates."""
    exponents = None if spec.width == spec.base_width else exponents_of(spec).rates
    return replace(spec, alignment="full", rates=None), exponents


def device_days(works: Sequence[Work]) -> tuple[float, float]:
    """Say how long one accelerator takes at the assumed speed of `train.cost`: at least, at most."""
    fewest, most = sum(work.fewest * work.flops for work in works), sum(work.most * work.flops for work in works)
    return fewest / GPU_FLOPS / 86400, most / GPU_FLOPS / 86400


def hindrances(works: Sequence[Work], *, accelerator: bool, memory: int | None) -> list[str]:
    """Say what stands in the way of training here; nothing where nothing does.

    Args:
        works: What is to be trained.
        accelerator: Whether there is one.
        memory: The memory of a device in bytes, where known: a run of a sweep is computed on one device.
    """
    found: list[str] = []
    if not accelerator:
        found.append("there is no GPU")
    largest = max(works, key=lambda work: work.spec.width)
    state = STATE_BYTES * count_parameters(largest.model).total
    if memory is not None and state > memory:
        found.append(
            f"width {largest.spec.width} keeps {state / 1e9:.0f} GB of state and a device has {memory / 1e9:.0f} GB"
        )
    spec = largest.spec
    if spec.data == "c4" and spec.tokenizer == "bytes":
        found.append("there is no tokenizer (--tokenizer: the path of T5's SentencePiece model)")
    elif spec.data == "c4" and not os.path.exists(spec.tokenizer):
        found.append(f"there is no tokenizer at {spec.tokenizer!r}")
    return found
