"""The factor on the logits of a tied embedding that no norm in front of the readout can take: a hook."""

import warnings
from dataclasses import dataclass

import torch
from torch import nn

from widthwise.scaling import Parameter, Part
from widthwise.scaling.factors import for_tied
from widthwise.theory import Assessment, without_multipliers


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledHead:
    """A readout that is tied to the embedding, and the factor on what it acts on.

    Attributes:
        module: The name of the module.
        factor: The factor.
    """

    module: str
    factor: float

    def attach(self, model: nn.Module) -> None:
        """Multiply the inputs of the readout by the factor from now on. Attaching twice is attaching once."""
        head = model.get_submodule(self.module)
        hooks = head._forward_pre_hooks
        if any(isinstance(hook, _Scale) for hook in hooks.values()):
            return
        head.register_forward_pre_hook(_Scale(self.factor))
        warnings.warn(
            f"{self.module!r} shares its weight with the embedding, and no norm in front of it can take the factor of "
            f"its logits. A hook multiplies its inputs by {self.factor:.4g}. Hooks are not saved: call "
            "plan.head.attach(model) again after loading, and save_pretrained loses the factor",
            stacklevel=3,
        )


@dataclass(frozen=True, slots=True)
class _Scale:
    factor: float

    def __call__(self, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (inputs[0] * self.factor, *inputs[1:])


def head_name(model: nn.Module, path: str) -> str | None:
    """Return the name of the linear module that has a parameter as its weight; None if there is none."""
    weight = model.get_parameter(path)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module.weight is weight:
            return name
    return None


def head_of(module: str | None, parameters: tuple[Parameter, ...], case: Assessment) -> ScaledHead | None:
    """Return the readout of a tied embedding with the factor that its logits need."""
    if module is None:
        return None
    (tied,) = (parameter for parameter in parameters if parameter.part is Part.TIED)
    exponent = without_multipliers(for_tied(case)).parameterization.readout.b
    return ScaledHead(module=module, factor=float(tied.grows_out) ** float(-exponent))
