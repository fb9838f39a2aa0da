"""The coordinate check of a PyTorch model: train a few steps at several widths or depths and measure every layer."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from widthwise.coordinates import CoordinateCheck, DepthCheck, checked_widths, judge, judge_depth
from widthwise.coordinates.blocks import Measure, blocks_of, measures_of
from widthwise.coordinates.depth import SizesOf
from widthwise.coordinates.measured import weights_of
from widthwise.torch.capture import TorchMeasurement, TorchUse, capture, measure
from widthwise.torch.model import ModuleBuilder, kept_randomness, seed_all

if TYPE_CHECKING:
    from widthwise.torch.plan import TorchPlan

Loss = Callable[[nn.Module, Any], Tensor]
Make = Callable[["TorchPlan", nn.Module], torch.optim.Optimizer | Sequence[torch.optim.Optimizer]]


def check_plan(
    plan: "TorchPlan",
    loss: Loss,
    batch: Any,
    make: Make,
    *,
    widths: Sequence[int],
    seeds: int,
    steps: int,
    tolerance: float,
    show: bool,
) -> CoordinateCheck:
    """Train and measure; see `TorchPlan.check`."""
    widths = checked_widths(widths, seeds=seeds, steps=steps, tolerance=tolerance)
    trained = _trained_parameters(plan.builder.at(plan.base_width))
    before: list[list[TorchMeasurement]] = []
    after: list[list[TorchMeasurement]] = []
    for width in widths:
        here = plan.at(width)
        pairs = []
        for seed in range(seeds):
            if show:
                print(f"training width {width}, seed {seed + 1} of {seeds}", file=sys.stderr)  # noqa: T201
            pairs.append(_trained(here, loss, batch, make, seed, steps))
        before.append([first for first, _ in pairs])
        after.append([last for _, last in pairs])
    # Experts that no example reached in some run cannot be compared over widths.
    everywhere = set.intersection(*(set(found.paths) for row in after for found in row))
    paths = tuple(path for path in after[0][0].paths if path in everywhere)
    result = judge(
        [[found.only(paths) for found in row] for row in before],
        [[found.only(paths) for found in row] for row in after],
        widths=widths,
        steps=steps,
        tolerance=tolerance,
        roles={parameter.path: parameter.role for parameter in plan.parameters},
        products=tuple(p.path for p in plan.parameters if p.role is not None and p.axes.inputs and p.path in trained),
        exponents=plan.exponents,
        apart=plan.beside_muon,
    )
    if show:
        print(result)  # noqa: T201
    return result


def check_depths(
    plan: "TorchPlan",
    loss: Loss,
    batch: Any,
    make: Make,
    *,
    depths: Sequence[int],
    seeds: int,
    steps: int,
    tolerance: float,
    show: bool,
) -> DepthCheck:
    """Train and measure at several depths; see `TorchPlan.check_depth`."""
    depths = checked_widths(depths, seeds=seeds, steps=steps, tolerance=tolerance, called="depth")
    plans = [plan.at(depth=depth) for depth in depths]
    found: list[list[tuple[SizesOf, SizesOf]]] = []
    for here in plans:
        blocks = blocks_of(here, plans)
        found.append([])
        for seed in range(seeds):
            if show:
                print(f"training depth {here.grown.depth}, seed {seed + 1} of {seeds}", file=sys.stderr)  # noqa: T201
            first, last = _uses(here, loss, batch, make, seed, steps)
            measures = measures_of(here, blocks, list(first))
            found[-1].append((_sizes(measures, first, first), _sizes(measures, first, last)))
    before, after = ([[pair[place] for pair in row] for row in found] for place in (0, 1))
    result = judge_depth(before, after, depths=depths, steps=steps, tolerance=tolerance)
    result = replace(result, multiplied=plan.grown.depth_rule.branch > 0)
    if show:
        print(result)  # noqa: T201
    return result


@torch.no_grad()
def _sizes(measures: Mapping[str, Measure], first: Mapping[str, TorchUse], last: Mapping[str, TorchUse]) -> SizesOf:
    def rms(x: Tensor) -> float:
        return x.double().square().mean().sqrt().item()

    found: dict[str, tuple[float, float]] = {}
    for name, measured in measures.items():
        comparable = [use for use in measured.uses if use in last and not (measured.summed and last[use].routed)]
        if pairs := [(first[use], last[use]) for use in comparable]:
            now, change = [after.output for _, after in pairs], [after.change_since(before) for before, after in pairs]
            found[name] = measured.size(now, rms), measured.size(change, rms)
    return found


def _trained_parameters(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def _trained(
    plan: "TorchPlan", loss: Loss, batch: Any, make: Make, seed: int, steps: int
) -> tuple[TorchMeasurement, TorchMeasurement]:
    first, last = _uses(plan, loss, batch, make, seed, steps)
    return measure(first, first), measure(first, last)


def _uses(
    plan: "TorchPlan", loss: Loss, batch: Any, make: Make, seed: int, steps: int
) -> tuple[dict[str, TorchUse], dict[str, TorchUse]]:
    """Train a model; return the uses of its weights before and after. A table that is not trained never changes."""
    model = plan.init_(plan.builder.at(plan.width, seed))
    trained = _trained_parameters(model)
    seen: ModuleBuilder = replace(plan.builder, example=batch, call=lambda model, *_: loss(model, batch))

    def uses() -> dict[str, TorchUse]:
        found = capture(model, seen)
        return {name: use for name, use in found.items() if use.apply or not trained.isdisjoint(weights_of(name))}

    first = uses()
    made = make(plan, model)
    optimizers = made if isinstance(made, Sequence) else [made]
    with kept_randomness():
        seed_all(seed)
        for _ in range(steps):
            model.zero_grad()
            loss(model, batch).backward()
            for optimizer in optimizers:
                optimizer.step()
    return first, uses()
