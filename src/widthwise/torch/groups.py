"""Parameter groups: the factors of a plan in the form that every optimizer of PyTorch takes.

PyTorch's AdamW and SGD multiply weight decay by the learning rate of the group. The decay of a group is therefore
divided by its factor on the learning rate, so that a step removes the same part of a weight at every width.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from widthwise.scaling import Factors, Parameter
from widthwise.theory import ADAFACTOR, Family
from widthwise.torch.sizes import check_shape
from widthwise.torch.watch import FACTOR, FAMILY, watch

EPSILON = 1e-8
ADAFACTOR_EPSILON = 1e-30
FLOOR = 1e-3

MOST_DECAY = 0.05
"""The largest fraction of a weight that decay may remove in one step; more is always a mistake about its meaning."""


def make_groups(
    found: Mapping[str, nn.Parameter],
    parameters: Sequence[Parameter],
    factors: Mapping[str, Factors],
    family: Family,
    *,
    width: int,
    lr: float,
    weight_decay: float,
    eps: float | None,
    decays: Callable[[str], bool] | None,
) -> list[dict[str, Any]]:
    """Return the groups of the parameters that are trained; see `TorchPlan.groups`."""
    _refuse_bad_rate(lr, weight_decay)
    if eps is None:
        eps = ADAFACTOR_EPSILON if family == ADAFACTOR else EPSILON
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for about in parameters:
        parameter, factor = found[about.path], factors[about.path]
        if parameter.ndim == len(about.shape) > 1:  # wrappers that shard may leave flat pieces of parameters
            check_shape(about, parameter, width)
        if not parameter.requires_grad:
            continue
        decayed = bool(weight_decay) and (not about.is_vector if decays is None else decays(about.path))
        options: dict[str, Any] = {
            "lr": lr * factor.learning_rate,
            "weight_decay": weight_decay / factor.learning_rate if decayed else 0.0,
            FACTOR: factor.learning_rate,
            FAMILY: family.name,
        }
        if family == ADAFACTOR:  # which adds epsilon to squares
            options |= {"eps": eps * factor.epsilon**2, "floor": FLOOR * factor.floor}
        elif not family.gradient_power:
            options["eps"] = eps * factor.epsilon
        group = groups.setdefault(tuple(options.items()), {"params": [], **options})
        group["params"].append(parameter)
        if family == ADAFACTOR:
            group.setdefault("axes", []).append([list(about.axes.inputs), list(about.axes.outputs)])
    watch()
    return list(groups.values())


def _refuse_bad_rate(lr: float, weight_decay: float) -> None:
    for name, value in (("lr", lr), ("weight_decay", weight_decay)):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value}: expected a number from 0 up")
    if lr * weight_decay > MOST_DECAY:
        raise ValueError(
            f"a step would remove lr · weight_decay = {lr * weight_decay:.2g} of every weight: expected at most "
            f"{MOST_DECAY}"
        )
