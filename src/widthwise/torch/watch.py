"""Warn when a training loop undoes the factors of a plan.

The factors live in parameter groups, which other code writes to: a loop that sets every group to one learning rate, a
scheduler with the same smallest rate for all, an optimizer that caps its rate. Each erases the ratios between groups
silently, and training looks normal. So steps of optimizers with such groups are looked at, at the cost of a few
comparisons per step.
"""

import math
import warnings
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from widthwise.theory import ALL_FAMILIES, MUON_FACTORS

FACTOR = "lr_factor"
"""The entry of a group that holds its factor on the learning rate."""

FAMILY = "family"
"""The entry of a group that holds the name of the optimizer family that it was made for."""

_FAMILIES = {
    torch.optim.SGD: "sgd",
    torch.optim.Adam: "adam",
    torch.optim.NAdam: "adam",
    torch.optim.RAdam: "adam",
    torch.optim.Adamax: "adam",
}
"""The families of optimizers, and of those derived from them. Others, such as a Lion of your own, are trusted."""

_MUONS = {family.name for family in MUON_FACTORS.values()}

_warned = WeakIdKeyDictionary()
_watching: list[Any] = []


def watch() -> None:
    """Look at the steps of all optimizers from now on."""
    if not _watching:
        _watching.append(register_optimizer_step_pre_hook(_look))


def _look(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    groups = [group for group in optimizer.param_groups if FACTOR in group]
    if not groups or optimizer in _warned:
        return
    found = _foreign(optimizer, groups) or _erased(groups) or _capped(optimizer) or _coupled(optimizer, groups)
    if found is not None:
        _warned[optimizer] = True
        warnings.warn(found, stacklevel=2)


def _foreign(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> str | None:
    name = type(optimizer).__name__
    families = {group.get(FAMILY) for group in groups} & set(ALL_FAMILIES)  # a family of one's own is trusted
    if name == "Muon":
        return _foreign_to_muon(optimizer, families) or _other_factor(optimizer, groups)
    own = next((family for kind, family in _FAMILIES.items() if isinstance(optimizer, kind)), None)
    planned = next(iter(families - {own}), None)
    if own is None or planned is None:
        return None
    instead = "take groups of='adam'" if planned in _MUONS else f"plan with optimizer={own!r}"
    return f"{name} got groups of a plan for {planned}, which scales otherwise: {instead}"


def _foreign_to_muon(optimizer: torch.optim.Optimizer, families: set[Any]) -> str | None:
    is_own = type(optimizer).__module__.startswith("torch.")  # others may contain Adam, or have another factor
    if families and not families & _MUONS:
        return "the updates of Muon change with width in another way than those of the plan: plan with optimizer='muon'"
    if is_own and families - _MUONS:
        return "Muon got groups of a plan that are for Adam: take groups of='muon'"
    if is_own and "muon_out_in" in families:
        return (
            "torch.optim.Muon does not have the factor sqrt(out/in) that the plan is for: plan with optimizer='muon', "
            "for sqrt(max(1,out/in)), or 'muon_max', for sqrt(max(out,in))"
        )
    return None


def _other_factor(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> str | None:
    asked = optimizer.defaults.get("adjust_lr_fn")
    planned = groups[0].get("adjust_lr_fn")
    if asked in (None, planned):
        return None
    return (
        f"adjust_lr_fn={asked!r} has no effect, since the groups are of a plan for {planned!r}: plan with "
        "optimizer='muon' for 'original', with 'muon_max' for 'match_rms_adamw'"
    )


def _erased(groups: list[dict[str, Any]]) -> str | None:
    if any(isinstance(group["lr"], torch.Tensor) and group["lr"].device.type != "cpu" for group in groups):
        return None  # reading them would wait for the device
    first: dict[Any, float] = {}  # of Muon and of Adam beside it, which have rates of their own
    base = [(group.get(FAMILY), float(group["lr"]) / group[FACTOR]) for group in groups]
    if all(math.isclose(x, first.setdefault(name, x), rel_tol=1e-4, abs_tol=1e-30) for name, x in base):
        return None
    rates = ", ".join(f"{float(group['lr']):.3g} (factor {group[FACTOR]:.3g})" for group in groups)
    return (
        f"the learning rates of the groups are {rates}: their ratios are no longer those of the plan. A loop or a "
        "scheduler has set them to one value; multiply group['lr_factor'] by the learning rate instead, or use a "
        "scheduler that multiplies, such as LambdaLR"
    )


def _capped(optimizer: torch.optim.Optimizer) -> str | None:
    if type(optimizer) is not torch.optim.Adafactor:
        return None
    return (
        "torch.optim.Adafactor caps its learning rate at 1/√step, which undoes the factors of the plan: use "
        "widthwise.torch.Adafactor with the same groups"
    )


def _coupled(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> str | None:
    kinds = (torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax)
    if not isinstance(optimizer, kinds) or isinstance(optimizer, torch.optim.AdamW):
        return None
    if not any(group["weight_decay"] and not group.get("decoupled_weight_decay", False) for group in groups):
        return None
    return (
        f"{type(optimizer).__name__} adds weight decay to the gradient, where the factors of the plan do not hold: use "
        "AdamW, or decoupled_weight_decay=True"
    )
