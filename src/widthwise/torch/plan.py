"""The front door for PyTorch: one call that plans how a model of your own changes with its width.

    plan = ww.torch.plan(build, width=4096, base_width=256, example=tokens)
    model = plan.init_(build(4096))
    optimizer = torch.optim.AdamW(plan.groups(model, lr=3e-3, weight_decay=0.1))    # 3e-3 was tuned at width 256

All factors are relative to the base width, where the plan is the plain model. Nothing is multiplied when the model is
called: initialization, learning rate, epsilon and decay of each parameter carry the parameterization. So the model can
be compiled, sharded, saved and loaded as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from widthwise.coordinates import SEEDS, STEPS, TOLERANCE, CoordinateCheck, DepthCheck
from widthwise.scaling import (
    NO_RULES,
    ChangedNumber,
    Parameter,
    Part,
    Rules,
    Traced,
    find_factors,
    find_parameters,
)
from widthwise.scaling.attention import Attention, check_attention, grown_sums
from widthwise.scaling.depth import grow_factors, place_in_blocks
from widthwise.scaling.grown import Grown
from widthwise.scaling.orthogonal import as_stored
from widthwise.scaling.request import (
    at_base_width,
    check_takes_depth,
    check_widths,
    find_exponents,
    refuse_inner_readouts,
)
from widthwise.theory import (
    COMPLETEP,
    INDEPENDENT,
    Alignment,
    Assessment,
    AxisRule,
    DecayRule,
    DepthRule,
    Exact,
    Family,
    Parameterization,
    read_decay_rule,
)
from widthwise.torch.applied import Applied
from widthwise.torch.check import Make, check_depths, check_plan
from widthwise.torch.head import head_name, head_of
from widthwise.torch.model import ModuleBuilder
from widthwise.torch.shapes import Shapes
from widthwise.torch.trace import TorchTrace, changed_numbers, enlarged, shapes_of, trace


@dataclass(frozen=True, kw_only=True)
class TorchPlan(Applied):
    """What changes for every parameter of a model between the base width and another width."""

    @property
    def is_traced(self) -> bool:
        """Whether the forward pass was traced."""
        return self.builder.has_example

    def check(
        self,
        loss: Callable[[nn.Module, Any], torch.Tensor],
        batch: Any,
        *,
        widths: Sequence[int] | None = None,
        optimizer: "Make | None" = None,
        learning_rate: float | None = None,
        seeds: int = SEEDS,
        steps: int = STEPS,
        tolerance: float = TOLERANCE,
        show: bool = True,
    ) -> CoordinateCheck:
        """Train the model for a few steps at several widths, and check that sizes do not change with width.

        Args:
            loss: The loss, from the model and the batch.
            batch: Examples with targets, used at every step.
            widths: Two or more widths; by default one, two and four times the base width.
            optimizer: Makes the optimizer from a plan and a model, e.g.
                `lambda plan, model: torch.optim.AdamW(plan.groups(model, lr=1e-3))`; or several, as a list.
            learning_rate: The learning rate of the default optimizer of the plan's family.
            seeds: The number of runs per width; two or more for intervals.
            steps: The number of training steps.
            tolerance: The largest allowed slope of log size against log width.
            show: Whether to print progress, table and verdict.

        Returns:
            The result for all layers; `passed` is the verdict.
        """
        make = optimizer or (lambda plan, model: plan._optimizers(model, learning_rate))
        widths = tuple(widths or (self.base_width * times for times in (1, 2, 4)))
        return check_plan(
            self, loss, batch, make, widths=widths, seeds=seeds, steps=steps, tolerance=tolerance, show=show
        )

    def check_depth(
        self,
        loss: Callable[[nn.Module, Any], torch.Tensor],
        batch: Any,
        *,
        depths: Sequence[int],
        optimizer: "Make | None" = None,
        learning_rate: float | None = None,
        seeds: int = SEEDS,
        steps: int = STEPS,
        tolerance: float = TOLERANCE,
        show: bool = True,
    ) -> DepthCheck:
        """Train the model for a few steps at several depths, and check that sizes do not change with depth.

        Outputs are measured over all blocks together, and what they add to the stream in total.

        Args:
            loss: As in `check`.
            batch: As in `check`.
            depths: Two or more depths, at the plan's width.
            optimizer: As in `check`.
            learning_rate: As in `check`.
            seeds: The number of runs per depth.
            steps: The number of training steps.
            tolerance: The largest allowed slope of log size against log depth.
            show: Whether to print progress, table and verdict.
        """
        make = optimizer or (lambda plan, model: plan._optimizers(model, learning_rate))
        return check_depths(
            self, loss, batch, make, depths=depths, seeds=seeds, steps=steps, tolerance=tolerance, show=show
        )

    def at(
        self,
        width: int | None = None,
        *,
        depth: int | None = None,
        batch: float | None = None,
        tokens: float | None = None,
    ) -> "TorchPlan":
        """Return the plan of the same model at another width, depth, batch size or number of tokens."""
        return plan(
            self.builder.build,
            width=self.width if width is None else width,
            base_width=self.base_width,
            **self.grown.at(depth=depth, batch=batch, tokens=tokens).options,
            **self.options,
        )


def plan(
    build: Callable[[int], nn.Module],
    *,
    width: int,
    base_width: int,
    example: Any = (),
    call: Callable[..., Any] | None = None,
    parameterization: Parameterization | str = "mup",
    optimizer: Family | str = "adam",
    alignment: Alignment | str = "full",
    exponents: Assessment | None = None,
    rules: Rules = NO_RULES,
    headless: bool = False,
    scaled_logits: bool = False,
    attention: Attention | None = None,
    decay_rule: DecayRule | str = INDEPENDENT,
    depth: int | None = None,
    base_depth: int | None = None,
    depth_rule: DepthRule | Exact = COMPLETEP,
    batch: float | None = None,
    base_batch: float | None = None,
    batch_rule: AxisRule | Exact = "constant",
    tokens: float | None = None,
    base_tokens: float | None = None,
    token_rule: AxisRule | Exact = "constant",
) -> TorchPlan:
    """Plan how a model changes between the base width and another width, and with depth, batch size and tokens.

    One forward pass of the base model is traced, so the role of every parameter comes from how it is used. At the other
    width only shapes are computed, and nothing large is allocated.

    Args:
        build: A function of the width that returns your model, a `torch.nn.Module`.
        width: The width of the model to train.
        base_width: The width at which its learning rate was tuned.
        example: Arguments for a call of the model: a tensor, a tuple, or a dict of keyword arguments.
        call: How to call the model, if not as `model(*example)`: a function of the model and the example.
        parameterization: "mup", "standard", "ntk", "mean_field", or a `Parameterization`. Without multipliers, standard
            and NTK are the same, and so are muP and mean-field.
        optimizer: The optimizer, such as "adamw", "sgd", "adafactor", "lion", "muon" (with Adam), or a family.
        alignment: "full", "none", "tensor_programs", or an `Alignment`.
        exponents: Exponents from `solve` or `check`, instead of the three above.
        rules: Roles and axes of particular parameters, by name. Rules take precedence over what is traced.
        headless: Whether the model has no readout on purpose.
        scaled_logits: Whether the model itself multiplies the logits of a tied embedding by base_width / width.
        attention: "1/d" for a model that divides attention scores by √d, with heads whose size d grows: a factor of
            (d / d_base)^-1/2 then goes into the parameters that make queries. By default, the model is left as it is.
        decay_rule: How weight decay changes with width: "independent" (a step removes the same part of a weight at
            every width), "coupled", "sqrt", "inverse", or a `DecayRule`. docs/theory.md compares them.
        depth: The depth of the model to train, if it differs: `build` is then called as `build(width, depth=depth)`.
        base_depth: The depth at which its learning rate was tuned.
        depth_rule: What changes with depth: "completep" (residual branches fall as 1/depth), "sqrt" (as 1/√depth),
            "constant" (nothing), the exponent of branches such as "3/4", or a `DepthRule`.
        batch: The batch size of the training run.
        base_batch: The batch size at which its learning rate was tuned.
        batch_rule: What changes with the batch size: "constant" (nothing), "sqrt", "sde", "sde2", "timescale", "scion",
            the exponent of the learning rate, or an `AxisRule`. docs/theory.md has their sources.
        tokens: The number of tokens, or of examples, of the training run.
        base_tokens: The number with which its learning rate was tuned.
        token_rule: What changes with the number of tokens: "constant", "horizon", "timescale", "scion", the exponent of
            the learning rate, or an `AxisRule`.

    >>> import torch
    >>> from torch import nn
    >>> import widthwise as ww
    >>> def build(width):
    ...     layers = nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    ...     return nn.Sequential(*layers)
    >>> plan = ww.torch.plan(build, width=1024, base_width=256, example=torch.ones(4, 8))
    >>> print(plan)
    path      layers  shape      role       fan-in  init ×  learning rate ×  epsilon ×
    ──────────────────────────────────────────────────────────────────────────────────
    0.weight       1  1024×8     embedding       8       1                1       0.25
    *.bias         2  1024       embedding       –       1                1       0.25
    2.weight       1  1024×1024  hidden       1024     0.5             0.25       0.25
    4.weight       1  1×1024     readout      1024    0.25             0.25          1
    4.bias         1  1          unscaled        –       1                1          1
    """
    check_widths(width=width, base_width=base_width)
    check_attention(attention)
    if isinstance(build, nn.Module):
        raise ValueError("build is a model: expected a function that returns one for any width")
    check_takes_depth(build, depth)
    exponents = find_exponents(parameterization, optimizer, alignment, exponents)
    decay_rule = read_decay_rule(decay_rule)
    grown = Grown.read(
        depth=depth,
        base_depth=base_depth,
        depth_rule=depth_rule,
        batch=batch,
        base_batch=base_batch,
        batch_rule=batch_rule,
        tokens=tokens,
        base_tokens=base_tokens,
        token_rule=token_rule,
    )
    builder = ModuleBuilder(build=build, example=example, call=call, depth=depth)
    # Roles are found by comparing two widths, and the width may be the base width.
    other = width if width != base_width else 2 * base_width
    sizes, base, numbers = _compared(builder, other, base_width, real=grown.deepens == 1)
    head = None
    asked: dict[str, Any] = {"rules": rules, "headless": headless, "attention": attention}
    find: dict[str, Any] = {**asked, "only_matrices": True}  # as torch.optim.Muon does
    try:
        parameters = find_parameters(sizes, base, scaled_logits=scaled_logits, **find)
    except ValueError as error:
        parameters, head = _with_hook(builder, base_width, sizes, base, error, scaled_logits=scaled_logits, **find)
    if width == base_width:
        parameters = at_base_width(parameters)
    refuse_inner_readouts(parameters, exponents.family)
    if grown.deepens != 1:
        parameters = place_in_blocks(parameters, base, _traced_at(builder.deep(base_depth), base_width)[0], grown)
    factors = find_factors(parameters, exponents, decay_rule=decay_rule, sides=as_stored)
    return TorchPlan(
        builder=builder,
        width=width,
        base_width=base_width,
        exponents=exponents,
        parameters=parameters,
        factors=grow_factors(factors, parameters, grown, exponents.family, coupled=decay_rule.coupled),
        numbers=numbers,
        sums=() if width == base_width else grown_sums(sizes.meetings, base.meetings),
        decay_rule=decay_rule,
        grown=grown,
        head=head_of(head, parameters, exponents),
        options={
            "example": example,
            "call": call,
            "exponents": exponents,
            "scaled_logits": scaled_logits,
            "decay_rule": decay_rule,
            **asked,
        },
    )


def _compared(
    builder: ModuleBuilder, width: int, base_width: int, *, real: bool
) -> tuple[Traced, Traced, tuple[ChangedNumber, ...]]:
    """Return the parameters and their uses at a width and at the base width, and the numbers that differ.

    Args:
        builder: How to build and call the model.
        width: The width.
        base_width: The base width.
        real: Whether the model at the base width is small, so that it can be built for real.
    """
    base, base_trace = (None if real else _as_shapes(builder, base_width)) or _traced_at(builder, base_width)
    here = _as_shapes(builder, width)
    if here is None:  # what is computed depends on values, as in a mixture of experts
        return enlarged(base, shapes_of(builder.shapes_at(width, Shapes()))), base, ()
    numbers = changed_numbers(base_trace, here[1]) if base_trace is not None and here[1] is not None else ()
    return here[0], base, numbers


def _traced_at(builder: ModuleBuilder, width: int) -> tuple[Traced, TorchTrace | None]:
    """Build and trace a model; without an example, there is no trace."""
    model = builder.at(width)
    found = trace(model, builder) if builder.has_example else None
    return _about(shapes_of(model), found), found


def _as_shapes(builder: ModuleBuilder, width: int) -> tuple[Traced, TorchTrace | None] | None:
    """Trace a model without its memory; None if it can only be traced for real."""
    shapes = Shapes()
    model = builder.shapes_at(width, shapes)
    try:
        found = trace(model, builder, shapes=shapes) if builder.has_example else None
    except Exception:  # whatever fails without values is tried with them, and fails there if it is at fault
        return None
    return _about(shapes_of(model), found), found


def _about(shapes: Mapping[str, tuple[int, ...]], found: TorchTrace | None) -> Traced:
    return Traced(shapes=shapes, uses=None, unseen={}) if found is None else found.traced(shapes)


def _with_hook(
    builder: ModuleBuilder,
    base_width: int,
    sizes: Traced,
    base: Traced,
    error: ValueError,
    *,
    scaled_logits: bool,
    **options: Any,
) -> tuple[tuple[Parameter, ...], str]:
    """Return the parameters of a model whose tied readout needs a hook, and the name of its module."""
    try:
        parameters = find_parameters(sizes, base, scaled_logits=True, **options)
    except ValueError:
        raise error from None
    tied = [parameter.path for parameter in parameters if parameter.part is Part.TIED]
    module = head_name(builder.at(base_width), tied[0]) if len(tied) == 1 and not scaled_logits else None
    if module is None:
        raise error
    return parameters, module
