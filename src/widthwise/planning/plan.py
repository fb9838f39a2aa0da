"""The front door: one call that plans how a model of your own changes with its width.

    plan = ww.plan(build, width=4096, base_width=256, example=tokens)
    params = plan.init(key)
    optimizer = plan.adamw(3e-3, weight_decay=0.1)        # 3e-3 was tuned at width 256

All factors are relative to the base width, where the plan is the plain model. Nothing is multiplied when the model is
called, unless you ask for it: initialization, learning rate and epsilon of each parameter carry the parameterization.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import optax

from widthwise.coordinates import DepthCheck
from widthwise.coordinates.blocks import blocks_of
from widthwise.measure import CoordinateCheck, check_coordinates, check_depths
from widthwise.measure.coordinates import SEEDS, STEPS, TOLERANCE
from widthwise.planning.build import Build, Builder
from widthwise.planning.initial import Initial
from widthwise.planning.subject import subject_of
from widthwise.scaling import NO_RULES, Rules, Traced, find_factors, find_parameters
from widthwise.scaling.attention import Attention, check_attention, grown_sums
from widthwise.scaling.depth import grow_factors, place_in_blocks
from widthwise.scaling.grown import Grown
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
from widthwise.trace import Trace, trace
from widthwise.trace.numbers import changed_numbers
from widthwise.trace.paths import named_leaves


@dataclass(frozen=True, kw_only=True)
class Plan(Initial):
    """What changes for every parameter of a model between the base width and another width."""

    @property
    def is_traced(self) -> bool:
        """Whether the forward pass was traced."""
        return self.builder.example != ()

    def at(
        self,
        width: int | None = None,
        *,
        depth: int | None = None,
        batch: float | None = None,
        tokens: float | None = None,
    ) -> "Plan":
        """Return the plan of the same model at another width, depth, batch size or number of tokens."""
        return _plan(
            self.builder,
            width=self.width if width is None else width,
            base_width=self.base_width,
            exponents=self.exponents,
            grown=self.grown.at(depth=depth, batch=batch, tokens=tokens),
            **self.options,
        )

    def check(
        self,
        loss: Callable[[Any, Any], jax.Array],
        batch: Any,
        *,
        widths: Sequence[int] | None = None,
        optimizer: "Callable[[Plan], optax.GradientTransformation] | None" = None,
        learning_rate: float | None = None,
        seeds: int = SEEDS,
        steps: int = STEPS,
        tolerance: float = TOLERANCE,
        show: bool = True,
    ) -> CoordinateCheck:
        """Train the model for a few steps at several widths, and check that sizes do not change with width.

        Args:
            loss: The loss, from the model and the batch. The model can be called as `model(*inputs)`, whatever `build`
                returns.
            batch: Examples with targets, used at every step.
            widths: Two or more widths; by default one, two and four times the base width.
            optimizer: Makes the optimizer of a plan, e.g. `lambda plan: plan.adamw(1e-3)`.
            learning_rate: The learning rate of the default optimizer of the plan's family.
            seeds: The number of runs per width; two or more for intervals.
            steps: The number of training steps.
            tolerance: The largest allowed slope of log size against log width.
            show: Whether to print progress, table and verdict.

        Returns:
            The result for all layers; `passed` is the verdict.
        """
        widths = tuple(widths or (self.base_width * times for times in (1, 2, 4)))
        plans = {width: self.at(width) for width in widths}
        make, seeds = optimizer or (lambda plan: plan.default(learning_rate)), self._seeds(seeds)
        result = check_coordinates(
            lambda width: subject_of(plans[width], make(plans[width]), loss, batch),
            widths=widths,
            seeds=seeds,
            steps=steps,
            tolerance=tolerance,
            progress=_progress("width", seeds, show),
        )
        if show:
            print(result)  # noqa: T201
        return result

    def check_depth(
        self,
        loss: Callable[[Any, Any], jax.Array],
        batch: Any,
        *,
        depths: Sequence[int],
        optimizer: "Callable[[Plan], optax.GradientTransformation] | None" = None,
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
        plans = {depth: self.at(depth=depth) for depth in depths}
        make, seeds = optimizer or (lambda plan: plan.default(learning_rate)), self._seeds(seeds)
        blocks = {depth: blocks_of(plan, list(plans.values())) for depth, plan in plans.items()}
        result = check_depths(
            lambda depth: subject_of(plans[depth], make(plans[depth]), loss, batch, blocks=blocks[depth]),
            depths=depths,
            seeds=seeds,
            steps=steps,
            tolerance=tolerance,
            progress=_progress("depth", seeds, show),
        )
        result = replace(result, multiplied=self.grown.depth_rule.branch > 0)
        if show:
            print(result)  # noqa: T201
        return result

    def _seeds(self, seeds: int) -> int:
        """Return how many seeds differ: without a key, every seed is the same."""
        return seeds if self.builder.can_draw(self.base_width) else 1


def _progress(axis: str, seeds: int, show: bool) -> Callable[[int, int], None]:
    """Return what says which model is being trained."""

    def say(size: int, seed: int) -> None:
        if show:
            print(f"training {axis} {size}, seed {seed + 1} of {seeds}", file=sys.stderr)  # noqa: T201

    return say


def plan(
    build: Build,
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
    multipliers: bool = False,
    depth: int | None = None,
    base_depth: int | None = None,
    depth_rule: DepthRule | Exact = COMPLETEP,
    batch: float | None = None,
    base_batch: float | None = None,
    batch_rule: AxisRule | Exact = "constant",
    tokens: float | None = None,
    base_tokens: float | None = None,
    token_rule: AxisRule | Exact = "constant",
) -> Plan:
    """Plan how a model changes between the base width and another width, and with depth, batch size and tokens.

    The forward pass is traced at both widths, so the role of every parameter comes from how it is used. Nothing is
    computed, and no large array is allocated.

    Args:
        build: A function of the width, or of the width and a key, that returns your model: an NNX, Equinox or Linen
            module, a pair (params, apply), or parameters alone.
        width: The width of the model to train.
        base_width: The width at which its learning rate was tuned.
        example: Arguments for a call of the model, or one argument: an array, or its shape (`jax.ShapeDtypeStruct`).
        call: How to call the model, if not as `model(*example)`: a function of the model and the example.
        parameterization: "mup", "standard", "ntk", "mean_field", or a `Parameterization`. Without multipliers, standard
            and NTK are the same, and so are muP and mean-field.
        optimizer: The optimizer, such as "adamw", "sgd", "adafactor", "lion", "muon" (with Adam), or a family.
        alignment: "full", "none", "tensor_programs", or an `Alignment`.
        exponents: Exponents from `solve` or `check`, instead of the three above.
        rules: Roles and axes of particular parameters, by path. Rules take precedence over what is traced.
        headless: Whether the model has no readout on purpose.
        scaled_logits: Whether the model itself multiplies the logits of a tied embedding by base_width / width.
        attention: "1/d" for a model that divides attention scores by √d, with heads whose size d grows: a factor of
            (d / d_base)^-1/2 then goes into the parameters that make queries. By default, the model is left as it is.
        decay_rule: How weight decay changes with width: "independent" (a step removes the same part of a weight at
            every width), "coupled", "sqrt", "inverse", or a `DecayRule`. docs/theory.md compares them.
        multipliers: Whether to store parameters in the form of the parameterization, with multipliers. The model must
            then be called with `plan.effective(params)`.
        depth: The depth of the model to train, if it differs: `build` is then called with `depth=` as well.
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

    >>> import jax, jax.numpy as jnp
    >>> import widthwise as ww
    >>> def build(width, key):
    ...     keys = jax.random.split(key, 3)
    ...     shapes = {"in": (8, width), "mid": (width, width), "out": (width, 1)}
    ...     return {name: jax.random.normal(k, s) / s[0] ** 0.5 for k, (name, s) in zip(keys, shapes.items())}, apply
    >>> def apply(params, x):
    ...     return jnp.tanh(jnp.tanh(x @ params["in"]) @ params["mid"]) @ params["out"]
    >>> plan = ww.plan(build, width=1024, base_width=256, example=jnp.ones((4, 8)))
    >>> print(plan)
    path  shape      role       fan-in  init ×  learning rate ×  epsilon ×
    ──────────────────────────────────────────────────────────────────────
    in    8×1024     embedding       8       1                1       0.25
    mid   1024×1024  hidden       1024     0.5             0.25       0.25
    out   1024×1     readout      1024    0.25             0.25          1
    """
    check_widths(width=width, base_width=base_width)
    check_takes_depth(build, depth)
    check_attention(attention)
    exponents = find_exponents(parameterization, optimizer, alignment, exponents)
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
    return _plan(
        Builder(build=build, example=example if isinstance(example, tuple) else (example,), call=call),
        width=width,
        base_width=base_width,
        exponents=exponents,
        grown=grown,
        rules=rules,
        headless=headless,
        scaled_logits=scaled_logits,
        attention=attention,
        decay_rule=read_decay_rule(decay_rule),
        multipliers=multipliers,
    )


def _plan(
    builder: Builder,
    *,
    width: int,
    base_width: int,
    exponents: Assessment,
    grown: Grown,
    rules: Rules,
    headless: bool,
    scaled_logits: bool,
    attention: Attention | None,
    decay_rule: DecayRule,
    multipliers: bool,
) -> Plan:
    # Roles are found by comparing two widths, and the width may be the base width.
    other = width if width != base_width else 2 * base_width
    builder = builder.deep(grown.depth)
    base, base_trace = _traced(builder, base_width)
    traced, other_trace = _traced(builder, other)
    parameters = find_parameters(
        traced, base, rules=rules, headless=headless, scaled_logits=scaled_logits, attention=attention
    )
    numbers = changed_numbers(base_trace.jaxpr, other_trace.jaxpr) if base_trace and other_trace else ()
    if width == base_width:
        parameters = at_base_width(parameters)
    refuse_inner_readouts(parameters, exponents.family)
    if grown.deepens != 1:
        parameters = place_in_blocks(parameters, base, _traced(builder.deep(grown.base_depth), base_width)[0], grown)
    factors = find_factors(parameters, exponents, decay_rule=decay_rule, multipliers=multipliers)
    return Plan(
        builder=builder,
        width=width,
        base_width=base_width,
        exponents=exponents,
        parameters=parameters,
        factors=grow_factors(
            factors, parameters, grown, exponents.family, coupled=decay_rule.coupled, multipliers=multipliers
        ),
        numbers=numbers,
        sums=() if width == base_width else grown_sums(traced.meetings, base.meetings),
        decay_rule=decay_rule,
        multipliers=multipliers,
        grown=grown,
        options={
            "rules": rules,
            "headless": headless,
            "scaled_logits": scaled_logits,
            "attention": attention,
            "decay_rule": decay_rule,
            "multipliers": multipliers,
        },
    )


def _traced(builder: Builder, width: int) -> tuple[Traced, Trace | None]:
    """Return the shapes and uses of the parameters at a width."""
    return builder.once(("traced", width), lambda: _trace_at(builder, width))


def _trace_at(builder: Builder, width: int) -> tuple[Traced, Trace | None]:
    params = builder.shapes(width)
    shapes = {path: tuple(leaf.shape) for path, leaf in named_leaves(params).items()}
    forward = builder.forward(width)
    traced = None if forward is None else trace(forward, params, *builder.example)
    if traced is None:
        return Traced(shapes=shapes, uses=None, unseen={}), None
    return traced.traced(shapes), traced
