"""Build and call a model of any size without its memory: large arrays are shapes only, small ones are real.

PyTorch's meta device and fake tensors hold no data at all, so models that read a number while they are built or called
(`torch.linspace(…).tolist()`, a mask of token ids) fail on them. Here only what is large, and what is computed from it,
has no data. A model is built on the meta device, where modules can still be converted (`.to(torch.bfloat16)`), and
called with fake tensors, which pretend to be on a device that can compute.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

LARGE = 1 << 16
"""The number of elements from which on an array is a shape only."""


class Building(TorchDispatchMode):
    """While it is active, large tensors are created on the meta device, and what is computed from them stays there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat, tree = pytree.tree_flatten((args, kwargs))
        if any(_is_tensor(x) and x.is_meta for x in flat):
            return _on_meta(func, flat, tree, args)
        if "device" in kwargs and not any(map(_is_tensor, flat)):
            result = func(*args, **{**kwargs, "device": torch.device("meta"), "pin_memory": False})
            if _is_tensor(result) and result.numel() >= LARGE:
                return result
        return func(*args, **kwargs)


def _on_meta(func: Any, flat: list[Any], tree: Any, args: Any) -> Any:
    if func._schema.name == "aten::_local_scalar_dense":
        # Initializers that draw again until all is well (`trunc_normal_`) find that all is well.
        return torch.zeros((), dtype=args[0].dtype).item()
    moved = [x.to("meta") if _is_tensor(x) else x for x in flat]
    args_, kwargs = pytree.tree_unflatten(moved, tree)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("meta")}
    result = func(*args_, **kwargs)
    return args[0] if _writes(func, args) else result


class Shapes:
    """Runs operations of PyTorch on shapes, where they are large."""

    def __init__(self) -> None:
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)

    def of(self, model: nn.Module) -> nn.Module:
        """Let the parameters and buffers of a model that was built on the meta device pretend to be on the CPU."""
        known: dict[Tensor, Tensor] = {}
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.is_meta:
                    if parameter not in known:
                        known[parameter] = nn.Parameter(self._faked(parameter.data), parameter.requires_grad)
                    module._parameters[name] = known[parameter]  # pyright: ignore[reportArgumentType]
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.is_meta:
                    module._buffers[name] = self._faked(buffer)
        return model

    def run(self, operation: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation."""
        flat, tree = pytree.tree_flatten((args, kwargs))
        tensors = [x for x in flat if _is_tensor(x)]
        if any(isinstance(x, FakeTensor) or x.is_meta for x in tensors):
            return self._run_fake(operation, flat, tree, args)
        if not tensors:
            with self._fake:
                result = operation(*args, **kwargs)
            if _is_tensor(result) and result.numel() >= LARGE:
                return result
        return operation(*args, **kwargs)

    def _run_fake(self, operation: Any, flat: list[Any], tree: Any, args: Any) -> Any:
        fake = [self._faked(x) if _is_tensor(x) else x for x in flat]
        grouped = "grouped_mm" in operation._schema.name  # whose shapes PyTorch computes for bfloat16 only
        with self._fake:
            if grouped:
                fake = [x.bfloat16() if _is_tensor(x) and x.is_floating_point() else x for x in fake]
            args_, kwargs = pytree.tree_unflatten(fake, tree)
            result = operation(*args_, **kwargs)
            result = result.to(args[0].dtype) if grouped else result
        return args[0] if _writes(operation, args) else result

    def _faked(self, x: Tensor) -> Tensor:
        if isinstance(x, FakeTensor):
            return x
        if x.is_meta:
            return FakeTensor(self._fake, x, torch.device("cpu"))
        return self._fake.from_tensor(x)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _writes(operation: Any, args: Any) -> bool:
    """Return whether an operation writes to its first argument, and returns it."""
    return operation._schema.name.endswith("_") and bool(args) and _is_tensor(args[0])
