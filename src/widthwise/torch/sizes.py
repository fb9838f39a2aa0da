"""The initial size of parameters: their root mean square, measured and set."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from widthwise.scaling import Parameter
from widthwise.scaling.depth import stretched
from widthwise.torch.model import named


def measured_sizes(model: nn.Module, parameters: Sequence[Parameter]) -> Mapping[str, torch.Tensor]:
    """Return the root mean square of every parameter, layer by layer, in a model that may have fewer of them."""
    found = named(model)
    return {p.path: stretched(_rms(found[p.origin or p.path].detach().double().cpu(), p), p) for p in parameters}


@torch.no_grad()
def set_size(parameter: nn.Parameter, size: torch.Tensor, about: Parameter) -> None:
    """Multiply a parameter in place, so that it has this root mean square; zeros stay zero."""
    data = parameter.detach()
    now: Any = _rms(data.to(torch.promote_types(data.dtype, torch.float32)), about)
    now = now.full_tensor() if _is_sharded(now) else now
    now = now.double().cpu()
    factor = torch.where(now > 0, size / torch.where(now > 0, now, 1), 1)
    # What is right up to rounding does not change, so that setting a size twice is setting it once.
    rounding = max(torch.finfo(data.dtype).eps, 4 * torch.finfo(torch.promote_types(data.dtype, torch.float32)).eps)
    factor = torch.where((factor - 1).abs() < rounding, 1, factor)
    if factor.numel() == 1:
        if factor.item() != 1:
            parameter.mul_(factor.item())
        return
    parameter.copy_(parameter * _like(factor, parameter))


def check_shape(about: Parameter, parameter: nn.Parameter, width: int) -> None:
    """Raise if a parameter does not have the shape that was planned."""
    if tuple(parameter.shape) != about.shape:
        raise ValueError(
            f"{about.path!r} has shape {tuple(parameter.shape)}: the plan is for width {width}, where it has "
            f"{about.shape}"
        )


def check_has_values(about: Parameter, parameter: nn.Parameter) -> None:
    """Raise if a parameter has no values that could be brought to a size."""
    if parameter.is_meta:
        raise ValueError(f"{about.path!r} is on the meta device: initialize the model before planned sizes are set")


def _rms(x: torch.Tensor, about: Parameter) -> torch.Tensor:
    over = (*about.axes.inputs, *about.axes.outputs)
    return x.square().mean(dim=over, keepdim=True).sqrt() if over else x.abs()


def _is_sharded(x: Any) -> bool:
    return hasattr(x, "full_tensor")


def _like(factor: torch.Tensor, parameter: Any) -> torch.Tensor:
    """Return a factor on the device, or the devices, of a parameter."""
    wide = torch.promote_types(parameter.dtype, torch.float32)
    factor = factor.to(parameter.device, wide)
    if not _is_sharded(parameter):
        return factor
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(factor, parameter.device_mesh, [Replicate()] * parameter.device_mesh.ndim)
