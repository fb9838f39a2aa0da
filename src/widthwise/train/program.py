"""A program is the compiled part of a training run; a lane is the part in which runs may differ.

Runs that share a `Program` differ only in their `Lane`: seed, scales, learning rate, epsilon, weight decay, attention
scale. Everything in a lane is data, so one compilation serves all of them, one after another or side by side under
`vmap`.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from widthwise.coordinates.depth import LOGITS, STREAM
from widthwise.measure import Measurement, measure
from widthwise.measure.capture import capture
from widthwise.models import Transformer, draw
from widthwise.models.storing import Whole, cast
from widthwise.optim import Optimizer, warmup_cosine
from widthwise.parameterize import Layout, PyTree, Scales
from widthwise.theory import Role
from widthwise.train.sharding import Placement

DIVERGED = 100.0
"""A run has diverged once a loss is this many times that of guessing uniformly, log(vocabulary), or not finite.

Such runs do not come back: of 139 recorded for `benchmarks/hopeless.py`, none ended better than guessing. With SGD,
most of them never reach a loss that is not finite: the weights grow until the gradients vanish, and the rest of the
training is wasted."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Lane:
    """The data in which a run may differ from others of the same program.

    Attributes:
        seed: The seed of the initialization.
        scales: The scalars prescribed by its parameterization.
        attention_scale: The factor on attention logits.
        learning_rate: The base learning rate.
        epsilon: The base epsilon; ignored by optimizers without one.
        weight_decay: The part of each parameter that a step removes at the peak of the schedule: a tree, or one number
            for all.
    """

    seed: Any
    scales: Scales
    attention_scale: Any
    learning_rate: Any
    epsilon: Any = 0.0
    weight_decay: Any = 0.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class State:
    """What changes from step to step.

    Attributes:
        params: The stored parameters.
        optimizer: The state of the optimizer.
        step: The number of steps taken.
        diverged_at: The step at which it diverged (see `DIVERGED`), or -1. From then on, the parameters do not change.
    """

    params: PyTree
    optimizer: PyTree
    step: jax.Array
    diverged_at: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The root mean square of stored parameters and of their gradients, by role."""

    params: dict[str, jax.Array]
    gradients: dict[str, jax.Array]


@dataclass(frozen=True, kw_only=True)
class Program:
    """The compiled part of a training run.

    Attributes:
        model: The model.
        optimizer: The optimizer.
        layout: The roles of the model's parameters.
        steps: The number of training steps, which determines the schedule.
        warmup: The number of warm-up steps.
        b2: The decay of the second moment; None for the optimizer's own. A rule that changes it with the batch changes
            a shape anyway, and as a constant it is rounded as the default is.
    """

    model: Transformer
    optimizer: Optimizer
    layout: Layout
    steps: int
    warmup: int
    b2: float | None = None

    def initial(self, lane: Lane) -> PyTree:
        """Draw the initial stored parameters."""
        return lane.scales.initial(draw(self.model, jax.random.key(lane.seed)))

    def start(self, lane: Lane) -> State:
        """Return the state before the first step."""
        params = self.initial(lane)
        return State(
            params=params,
            optimizer=self._optimizer(lane).init(params),
            step=jnp.zeros((), jnp.int32),
            diverged_at=jnp.full((), -1, jnp.int32),
        )

    def step(
        self, state: State, lane: Lane, tokens: jax.Array, *, devices: Placement | None = None
    ) -> tuple[State, jax.Array, PyTree]:
        """Take one step; return the new state, the loss before it, and the gradients.

        Args:
            state: The state of one run.
            lane: The run's data.
            tokens: A batch of sequences.
            devices: The devices over which the state and the batch are split; None for one device.
        """
        whole = cast if devices is None else devices.whole

        def loss(params: PyTree, lane: Lane, tokens: jax.Array) -> jax.Array:
            weights = jnp.ones_like(tokens[:, 1:], jnp.float32)
            return self.loss(lane.scales.effective(params), lane.attention_scale, tokens, weights, whole=whole)

        if devices is None:
            value, gradients = jax.value_and_grad(loss)(state.params, lane, tokens)
        else:
            value, gradients = devices.value_and_grad(loss, state.params, lane, tokens)
        updates, optimizer = self._optimizer(lane, devices).update(gradients, state.optimizer, state.params)
        # False if the loss is NaN.
        alive = (value <= DIVERGED * math.log(self.model.vocabulary)) & (state.diverged_at < 0)

        def keep(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(alive, new, old)

        stepped = State(
            params=jax.tree.map(keep, optax.apply_updates(state.params, updates), state.params),
            optimizer=jax.tree.map(keep, optimizer, state.optimizer),
            step=state.step + 1,
            diverged_at=jnp.where(alive | (state.diverged_at >= 0), state.diverged_at, state.step),
        )
        return stepped, value, gradients

    def loss(
        self, effective: PyTree, attention_scale: Any, tokens: jax.Array, weights: jax.Array, *, whole: Whole = cast
    ) -> jax.Array:
        """Return the mean cross-entropy of the next tokens, in nats; tokens with weight 0 do not count."""
        losses = self.model.losses(effective, tokens[:, :-1], tokens[:, 1:], attention_scale, whole=whole)
        return jnp.sum(losses * weights) / jnp.maximum(jnp.sum(weights), 1)

    def evaluate(
        self, params: PyTree, lane: Lane, tokens: jax.Array, weights: jax.Array, *, devices: Placement | None = None
    ) -> jax.Array:
        """Return the mean loss over all tokens of an evaluation set."""
        whole = cast if devices is None else devices.whole

        def totals(params: PyTree, lane: Lane, batches: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            effective = lane.scales.effective(params)

            def one(batch: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
                count = jnp.sum(batch[1])
                return self.loss(effective, lane.attention_scale, *batch, whole=whole) * count, count

            losses, counts = jax.lax.map(one, batches)
            return jnp.sum(losses), jnp.sum(counts)

        over = totals if devices is None else functools.partial(devices.total, totals)
        total, count = over(params, lane, (tokens, weights))
        return total / count

    def measure(self, initial: PyTree, params: PyTree, lane: Lane, tokens: jax.Array) -> Measurement:
        """Measure the alignment of every dense layer on a batch of tokens.

        Always in full float32, because early changes of weights are too small for bfloat16.
        """
        exact = replace(self.model, dtype="float32") if self.model.dtype == "bfloat16" else self.model
        effective = (lane.scales.effective(stored) for stored in (initial, params))
        with jax.default_matmul_precision("highest"):
            return measure(lambda params: exact.logits(params, tokens, lane.attention_scale), *effective)

    def stream_sizes(
        self, initial: PyTree, params: PyTree, lane: Lane, tokens: jax.Array
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Measure the residual stream, what branches add to it in all blocks together, and the logits, in float32.

        Returns:
            The root mean square of each, and that of its change, by name.
        """
        exact = replace(self.model, dtype="float32") if self.model.dtype == "bfloat16" else self.model

        def parts(stored: PyTree) -> dict[str, jax.Array]:
            effective = lane.scales.effective(stored)
            logits, uses = capture(lambda params: exact.logits(params, tokens, lane.attention_scale), effective)
            sums = {
                f"{end.split('/')[1]} branches": jnp.sum(
                    jnp.stack([use.outputs for path, use in uses.items() if path.endswith(end)]), axis=0
                )
                for end in exact.branch_ends
            }
            positions = jnp.tile(uses["positions/embedding"].outputs, (len(tokens), 1))
            stream = uses["tokens/embedding"].outputs + positions + jnp.sum(jnp.stack(list(sums.values())), axis=0)
            return {**sums, STREAM: stream, LOGITS: logits}

        def rms(x: jax.Array) -> jax.Array:
            return jnp.sqrt(jnp.mean(jnp.square(x)))

        with jax.default_matmul_precision("highest"):
            before, after = parts(initial), parts(params)
        return {name: (rms(x), rms(x - before[name])) for name, x in after.items()}

    def sizes(self, params: PyTree, gradients: PyTree) -> Sizes:
        """Measure parameters and gradients by role."""
        return Sizes(params=self._by_role(params), gradients=self._by_role(gradients))

    def _by_role(self, tree: PyTree) -> dict[str, jax.Array]:
        leaves = jax.tree.leaves(tree)
        found: dict[str, jax.Array] = {}
        for role in Role:
            mine = [x for x, leaf in zip(leaves, self.layout.leaves, strict=True) if leaf.role is role]
            if mine:
                total = sum((jnp.sum(jnp.square(x)) for x in mine), start=jnp.zeros(()))
                count = float(sum(x.size for x in mine))  # as an int, it would be too large at width 16384
                found[role.value] = jnp.sqrt(total / count)
        return found

    def _optimizer(self, lane: Lane, devices: Placement | None = None) -> optax.GradientTransformation:
        return self.optimizer.build(
            lane.learning_rate,
            lane.scales,
            layout=self.layout,
            epsilon=None if self.optimizer.epsilon is None else lane.epsilon,
            b2=self.b2,
            weight_decay=lane.weight_decay,
            schedule=warmup_cosine(steps=self.steps, warmup=self.warmup),
            dtype=self.model.dtype,
            share=None if devices is None else devices.share,
        )
