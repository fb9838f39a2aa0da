"""A setting: everything that a learning rate is searched for, as one value.

Runs of one setting differ in width, learning rate and seed alone, and one power law of the optimal learning rate
against width is read from them. The name of the constants and the horizon are kept with every run, because they cannot
be read off its numbers: 877 steps may be fixed or compute-optimal.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from widthwise.theory import INDEPENDENT, PLAIN_DEPTH, RateRule, Role, read_rates
from widthwise.theory.axes import CONSTANT
from widthwise.theory.rates import FULL_ALIGNMENT

Horizon: TypeAlias = Literal["fixed", "compute_optimal"]
"""How long a run trains: for a given number of steps, or for 20 tokens per parameter."""
DEFAULT = "default"
"""The name of the constants that are all 1."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the runs of one group share, apart from the model, the data and the steps.

    Names of parameterizations and optimizers are checked where they are used: a study may hold newer ones.

    Attributes:
        parameterization: The parameterization's name.
        optimizer: The optimizer's name.
        rates: How layers' learning rates follow from the base rate.
        constants: The name of the constants.
        epsilon: The base epsilon; the optimizer's own if None.
        epsilon_per_parameter: Whether epsilon follows the gradients' exponents.
        weight_decay: The weight decay at the base width.
        decay_rule: The name of the rule by which it changes with width.
        depth_rule: The rule for what changes with depth.
        batch_rule: The rule for what changes with the batch size.
        token_rule: The rule for what changes with the number of tokens.
        horizon: Fixed or compute-optimal.
    """

    parameterization: str = "standard"
    optimizer: str = "adam"
    rates: RateRule = FULL_ALIGNMENT
    constants: str = DEFAULT
    epsilon: float | None = None
    epsilon_per_parameter: bool = False
    weight_decay: float = 0.0
    decay_rule: str = INDEPENDENT.name
    depth_rule: str = PLAIN_DEPTH.name
    batch_rule: str = CONSTANT.name
    token_rule: str = CONSTANT.name
    horizon: Horizon = "fixed"

    def __post_init__(self) -> None:
        if self.horizon not in get_args(Horizon):
            raise ValueError(f"horizon is {self.horizon!r}: expected one of {', '.join(get_args(Horizon))}")

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "Setting":
        """Return the setting of a request, as a study keeps it."""
        rates = request.get("rates")
        values = {name: request[name] for name in _PLAIN if name in request}
        if "constants" not in values:
            values["constants"] = name_constants([request.get(f"{role.value}_constant", 1.0) for role in Role])
        return cls(**values, rates=read_rates(request["alignment"] if rates is None else rates))

    @property
    def names(self) -> dict[str, str]:
        """The names of a group in JSON."""
        return {
            "parameterization": self.parameterization,
            "optimizer": self.optimizer,
            "setting": self.rates.name,
            "constants": self.constants,
            "horizon": self.horizon,
        }

    @property
    def title(self) -> str:
        """The setting in a line; what few sweeps change is in it only where it is changed."""
        changed = [name for name in (*_SELDOM, *_RULES) if getattr(self, name) != _DEFAULTS[name]]
        return ", ".join(
            [
                *(self.parameterization, self.optimizer, self.rates.text, f"{self.constants} constants"),
                f"{self.horizon.replace('_', '-')} horizon",
                *(f"{name} {getattr(self, name)}" for name in changed),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the setting as values that `json.dumps` takes."""
        values = {**{name: getattr(self, name) for name in _PLAIN}, "rates": self.rates.text}
        for name in _RULES:
            if values[name] == _DEFAULTS[name]:
                del values[name]  # sweeps from before it was an option must compare equal
        return values


def name_constants(values: Sequence[float]) -> str:
    """Return the name of the constants with these values for embedding, hidden and readout.

    >>> name_constants([1, 1, 1]), name_constants([1, 0.5, 1])
    ('default', '1,0.5,1')
    """
    return DEFAULT if set(values) == {1.0} else ",".join(f"{value:g}" for value in values)


_SELDOM = ("epsilon", "epsilon_per_parameter", "weight_decay")
_RULES = ("decay_rule", "depth_rule", "batch_rule", "token_rule")
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Setting)}
_PLAIN = tuple(field.name for field in dataclasses.fields(Setting) if field.name != "rates")
