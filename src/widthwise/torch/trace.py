"""Trace one forward pass of a PyTorch model, and find out how its parameters are used.

Hooks on modules see modules only. They miss weights that are used without one, such as stacked experts, attention
written with raw parameters, and heads that multiply by an embedding. So the trace is taken below the modules, of the
operations that PyTorch dispatches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from widthwise.scaling import ChangedNumber, Traced, Use
from widthwise.scaling.found import Found, Value
from widthwise.torch.model import ModuleBuilder, named
from widthwise.torch.record import AttentionScale, Call, Recorder, plain_operations
from widthwise.torch.shapes import Shapes
from widthwise.torch.translate import ALWAYS


@dataclass(frozen=True, kw_only=True)
class TorchTrace:
    """A traced forward pass.

    Attributes:
        recorder: Everything that was recorded.
        found: The uses of parameters.
        operands: What is known of the operands of every operation.
    """

    recorder: Recorder
    found: Found
    operands: list[list[Value]]

    def traced(self, shapes: Mapping[str, tuple[int, ...]]) -> Traced:
        """Return the uses of parameters of these shapes."""
        return Traced.of_walk(shapes, self.found)

    def own_numbers(self) -> dict[int, Call]:
        """Return the calls with numbers of the model's own, by index: not sums or losses, which come from examples."""
        computed = {
            slot
            for entry, given in zip(self.recorder.tape.entries, self.operands, strict=True)
            for slot, value in zip(entry.invars, given, strict=True)
            if value.dynamic or value.views
        }
        found: dict[int, Call] = {}
        for index, call in enumerate(self.recorder.calls):
            pairs = zip(call.numbers, call.slots, strict=True)
            numbers = tuple(number for number, slot in pairs if slot not in computed)
            if numbers:
                found[index] = replace(call, numbers=numbers)
        return found


def trace(model: nn.Module, builder: ModuleBuilder, *, shapes: Shapes | None = None, keep: bool = False) -> TorchTrace:
    """Trace one forward pass.

    Args:
        model: The model.
        builder: How to call it.
        shapes: Computes with shapes where arrays are large; None to compute everything.
        keep: Whether to keep the tensors of every operation.
    """
    parameters = named(model)
    recorder = Recorder(keep=keep, shapes=shapes)
    known: dict[Any, Value] = {ALWAYS: Value(dynamic=True)}
    for path, parameter in parameters.items():
        known[recorder.slot(parameter)] = Value.of_parameter(path, parameter.shape)
    examples = [x for x in pytree.tree_leaves(builder.example) if isinstance(x, torch.Tensor)]
    for x in examples:
        known[recorder.slot(x)] = Value(dynamic=True)
    for buffer in model.buffers():  # token ids and positions that a model keeps are examples too
        if not buffer.is_floating_point():
            known.setdefault(recorder.slot(buffer), Value(dynamic=True))
    # Some models differentiate in their forward pass.
    with torch.enable_grad(), plain_operations(), AttentionScale(recorder), recorder:
        outputs = builder.run(model)
    recorder.tape.results += [recorder.slot(x) for x in _tensors_of(outputs)]
    found, operands = recorder.tape.walk(known)
    return TorchTrace(recorder=recorder, found=found, operands=operands)


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters by name."""
    return {path: tuple(parameter.shape) for path, parameter in named(model).items()}


def enlarged(base: Traced, shapes: Mapping[str, tuple[int, ...]]) -> Traced:
    """Return the uses of a larger model from those at the base width, for a model that cannot be traced as shapes.

    A model that decides by the values of activations what to compute, as routers do, can only be traced for real. The
    growth of a use is then that of its axes.
    """
    uses = [_enlarged(use, base.shapes[use.path], shapes.get(use.path, ())) for use in base.uses or ()]
    return Traced(shapes=shapes, uses=uses, unseen=base.unseen, branches=base.branches)


def _enlarged(use: Use, base: tuple[int, ...], shape: tuple[int, ...]) -> Use:
    if len(base) != len(shape):
        return use

    def grown(number: int, axes: Sequence[int]) -> int:
        return int(number * Fraction(prod(shape[axis] for axis in axes), prod(base[axis] for axis in axes)))

    fan_in = use.fan_in if use.kind == "lookup" else grown(use.fan_in, use.axes.inputs)
    return replace(use, fan_in=fan_in, fan_out=grown(use.fan_out, use.axes.outputs))


def changed_numbers(base: TorchTrace, here: TorchTrace) -> tuple[ChangedNumber, ...]:
    """Return the numbers that differ between the traces of a model at two widths, each once."""
    before, after = (x.own_numbers() for x in (base, here))
    if [call.name for call in before.values()] != [call.name for call in after.values()]:
        return ()  # the model does different things at the two widths
    matters = {
        entry.call
        for entry, given in zip(here.recorder.tape.entries, here.operands, strict=True)
        if any(value.dynamic or value.views for value in given)
    }
    found = {
        ChangedNumber(operation=new.name, base=x, here=y, where=new.where): None
        for old, (at, new) in zip(before.values(), after.items(), strict=True)
        if at in matters
        for x, y in zip(old.numbers, new.numbers, strict=False)
        if x != y and not (x != x and y != y)
    }
    return tuple(found)


def _tensors_of(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors in what a model returns: a tensor, a tuple, a dict, or an object of Hugging Face."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, list | tuple):
        return [tensor for x in outputs for tensor in _tensors_of(x)]
    return [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
