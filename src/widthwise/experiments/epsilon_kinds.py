"""The epsilons of the experiment on underflow (§4.3): which are tried at each scale, and what was found with each.

The paper has six epsilons of each kind, in figures. Its text names 1e-30, 1e-15 and 1e-9 of the constant ones and 1e-12
and 1e-4 of the others; the rest are chosen here to lie between.

Gradients shrink with width, and only models wider than a CPU or one GPU can train bring them down to 1e-9. There every
epsilon is multiplied by a factor, chosen from gradients as measured: at the largest width the baseline is above those
of mean-field's hidden layers (n^-3/2) and below those of the standard parameterization (n^-1/2).
"""

from dataclasses import dataclass

from widthwise.experiments.paper_values import PARAMETERIZATIONS
from widthwise.experiments.results import Results, pick
from widthwise.experiments.showing import called
from widthwise.experiments.sizes import Scale
from widthwise.sweep.fits import GroupFit

PART = "rates"
"""What all runs of the experiment are kept under."""
FACTORS: dict[Scale, float] = {"smoke": 1e6, "cpu": 1e5, "gpu": 1e3, "paper": 1.0}
"""By what the paper's epsilons are multiplied at each scale."""
CONSTANT = (1e-30, 1e-18, 1e-15, 1e-12, 1e-9, 1e-6)
PER_LAYER = (1e-18, 1e-15, 1e-12, 1e-9, 1e-6, 1e-4)
"""Base epsilons, of those that follow the gradients' exponents."""
BASELINE, SMALL_CONSTANT, SMALL_PER_LAYER = 1e-9, 1e-15, 1e-12


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How epsilon is set: a value, for all layers the same or following their gradients; none for Adam-atan2."""

    epsilon: float | None
    per_layer: bool = False

    @property
    def title(self) -> str:
        """What it is called."""
        if self.epsilon is None:
            return called("adam_atan2")
        return f"per-layer ε, base {self.epsilon:.0e}" if self.per_layer else f"constant ε = {self.epsilon:.0e}"


def scaled(epsilon: float, scale: Scale) -> float:
    """Give what stands for one of the paper's epsilons at a scale.

    >>> scaled(1e-9, "cpu")
    0.0001
    """
    return float(f"{epsilon * FACTORS[scale]:.6g}")


def baseline(scale: Scale) -> Kind:
    """Give the kind of epsilon that is compared with."""
    return Kind(epsilon=scaled(BASELINE, scale))


def mitigations(scale: Scale) -> tuple[Kind, Kind, Kind]:
    """Give the three mitigations."""
    return (
        Kind(epsilon=scaled(SMALL_CONSTANT, scale)),
        Kind(epsilon=scaled(SMALL_PER_LAYER, scale), per_layer=True),
        Kind(epsilon=None),
    )


def tried(scale: Scale) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """Give the constant epsilons and those per layer, six of each; at `smoke` those that the claims are about."""
    constant, per_layer = CONSTANT, PER_LAYER
    if scale == "smoke":
        constant, per_layer = (SMALL_CONSTANT, BASELINE), (SMALL_PER_LAYER,)
    return (
        tuple(Kind(epsilon=scaled(epsilon, scale)) for epsilon in constant),
        tuple(Kind(epsilon=scaled(epsilon, scale), per_layer=True) for epsilon in per_layer),
    )


class Groups:
    """The groups of the experiment, by what they are of."""

    def __init__(self, results: Results) -> None:
        self.scale: Scale = results.scale
        self._fits = results.fits(PART)

    def __bool__(self) -> bool:
        return bool(self._fits)

    def get(self, name: str, kind: Kind, *, optimizer: str = "adam", setting: str = "full") -> GroupFit | None:
        """Find a group; None where it is not there yet."""
        return pick(
            self._fits,
            optimizer="adam_atan2" if kind.epsilon is None else optimizer,
            parameterization=name,
            setting=setting,
            epsilon=kind.epsilon,
            epsilon_per_parameter=kind.per_layer,
        )

    def by_name(self, kind: Kind) -> dict[str, GroupFit]:
        """Give Adam's groups with full alignment and one kind of epsilon, by parameterization."""
        return {name: fit for name in PARAMETERIZATIONS if (fit := self.get(name, kind))}

    def by_kind(self, name: str, kinds: tuple[Kind, ...]) -> dict[str, GroupFit]:
        """Give Adam's groups with full alignment in one parameterization, by what their epsilon is called."""
        return {kind.title: fit for kind in kinds if (fit := self.get(name, kind))}
