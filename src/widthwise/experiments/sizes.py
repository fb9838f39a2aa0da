"""The four scales at which experiments run: what is trained, how wide, how long.

`smoke` shows that everything works; `cpu` shows the paper's effects in minutes on two cores, as far as they appear at
that size; `gpu` measures them in minutes to an hour on one GPU; `paper` is the paper's own setup ("Experimental
Details", appendix). Experiments start from the table here and change what they must.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from widthwise.experiments.paper.values import PARAMETERIZATIONS
from widthwise.fit.landscape import finest
from widthwise.search.lattice import AdaptiveSearch, Grid, Lattice
from widthwise.study.axes import AXES, WIDTH
from widthwise.study.setting import Setting
from widthwise.sweeps.tuning import Tuning
from widthwise.train import Spec

Scale: TypeAlias = Literal["smoke", "cpu", "gpu", "paper"]

PAPER_WIDTHS = (128, 256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 6144, 8192, 12288, 16384)
"""The fourteen widths of the paper."""

STARTS = {
    **{"sgd": 0.25, "adam": 2**-8, "adam_atan2": 2**-8, "adam_ps": 2**-5, "adafactor": 2**-5},
    **{"muon": 2**-6, "muon_out_in": 2**-6, "muon_max": 2**-8},
}
"""Where the search for a learning rate starts, by optimizer: parameter scaling makes a rate relative to the weights."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a scale trains.

    Attributes:
        scale: Its name.
        base: What all runs share.
        widths: The widths.
        only_ends: Whether only the smallest and the largest width are trained, whichever widths are chosen.
        axis: What grows.
        growth: How many times as large as the base sizes along another axis than width are.
        starts: Where the search for a learning rate starts, by optimizer.
        octaves: How far around its start a learning rate is searched, to each side; None to search adaptively.
        trials: The number of trials in a search for constants.
        seeds: Seeds of every width.
        precision: How precisely exponents are measured, with as many seeds as that takes; None to search every width
            once, which is what a comparison of losses needs.
        until_verdict: Whether to stop before that at settings whose verdict is clear.
        loss_seeds: How many seeds losses are compared with where a claim about them is unclear: the first of these, and
            if it still is, the next. Empty to leave them as the search does.
        edge: Whether the stability edge is located.
        parameterizations: Those of an experiment's parameterizations that are trained.
        optimizers: Those of an experiment's optimizers that are trained; all if empty.
    """

    scale: Scale
    base: Spec
    widths: tuple[int, ...]
    only_ends: bool = False
    axis: str = WIDTH.name
    growth: tuple[float, ...] = ()
    starts: Mapping[str, float] = field(default_factory=STARTS.copy)
    octaves: float | None = None
    trials: int = 800
    seeds: tuple[int, ...] = (0,)
    precision: float | None = None
    until_verdict: bool = False
    loss_seeds: tuple[int, ...] = ()
    edge: bool = False
    parameterizations: tuple[str, ...] = PARAMETERIZATIONS
    optimizers: tuple[str, ...] = ()

    def at_widths(self, *widths: int, **changes: Any) -> "Size":
        """Return the size with other widths, the smallest of which is the base width, and changes to the base."""
        return replace(self, base=replace(self.base, width=widths[0], base_width=widths[0], **changes), widths=widths)

    def grown(self, base: Spec) -> tuple[int, ...]:
        """Return the sizes along another axis than width, where runs share `base`."""
        return tuple(round(AXES[self.axis].size(vars(base)) * ratio) for ratio in self.growth)

    def precision_with(self, sizes: Sequence[int]) -> float | None:
        """Return the precision to ask for with these widths, or other sizes, which may allow less."""
        if self.precision is None or len(set(sizes)) < 2:
            return None
        return max(self.precision, 1.5 * finest(sizes))

    def trains(self, setting: Setting) -> bool:
        """Return whether this size trains a setting of an experiment."""
        optimizers = self.optimizers or (setting.optimizer,)
        return setting.parameterization in self.parameterizations and setting.optimizer in optimizers

    def spec(self, optimizer: str, **changes: Any) -> Spec:
        """Return the specification that runs with an optimizer share."""
        values = {"width": self.widths[0], "optimizer": optimizer, "learning_rate": self.starts[optimizer], **changes}
        return replace(self.base, **values)

    def search(self, start: float) -> Lattice:
        """Return the learning rates to try."""
        if self.octaves is None:
            return AdaptiveSearch()
        return Grid(lowest=start * 2**-self.octaves, highest=start * 2**self.octaves)

    @property
    def tuning(self) -> Tuning:
        """How constants are searched."""
        if self.scale == "smoke":  # so few trials find something better than the default only near it
            return Tuning(trials=self.trials, batch=self.trials, extensions=0, low=0.25, high=4)
        return Tuning(trials=self.trials, batch=min(self.trials, 32), extensions=1)


SIZES: dict[Scale, Size] = {
    "smoke": Size(
        scale="smoke",
        base=Spec(
            width=16, base_width=16, blocks=1, head_dim=8, context=16, batch=8, steps=20, warmup=2, eval_batches=1
        ),
        widths=(16, 32),
        # In so few steps larger rates are best; the optima of standard and muP lie inside these grids.
        starts={
            **{"sgd": 2**0.5, "adam": 2**-4.5, "adam_atan2": 2**-4.5, "adam_ps": 2**-2, "adafactor": 2**-2},
            **{"muon": 2**-3.5, "muon_out_in": 2**-3.5, "muon_max": 2**-4.5},
        },
        octaves=2,
        trials=8,
        parameterizations=("standard", "mup"),
    ),
    "cpu": Size(
        scale="cpu",
        base=Spec(width=64, base_width=64, blocks=1, head_dim=16, context=32, batch=16, steps=150, warmup=15),
        widths=(64, 128, 256),
        trials=40,
    ),
    "gpu": Size(
        scale="gpu",
        base=Spec(width=128, base_width=256, blocks=2, head_dim=64, context=128, batch=32, steps=600, warmup=100),
        widths=(128, 256, 512, 1024),
        trials=96,
        precision=0.07,
        until_verdict=True,
        loss_seeds=(4, 8, 16),
    ),
    "paper": Size(
        scale="paper",
        base=replace(
            Spec(width=128, base_width=1024, blocks=8, head_dim=128, context=512, batch=256, steps=50_000, warmup=1000),
            vocabulary=32101,
            data="c4",
            eval_batches=64,
        ),
        widths=PAPER_WIDTHS,
        edge=True,
    ),
}
"""The scales."""
