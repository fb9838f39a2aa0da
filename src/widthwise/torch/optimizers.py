"""Optimizers that PyTorch lacks: Adam-atan2, and an Adafactor whose learning rate is the one it is given.

`torch.optim.Adafactor` caps its learning rate at 1/√step. Where groups have different rates, the larger ones are capped
first, so the ratios that a plan prescribes disappear without a sign.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from widthwise.torch.groups import ADAFACTOR_EPSILON, FLOOR


class AdamAtan2(torch.optim.Optimizer):
    """Adam with a·arctan2(m, b·√v) instead of m / (√v + ε): scale-invariant, bounded, and without epsilon."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        *,
        a: float = 1.0,
        b: float = 1.0,
    ) -> None:
        """Prepare the optimizer.

        Args:
            params: Parameters, or the groups of a plan for Adam.
            lr: The learning rate of parameters that are not in groups.
            betas: The decay of the two moments.
            weight_decay: A step removes lr · weight_decay of a weight, as in AdamW.
            a: The factor on the angle.
            b: The factor inside the angle.
        """
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "a": a, "b": b})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step; return what the closure returns."""
        loss = _called(closure)
        for group, p, state in _with_gradients(self):
            if not state:
                state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            state["step"] += 1
            (b1, b2), count = group["betas"], state["step"]
            state["m"].lerp_(p.grad, 1 - b1)
            state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            m, v = state["m"] / (1 - b1**count), state["v"] / (1 - b2**count)
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(torch.atan2(m, group["b"] * v.sqrt()), alpha=-group["lr"] * group["a"])
        return loss


class Adafactor(torch.optim.Optimizer):
    """Adafactor without momentum, with parameter scaling and update clipping; the learning rate is relative.

    One factor of the second moment averages over all outputs of a parameter, the other over all inputs, so a parameter
    is factored in the same way at every width. Stacked experts or layers are kept apart.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        *,
        decay: float = 0.8,
        eps: float = ADAFACTOR_EPSILON,
        clip: float = 1.0,
        floor: float = FLOOR,
        weight_decay: float = 0.0,
    ) -> None:
        """Prepare the optimizer.

        Args:
            params: Parameters, or the groups of a plan for Adafactor.
            lr: The learning rate: the relative change per step.
            decay: The decay exponent; the second moment decays by 1 − t^-decay at step t.
            eps: Added to the squared gradient.
            clip: The largest root mean square of an update before learning rate and scaling.
            floor: The smallest parameter size that scaling uses.
            weight_decay: A step removes lr · weight_decay of a weight, as in AdamW.
        """
        options = {"lr": lr, "decay": decay, "eps": eps, "clip": clip, "floor": floor, "weight_decay": weight_decay}
        super().__init__(params, options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step; return what the closure returns."""
        loss = _called(closure)
        for group, p, state in _with_gradients(self):
            inputs, outputs = _axes(group, p)
            factored = bool(inputs and outputs)
            if not state:
                state["step"] = 0
                shapes = {"row": outputs, "column": inputs} if factored else {"full": ()}
                state.update({name: p.new_zeros(_averaged(p, over)) for name, over in shapes.items()})
            state["step"] += 1
            keep = 1.0 - state["step"] ** -group["decay"]
            square = p.grad.square() + group["eps"]
            for name, over in (("row", outputs), ("column", inputs), ("full", ())):
                if name in state:
                    state[name].lerp_(square.mean(dim=over, keepdim=True) if over else square, 1 - keep)
            if factored:
                row = state["row"]
                mean = row.mean(dim=inputs, keepdim=True)
                update = p.grad * _inverse_root(row / mean.where(mean > 0, 1)) * _inverse_root(state["column"])
            else:
                update = p.grad * _inverse_root(state["full"])
            every = inputs + outputs
            update /= (_rms(update, every) / group["clip"]).clamp(min=1.0)
            update *= _rms(p, every).clamp(min=group["floor"])
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(update, alpha=-group["lr"])
        return loss


def _called(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _with_gradients(optimizer: torch.optim.Optimizer) -> Iterable[tuple[dict[str, Any], Any, dict[str, Any]]]:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                yield group, p, optimizer.state[p]


def _axes(group: dict[str, Any], p: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of a parameter that are inputs and outputs: those of a plan, else those of PyTorch's layers."""
    known = group.get("axes")
    if known is None:
        return tuple(range(1, p.ndim)), tuple(range(min(p.ndim, 1)))
    inputs, outputs = next(axes for q, axes in zip(group["params"], known, strict=True) if q is p)
    return tuple(inputs), tuple(outputs)


def _averaged(p: Tensor, over: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in over else size for axis, size in enumerate(p.shape))


def _rms(x: Tensor, over: tuple[int, ...]) -> Tensor:
    return x.square().mean(dim=over, keepdim=True).sqrt() if over else x.abs()


def _inverse_root(moment: Tensor) -> Tensor:
    """Return 1/√x, or 1 for x = 0: no gradient so far, and an epsilon that underflows."""
    return moment.where(moment > 0, 1).rsqrt()
