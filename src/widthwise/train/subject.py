"""A run as the subject of a coordinate check, using the engine's own step."""

import functools
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from widthwise.data import Reader
from widthwise.measure import Measurement, Subject
from widthwise.measure.subject import described
from widthwise.parameterize import PyTree
from widthwise.study.axes import WIDTH, Axis
from widthwise.train.inputs import Inputs
from widthwise.train.program import Lane, Program, State
from widthwise.train.spec import Spec, resolve

CONSTANT = 10**6
"""So many steps that the schedule is constant during a check."""


def subject_of(spec: Spec, inputs: Inputs, *, examples: int = 8, axis: Axis = WIDTH) -> Callable[[int], Subject]:
    """Return the subject of a coordinate check for a run, as a function of the width or the depth.

    Over width it measures layers; over depth, which adds layers, what they add up to. The learning rate is constant.
    Measurements use `examples` held-out sequences. One compilation per size serves all parameterizations.
    """
    data = jax.tree.map(jnp.asarray, inputs.batches.data)
    probe = jnp.asarray(inputs.evaluation.tokens[0][:examples, :-1])

    look = _look if axis is WIDTH else _look_at_stream

    def at(size: int) -> Subject:
        constant = replace(spec, **axis.change(vars(spec), size), steps=CONSTANT, warmup=0)
        run = resolve(constant, vocabulary=inputs.batches.vocabulary, data={})

        def start(seed: int) -> tuple[PyTree, PyTree]:
            lane = replace(run.lane, seed=seed)
            state = _begin(lane, program=run.program)
            return state.params, (state, lane)

        def step(params: PyTree, state: tuple[State, Lane], index: int) -> tuple[PyTree, PyTree]:
            before, lane = state
            item = jax.tree.map(lambda x: x[0], inputs.batches.chunk(index, 1))
            after = _advance(before, lane, data, item, program=run.program, reader=inputs.batches.reader)
            return after.params, (after, lane)

        return Subject(
            **described(run.prescription),
            start=start,
            step=step,
            measure=lambda initial, params: look(initial, params, run.lane, probe, program=run.program),
        )

    return at


@functools.partial(jax.jit, static_argnames="program")
def _begin(lane: Lane, *, program: Program) -> State:
    return program.start(lane)


@functools.partial(jax.jit, static_argnames=("program", "reader"))
def _advance(state: State, lane: Lane, data: PyTree, item: PyTree, *, program: Program, reader: Reader) -> State:
    return program.step(state, lane, reader.at(data, item))[0]


@functools.partial(jax.jit, static_argnames="program")
def _look(initial: PyTree, params: PyTree, lane: Lane, tokens: jax.Array, *, program: Program) -> Measurement:
    return program.measure(initial, params, lane, tokens)


@functools.partial(jax.jit, static_argnames="program")
def _look_at_stream(initial: PyTree, params: PyTree, lane: Lane, tokens: jax.Array, *, program: Program) -> PyTree:
    return program.stream_sizes(initial, params, lane, tokens)
