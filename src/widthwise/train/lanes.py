"""Lanes: several runs of one program, side by side where that pays and one after another where it does not.

Small models leave most of a GPU idle, and `vmap` fills it with other runs. On a CPU, lanes under `vmap` take longer
than one after another, so there they only share the compilation. Each chunk of steps is one call: a `lax.scan` over the
inputs of its steps, with the state donated. The compiled code depends only on the program and on how data is read, so
all lanes of a process with the same two share it. Runs side by side are small and train for minutes, so short
compilation matters. A single run may be large and train for days.
"""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from widthwise.data import Batches, Evaluation, Reader
from widthwise.measure import Measurement, Probe
from widthwise.parameterize import PyTree
from widthwise.train.compiling import Compiled, wake
from widthwise.train.feed import Feed
from widthwise.train.program import Lane, Program, Sizes, State
from widthwise.train.sharding import Placement, place


@dataclass(frozen=True)
class ChunkResult:
    """The results of a chunk of steps for each lane: the loss of every step, and the sizes at the last one."""

    losses: np.ndarray
    sizes: Sizes


@dataclass(frozen=True)
class Setup:
    """What compiled functions depend on: the program, its devices, and how many lanes share a call, if any do."""

    program: Program
    devices: Placement | None
    lanes: int | None

    def each(self, function: Callable[..., Any], *, in_axes: Any = 0) -> Callable[..., Any]:
        """Apply a function to every lane of a call."""
        if self.lanes is None:
            return function
        shared = self.devices is not None and self.devices.splits_lanes(self.lanes)
        return jax.vmap(function, in_axes=in_axes, spmd_axis_name="lanes" if shared else None)

    def split(self, tree: PyTree) -> PyTree:
        """Split arrays of the state over the devices."""
        if (devices := self.devices) is None:
            return tree
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, devices.state(x.shape)), tree)

    def replicate(self, tree: PyTree) -> PyTree:
        """Replicate a tree on all devices."""
        return tree if self.devices is None else jax.lax.with_sharding_constraint(tree, self.devices.replicated)

    def nothing(self, state: State, count: int) -> tuple[jax.Array, Sizes]:
        """Return the losses and sizes of lanes that have diverged: NaN."""
        shapes = jax.eval_shape(self.each(self.program.sizes), state.params, state.params)
        losses = jnp.full((*state.step.shape, count), jnp.nan)
        return losses, jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)


class Lanes:
    """The runs of one program.

    Attributes:
        program: The program that all of them share.
        lanes: The data in which they differ.
        side_by_side: Whether they run under `vmap`.
    """

    def __init__(
        self,
        program: Program,
        lanes: Sequence[Lane],
        batches: Batches,
        *,
        side_by_side: bool | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        """Set up runs.

        Args:
            program: The program that all of them share.
            lanes: The data in which they differ.
            batches: The training data, the same for all.
            side_by_side: Whether to run them under `vmap`. None: if there are several and the device is not a CPU.
            mesh: The devices to shard them over, from `make_mesh`; None for one device.
        """
        if not lanes:
            raise ValueError("no runs: expected one or more")
        self.program = program
        self.lanes = list(lanes)
        if side_by_side is None:
            side_by_side = jax.default_backend() != "cpu" and len(lanes) > 1
        self.side_by_side = side_by_side
        self._devices = None if mesh is None else Placement(mesh, self.side_by_side)
        self._feed = Feed(batches, self._devices)
        self._everywhere = None if self._devices is None else self._devices.replicated
        self._chunks: dict[tuple[int, bool], Future[Any]] = {}
        self._evaluations: dict[tuple[Any, ...], Future[Any]] = {}
        self._measurements: dict[tuple[Any, ...], Future[Any]] = {}
        self._setup = Setup(program, self._devices, len(lanes) if self.side_by_side else None)
        self._ahead = {"setup": self._setup, "soon": self.side_by_side}
        # The arguments of compiled functions: all lanes at once, or each by itself.
        self._described = [_stack(self.lanes)] if self.side_by_side else self.lanes
        wake()

    @functools.cached_property
    def tokens_per_step(self) -> int:
        """The number of tokens that a step predicts in all lanes together."""
        return len(self.lanes) * self._feed.tokens_per_step

    def begin(
        self,
        count: int,
        *,
        whole: bool = True,
        cut: bool = False,
        evaluation: Evaluation | None = None,
        probe: Probe | None = None,
    ) -> None:
        """Start compiling what training will need; meanwhile `start` can be compiled and run.

        Args:
            count: The number of steps of a full chunk.
            whole: Whether there will be full chunks.
            cut: Whether there will be shorter chunks, which share a program.
            evaluation: The evaluation data.
            probe: How alignment will be measured.
        """
        if self._devices is not None:
            return  # the sharding of a state is only known once it exists
        if whole:
            self._chunks[count, False] = self._begin_chunk(count)
        if cut:
            self._chunks[count, True] = self._begin_chunk(count, cut=True)
        lane, params = self._abstract_lane, self._abstract_state().params
        if probe is not None:
            tokens, initial = self._abstract(np.asarray(probe.tokens)), params if probe.keep_initial else None
            begun = _measure.begin(params, initial, lane, tokens, **self._ahead)
            self._measurements[tokens.shape, tokens.dtype, probe.keep_initial] = begun
        if evaluation is not None:
            data = self._abstract((evaluation.tokens, evaluation.weights))
            self._evaluations[data[0].shape, data[0].dtype] = _evaluate.begin(params, lane, *data, **self._ahead)

    def start(self) -> list[State]:
        """Return the initial states: one for all lanes side by side, or one per lane."""
        return [_start(lane, setup=self._setup) for lane in self._groups]

    def chunk(
        self, states: list[State], start: int, count: int, *, size: int | None = None
    ) -> tuple[list[State], ChunkResult]:
        """Take `count` steps from step `start` on. The states passed in are donated.

        Every `count` needs its own program. With `size`, one program takes any number of steps up to `size`.
        """
        items = self._feed.items(start, count, size=size)
        taken = None if size is None else place(np.int32(count), self._everywhere)
        if (begun := self._chunks.get((size or count, size is not None))) is not None:
            run = begun.result()
        else:
            run = functools.partial(take_steps, reader=self._feed.reader, setup=self._setup)
        results = [
            run(state, lane, self._feed.data, items, taken)
            if np.any(np.asarray(state.diverged_at) < 0)
            else (state, *self._setup.nothing(state, size or count))
            for state, lane in zip(states, self._groups, strict=True)
        ]
        states, losses, sizes = (list(column) for column in zip(*results, strict=True))
        return states, ChunkResult(self._by_lane(losses)[:, :count], jax.tree.map(lambda *x: self._by_lane(x), *sizes))

    def chunk_bytes(self, count: int) -> int:
        """Return the device memory of a chunk of `count` steps, according to the compiler; nothing is run."""
        memory = self._begin_chunk(count).result().memory_analysis()
        assert memory is not None
        taken = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        return taken - memory.alias_size_in_bytes  # donated states are counted twice

    def evaluate(self, states: list[State], evaluation: Evaluation) -> np.ndarray:
        """Return the held-out loss of every lane; NaN for lanes that have diverged."""
        split = None
        if self._devices is not None:
            self._devices.check(evaluation.tokens.shape[1])
            split = self._devices.batches
        tokens, weights = place((evaluation.tokens, evaluation.weights), split)
        begun = self._evaluations.get((tokens.shape, tokens.dtype))
        run = functools.partial(_evaluate, setup=self._setup) if begun is None else begun.result()
        losses = [run(state.params, lane, tokens, weights) for state, lane in zip(states, self._groups, strict=True)]
        return np.where(self.alive(states), self._by_lane(losses), np.nan)

    def initial(self) -> list[PyTree]:
        """Draw the initial parameters again, for `measure`."""
        return [_initial(lane, setup=self._setup) for lane in self._groups]

    def measure(
        self, states: list[State], tokens: np.ndarray, *, initial: Sequence[PyTree] | None = None
    ) -> list[Measurement]:
        """Measure the alignment of every dense layer of every lane.

        Args:
            states: The states of the lanes.
            tokens: The batch to measure on.
            initial: The initial parameters; None to draw them again from the seeds.
        """
        batch = place(tokens, self._everywhere)
        begun = self._measurements.get((batch.shape, batch.dtype, initial is not None))
        run = functools.partial(_measure, setup=self._setup) if begun is None else begun.result()
        found = [
            run(state.params, start, lane, batch)
            for state, start, lane in zip(states, initial or [None] * len(states), self._groups, strict=True)
        ]
        found = jax.device_get(found)
        if not self.side_by_side:
            return found
        return [jax.tree.map(lambda x, lane=lane: x[lane], found[0]) for lane in range(len(self.lanes))]

    def alive(self, states: list[State]) -> list[bool]:
        """Return whether each lane is still training."""
        return [step < 0 for step in self.diverged_at(states)]

    def diverged_at(self, states: list[State]) -> list[int]:
        """Return the step at which each lane diverged; -1 if it did not."""
        return self._by_lane([state.diverged_at for state in states]).tolist()

    def params(self, states: list[State], lane: int) -> PyTree:
        """Return the stored parameters of one lane."""
        return jax.tree.map(lambda x: x[lane], states[0].params) if self.side_by_side else states[lane].params

    def _begin_chunk(self, count: int, *, cut: bool = False) -> Future[Any]:
        data, items, taken = self._abstract((*self._feed.like(count), np.int32(count) if cut else None))
        state, reader = self._abstract_state(), self._feed.reader
        return take_steps.begin(state, self._abstract_lane, data, items, taken, reader=reader, **self._ahead)

    @functools.cached_property
    def _groups(self) -> list[Lane]:
        return [place(lane, self._everywhere) for lane in self._described]

    @functools.cached_property
    def _abstract_lane(self) -> Lane:
        return self._abstract(self._described[0])

    def _abstract_state(self) -> State:
        return jax.eval_shape(functools.partial(_start, setup=self._setup), self._abstract_lane)

    def _abstract(self, tree: PyTree) -> PyTree:
        """Return the shapes of what `place` would return, without using the device."""

        def one(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._everywhere, weak_type=x.weak_type)

        return jax.tree.map(one, jax.eval_shape(lambda x: x, tree))

    def _by_lane(self, values: Sequence[jax.Array | np.ndarray]) -> np.ndarray:
        return np.asarray(values[0]) if self.side_by_side else np.stack([np.asarray(value) for value in values])


@functools.partial(jax.jit, static_argnames="setup")
def _start(lane: Lane, *, setup: Setup) -> State:
    return setup.split(setup.each(setup.program.start)(lane))


@functools.partial(jax.jit, static_argnames="setup")
def _initial(lane: Lane, *, setup: Setup) -> PyTree:
    return setup.split(setup.each(setup.program.initial)(lane))


@functools.partial(Compiled, static=("setup",))
def _measure(params: PyTree, initial: PyTree | None, lane: Lane, tokens: jax.Array, *, setup: Setup) -> Measurement:
    if initial is None:
        # Redrawn parameters must be identical to the bit: if fused with later operations, rounding looks like a change.
        initial = jax.lax.optimization_barrier(setup.split(setup.each(setup.program.initial)(lane)))
    measure = setup.each(lambda initial, params, lane: setup.program.measure(initial, params, lane, tokens))
    return setup.replicate(measure(initial, params, lane))


@functools.partial(Compiled, static=("setup",))
def _evaluate(params: PyTree, lane: Lane, tokens: jax.Array, weights: jax.Array, *, setup: Setup) -> jax.Array:
    evaluate = functools.partial(setup.program.evaluate, devices=setup.devices)
    each = setup.each(evaluate, in_axes=(0, 0, None, None))
    return setup.replicate(each(params, lane, tokens, weights))


@functools.partial(Compiled, static=("setup", "reader"), donate=("state",))
def take_steps(
    state: State,
    lane: Lane,
    data: PyTree,
    items: PyTree,
    taken: jax.Array | None,
    *,
    setup: Setup,
    reader: Reader,
) -> tuple[State, jax.Array, Sizes]:
    """Take the steps of a chunk; return the new state, the loss of each step, and the sizes at the last one.

    Args:
        state: The state of a run, or of all lanes; it is donated.
        lane: Its data.
        data: Training data that stays on the devices.
        items: What each step needs in addition.
        taken: How many steps to take; None for as many as there are items.
        setup: The program, its devices and its lanes.
        reader: Combines data and items into tokens.
    """
    program, devices = setup.program, setup.devices
    count = jax.tree.leaves(items)[0].shape[0]
    last = count - 1 if taken is None else taken - 1
    # Per step, because tracing the whole loop under `vmap` takes twice as long.
    step = functools.partial(program.step, devices=devices)
    step = setup.each(step, in_axes=(0, 0, None))
    sizes_of = setup.each(program.sizes)
    losses, none = setup.nothing(state, count)

    def body(carry: tuple[State, Sizes], xs: tuple[jax.Array, PyTree]) -> tuple[tuple[State, Sizes], jax.Array]:
        (state, sizes), (index, item) = carry, xs
        tokens = reader.at(data, item)
        if devices is not None:
            devices.check(len(tokens))
            tokens = jax.lax.with_sharding_constraint(tokens, devices.batch)
        state, loss, gradients = step(state, lane, tokens)
        # Sizes cost a pass over all parameters, so only the last step computes them.
        sizes = jax.lax.cond(index == last, lambda: sizes_of(state.params, gradients), lambda: sizes)
        return (state, sizes), loss

    if taken is None:
        (state, sizes), losses = jax.lax.scan(body, (state, none), (jnp.arange(count), items))
        losses = jnp.moveaxis(losses, 0, -1)
    else:

        def some(index: jax.Array, carry: tuple[State, Sizes, jax.Array]) -> tuple[State, Sizes, jax.Array]:
            (state, sizes), loss = body(carry[:2], (index, jax.tree.map(lambda x: x[index], items)))
            return state, sizes, carry[2].at[..., index].set(loss)

        state, sizes, losses = jax.lax.fori_loop(0, taken, some, (state, none, losses))
    return setup.split(state), *setup.replicate((losses, sizes))


def _stack(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *trees)
