"""Settings: combined from lists of values, and applied to what is trained."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants
from widthwise.study import Setting
from widthwise.theory import INDEPENDENT, Own, read_decay_rule
from widthwise.train import Spec


def settings(base: Setting | None = None, **axes: Sequence[Any]) -> tuple[Setting, ...]:
    """Return all combinations of values, each once.

    An optimizer without an epsilon has one setting for all epsilons, and no decay has one for all rules of decay.

    Args:
        base: Where the other values come from.
        axes: Values by the name of a field of a setting; none stands for the base's own.

    >>> from widthwise.theory import Aligned
    >>> [setting.rates.text for setting in settings(rates=(Aligned("none"), Aligned("full")), epsilon=())]
    ['none', 'full']
    """
    for name, values in axes.items():
        if len(set(values)) < len(values):
            given = ", ".join(str(getattr(value, "text", value)) for value in values)
            raise ValueError(f"{name} is {given}: expected each once")
    chosen = {name: values for name, values in axes.items() if values}
    combined = (dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))
    return tuple(dict.fromkeys(_plainest(dataclasses.replace(base or Setting(), **one)) for one in combined))


def apply(setting: Setting, base: Spec, constants: Constants) -> Spec:
    """Return a specification with this setting.

    Args:
        setting: The setting.
        base: Where everything else comes from.
        constants: What the name of the constants stands for.
    """
    own = isinstance(setting.rates, Own)
    changed = dataclasses.replace(
        base,
        parameterization=setting.parameterization,
        optimizer=setting.optimizer,
        alignment=base.alignment if own else setting.rates.name,
        rates=setting.rates.text if own else None,
        epsilon=setting.epsilon,
        epsilon_per_parameter=setting.epsilon_per_parameter,
        weight_decay=setting.weight_decay,
        decay_rule=setting.decay_rule,
        depth_rule=setting.depth_rule,
        batch_rule=setting.batch_rule,
        token_rule=setting.token_rule,
    )
    return changed.with_constants(constants)


def _plainest(setting: Setting) -> Setting:
    read_decay_rule(setting.decay_rule)  # raises for a rule that does not exist, even if there is no decay
    if not setting.weight_decay:
        setting = dataclasses.replace(setting, decay_rule=INDEPENDENT.name)
    if setting.optimizer not in OPTIMIZERS or OPTIMIZERS[setting.optimizer].epsilon is not None:
        return setting
    return dataclasses.replace(setting, epsilon=None, epsilon_per_parameter=False)
