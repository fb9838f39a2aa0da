"""`widthwise transfer`: the hyperparameters of a larger model, from those of a tuned one."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from widthwise.cli.arguments import count, named, positive, unset
from widthwise.cli.output import table
from widthwise.scaling.grown import Grown
from widthwise.scaling.hyperparameters import (
    Growth,
    Hyperparameter,
    MeasuredExponent,
    TunedValues,
    target_hyperparameters,
)
from widthwise.study.axes import TOGETHER, WIDTH
from widthwise.theory import (
    ADAM,
    ALIGNMENTS,
    ALL_FAMILIES,
    DECAY_RULES,
    FULL,
    INDEPENDENT,
    MUON_FACTORS,
    MUP,
    PARAMETERIZATIONS,
    Alignment,
    DecayRule,
    Family,
    Parameterization,
    solve,
    with_adam,
)

if TYPE_CHECKING:
    from widthwise.study.fits import GroupFit


@dataclass(frozen=True, kw_only=True)
class TransferCommand:
    """Print every hyperparameter of a larger model, from those of a tuned one, and where each comes from.

    The tuned model has the --base-... sizes. Sizes that are left out do not grow. Initial sizes are factors on those of
    the tuned model, and all multipliers are stored in the parameters. With --study, learning rates are corrected by the
    exponents that sweeps with the same rules measured, and have intervals.
    """

    learning_rate: Annotated[float, positive("X")]
    """The tuned learning rate."""
    epsilon: Annotated[float | None, unset("none")] = None
    """The tuned epsilon."""
    weight_decay: Annotated[float | None, unset("none")] = None
    """The tuned decay: the part of a weight that a step removes, which is the learning rate times AdamW's."""
    b2: Annotated[float | None, unset("none")] = None
    """The tuned beta2."""
    width: Annotated[int | None, count("N", least=1), unset("--base-width")] = None
    """The width of the target."""
    base_width: Annotated[int, count("N", least=1)] = 128
    """The width of the tuned model."""
    depth: Annotated[int | None, count("N", least=1), unset("that of the tuned model")] = None
    """The number of blocks of the target."""
    base_depth: Annotated[int | None, count("N", least=1), unset("none")] = None
    """The number of blocks of the tuned model."""
    batch: Annotated[int | None, count("N", least=1), unset("that of the tuned model")] = None
    """The batch size of the target."""
    base_batch: Annotated[int | None, count("N", least=1), unset("none")] = None
    """The batch size of the tuned model."""
    tokens: Annotated[int | None, count("N", least=1, most=10**15), unset("those of the tuned model")] = None
    """The number of tokens to train the target on."""
    base_tokens: Annotated[int | None, count("N", least=1, most=10**15), unset("none")] = None
    """The number of tokens that the tuned model was trained on."""
    parameterization: Annotated[Parameterization, named(PARAMETERIZATIONS)] = MUP
    """The parameterization, which decides how the readout starts."""
    optimizer: Annotated[Family, named(ALL_FAMILIES)] = ADAM
    """The family of optimizers."""
    alignment: Annotated[Alignment, named(ALIGNMENTS)] = FULL
    """The alignment assumed for the learning rates."""
    decay_rule: Annotated[DecayRule, named(DECAY_RULES)] = INDEPENDENT
    """How weight decay changes with width."""
    depth_rule: str = "completep"
    """What changes with depth: completep, sqrt, constant, or your own power of residual branches."""
    batch_rule: str = "constant"
    """What changes with the batch size: sde, sde2, sqrt, timescale, scion, constant, or your own power of the rate."""
    token_rule: str = "constant"
    """What changes with the number of tokens: horizon, timescale, scion, constant, or your own power of the rate."""
    study: Annotated[tuple[Path, ...], unset("none")] = ()
    """Folders of studies with one sweep along each axis to correct; their exponents are used as measured."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Print the hyperparameters."""
        muon = [family for family in MUON_FACTORS.values() if family == self.optimizer]
        family = with_adam(muon[0]) if muon else self.optimizer
        growth = Growth(
            case=solve(self.parameterization, family, self.alignment),
            width=self.width or self.base_width,
            base_width=self.base_width,
            grown=Grown.read(
                depth_rule=self.depth_rule,
                batch_rule=self.batch_rule,
                token_rule=self.token_rule,
                **{
                    name: getattr(self, name)
                    for axis in ("depth", "batch", "tokens")
                    for name in (axis, f"base_{axis}")
                },
            ),
            decay_rule=self.decay_rule,
            measured=self._measured(),
        )
        tuned = TunedValues(
            learning_rate=self.learning_rate, epsilon=self.epsilon, weight_decay=self.weight_decay, b2=self.b2
        )
        found = list(target_hyperparameters(tuned, growth))
        print(json.dumps(_to_json(found, growth), indent=2) if self.json else _tabulate(found, growth))
        return 0

    def _measured(self) -> dict[str, MeasuredExponent]:
        """Return the exponents that the studies hold, by axis; raise if one is not clear or not for these rules."""
        found: dict[str, MeasuredExponent] = {}
        for folder in self.study:
            for fit in _fits(folder):
                axis, exponent = fit.transfer.axis, fit.transfer.law.exponent
                if axis in found:
                    raise ValueError(f"there is more than one sweep over {axis}: expected one, not {fit.title!r} too")
                if not exponent.half_width < math.inf:
                    raise ValueError(f"the exponent in {axis} is not known in {str(folder)!r}: expected two optima")
                for name, expected in self._assumed(axis).items():
                    if not fit.is_own and (value := _option(fit, name)) != expected:
                        option = f"--{name.replace('_', '-')}"
                        raise ValueError(
                            f"the sweep over {axis} in {str(folder)!r} has {option} {value}: expected {expected}"
                        )
                found[axis] = MeasuredExponent(value=exponent.value, low=exponent.low, high=exponent.high)
        return found

    def _assumed(self, axis: str) -> dict[str, str]:
        if axis == TOGETHER.name:
            raise ValueError("a sweep over all axes together corrects none of them: expected one along a single axis")
        if axis == WIDTH.name:
            return {"parameterization": self.parameterization.name, "alignment": self.alignment.name}
        name = {"depth": "depth_rule", "batch": "batch_rule", "tokens": "token_rule"}[axis]
        return {name: getattr(self, name)}


def _fits(folder: Path) -> "list[GroupFit]":
    from widthwise.study import Study  # the rest of the command does without
    from widthwise.study.fits import fit_rows

    with Study.open(folder, create=False) as study:
        return fit_rows(study.runs())


def _option(fit: "GroupFit", name: str) -> str:
    setting = fit.setting
    return setting.rates.name if name == "alignment" else getattr(setting, name)


def _tabulate(found: Sequence[Hyperparameter], growth: Growth) -> str:
    headings = ("parameters", "hyperparameter", "tuned", "target", "95 % interval", "because of")
    rows = [
        (
            each.of if each.of != before else "",
            each.name,
            f"{each.base:.4g}",
            f"{each.target:.4g}",
            "" if each.interval is None else f"{each.interval[0]:.3g} to {each.interval[1]:.3g}",
            " ".join(map(str, each.origins)) or "–",
        )
        for before, each in zip(["", *(each.of for each in found)], found, strict=False)
    ]
    lines = [
        f"{axis} x {ratio:g}: {growth.rules[axis]}"
        + (f"; measured exponent {growth.measured[axis]}" if axis in growth.measured else "")
        for axis, ratio in growth.ratios.items()
        if ratio != 1
    ]
    return "\n".join([table(headings, rows, right=(2, 3)), *lines])


def _to_json(found: Sequence[Hyperparameter], growth: Growth) -> dict[str, Any]:
    return {"ratios": growth.ratios, "hyperparameters": [each.to_json() for each in found]}
