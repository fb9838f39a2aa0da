"""Capture what acts in each layer of any PyTorch model, and measure its size and alignment.

Layers are found as roles are, by tracing one forward pass. A product is bilinear in its weight W and its input z, so
the terms of its change, ΔW z⁰, W⁰Δz and ΔW Δz, are the same product with other factors.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from widthwise.coordinates import FIELDS
from widthwise.torch.model import ModuleBuilder, kept_randomness, seed_all
from widthwise.torch.trace import trace

REPEATED = 2
"""A weight that acts more often than this in one pass is recurrent: its last use has seen all the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchUse:
    """A use of a weight in a forward pass.

    Attributes:
        apply: The product, from input and weight; None for a lookup.
        inputs: The input of a product, or the rows that were looked up.
        weight: The weight as it acts; None for a lookup.
        fan_in: The number of terms of the sum; 0 for a lookup.
        routed: Whether which examples reach the weight depends on values, so that rows cannot be compared.
    """

    apply: Callable[[Tensor, Tensor], Tensor] | None
    inputs: Tensor
    weight: Tensor | None
    fan_in: int
    routed: bool = False

    @property
    def output(self) -> Tensor:
        """The immediate output."""
        if self.apply is None or self.weight is None:
            return self.inputs
        return self.apply(self.inputs, self.weight)

    def inputs_before(self, before: "TorchUse") -> Tensor:
        """Return the inputs of an earlier pass; where its rows are others, those of now."""
        others = self.routed or before.inputs.shape != self.inputs.shape
        return self.inputs if others else before.inputs

    def change_since(self, before: "TorchUse") -> Tensor:
        """Return by how much the output has changed; where rows are others, what the weight has changed of it."""
        return self.output - replace(before, inputs=self.inputs_before(before)).output


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchMeasurement:
    """The measurements of all layers at one step.

    Attributes:
        paths: The weights in the order of the forward pass.
        values: An array over layers for every field of `widthwise.coordinates.FIELDS`.
    """

    paths: tuple[str, ...]
    values: Any

    def only(self, paths: tuple[str, ...]) -> "TorchMeasurement":
        """Return the measurements of some layers."""
        at = [self.paths.index(path) for path in paths]
        columns = {name: [getattr(self.values, name)[i] for i in at] for name in FIELDS}
        return TorchMeasurement(paths=paths, values=SimpleNamespace(**columns))


def capture(model: nn.Module, builder: ModuleBuilder) -> dict[str, TorchUse]:
    """Call a model; return every use of its weights in products and lookups, by name, in order.

    A weight that is used twice is listed as `path` and `path#2`, and weights that are joined before they act as
    `path+path`.
    """
    with kept_randomness():
        seed_all(0)  # dropout is the same in every pass
        traced = trace(model, builder, keep=True)
    entries, kept = traced.recorder.tape.entries, traced.recorder.kept
    assert kept is not None
    at: dict[int, list[str]] = {}
    for (key, path), use in traced.found.uses.items():
        if use.kind != "elementwise":
            at.setdefault(key[0], []).append(path)
    found: list[tuple[str, TorchUse]] = []
    for index, paths in at.items():
        entry = entries[index]
        if entry.call in kept:
            use = _use(entry, kept[entry.call], set(paths), traced.operands[index])
            if use is not None:
                found.append(("+".join(paths), use))
    return _numbered(found)


def _numbered(found: list[tuple[str, TorchUse]]) -> dict[str, TorchUse]:
    """Name the uses of a weight that is used several times; of a recurrent one, keep the last."""
    products = Counter(name for name, use in found if use.apply is not None)
    last = {name: use for name, use in found if use.apply is not None}
    seen: Counter[str] = Counter()
    named: dict[str, TorchUse] = {}
    for name, use in found:
        if products[name] > REPEATED:
            named[name] = last[name]
            continue
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name}#{seen[name]}"] = use
    return named


def _use(entry: Any, kept: tuple[Any, Any], paths: set[str], given: list[Any]) -> TorchUse | None:
    factors, result = kept
    if entry.primitive.name == "gather":
        return TorchUse(apply=None, inputs=result, weight=None, fan_in=0)
    if factors is None or entry.primitive.name not in ("dot_general", "conv_general_dilated"):
        return None
    a, b, product = factors
    side = next((i for i in (1, 0) if paths & {view.path for view in given[i].views}), None)
    if side is None:
        return None
    weight, inputs = (b, a) if side else (a, b)
    if entry.primitive.name == "dot_general":
        contracted, batched = entry.params["dimension_numbers"]
        over = contracted[side]
        routed = len(batched[0]) != len(batched[1])
    else:
        over, routed = entry.params["dimension_numbers"][1][1:], False
    stack = any(view.stack for view in given[side].views if view.path in paths)
    return TorchUse(
        apply=product if side else lambda z, w: product(w, z),
        inputs=inputs,
        weight=weight,
        fan_in=math.prod(weight.shape[axis] for axis in over),
        routed=routed or stack,
    )


def measure(before: Mapping[str, TorchUse], after: Mapping[str, TorchUse]) -> TorchMeasurement:
    """Measure every layer that acts in both passes."""
    paths = tuple(path for path in after if path in before)
    rows = [_layer(before[path], after[path]) for path in paths]
    columns = {name: [row[name] for row in rows] for name in FIELDS}
    return TorchMeasurement(paths=paths, values=SimpleNamespace(**columns))


@torch.no_grad()
def _layer(before: TorchUse, after: TorchUse) -> dict[str, float]:
    missing = dict.fromkeys(FIELDS, math.nan)
    if after.apply is None or after.weight is None or before.weight is None:
        sizes = {"output": _rms(after.inputs), "output_change": _rms(after.inputs.float() - before.inputs.float())}
        return {**missing, **sizes, "fan_in": 0.0}
    f = after.apply
    w0, w, z = before.weight, after.weight, after.inputs
    z0 = after.inputs_before(before)
    dw, dz = w - w0, z - z0
    output, updated, inherited, joint = f(z, w), f(z0, dw), f(dz, w0), f(dz, dw)
    return {
        "ratio": _log_ratio(w, z, output, after.fan_in),
        "alpha": _log_ratio(dw, z0, updated, after.fan_in),
        "omega": _log_ratio(w0, dz, inherited, after.fan_in),
        "u": _log_ratio(dw, dz, joint, after.fan_in),
        "output": _rms(output),
        "output_change": _rms(updated + inherited + joint),
        "input_change": _rms(dz),
        "updated": _rms(updated),
        "inherited": _rms(inherited),
        "joint": _rms(joint),
        "fan_in": float(after.fan_in),
    }


def _log_ratio(weight: Tensor, inputs: Tensor, product: Tensor, fan_in: int) -> float:
    sizes, size = _rms(weight) * _rms(inputs), _rms(product)
    if not (sizes > 0 and size > 0 and fan_in > 1):
        return math.nan
    return math.log(size / sizes) / math.log(fan_in)


def _rms(x: Tensor) -> float:
    return x.double().square().mean().sqrt().item() if x.numel() else math.nan
