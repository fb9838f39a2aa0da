"""The coordinate check of a JAX model; `widthwise.coordinates` has the verdict."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from widthwise.coordinates import DEPTHS as DEPTHS
from widthwise.coordinates import SEEDS as SEEDS
from widthwise.coordinates import STEPS as STEPS
from widthwise.coordinates import TOLERANCE as TOLERANCE
from widthwise.coordinates import WIDTHS as WIDTHS
from widthwise.coordinates import CoordinateCheck as CoordinateCheck
from widthwise.coordinates import DepthCheck as DepthCheck
from widthwise.coordinates import Expectation as Expectation
from widthwise.coordinates import LayerCheck as LayerCheck
from widthwise.coordinates import Term as Term
from widthwise.coordinates import advice as advice
from widthwise.coordinates import checked_widths, judge, judge_depth
from widthwise.coordinates import warning as warning
from widthwise.measure.alignment import Measurement
from widthwise.measure.subject import Subject

OnRun: TypeAlias = Callable[[int, int], None]
"""Called before each run with the width and the seed."""


def check_coordinates(
    build: Callable[[int], Subject],
    *,
    widths: Sequence[int] = WIDTHS,
    seeds: int = SEEDS,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
    progress: OnRun = lambda *_: None,
) -> CoordinateCheck:
    """Train a model at several widths and check how the sizes of its activations scale.

    Args:
        build: Returns the model at a width, ready for training. For your own model, use `plan.check` instead.
        widths: Two or more widths, the further apart the better.
        seeds: The number of runs per width; two or more for intervals.
        steps: The number of training steps. A few are enough: errors show at once and grow.
        tolerance: The largest allowed distance of a slope from its bound.
        progress: Called before each run.

    Returns:
        The result for all layers.
    """
    widths = checked_widths(widths, seeds=seeds, steps=steps, tolerance=tolerance)
    before: list[list[Measurement]] = []
    after: list[list[Measurement]] = []
    subjects: list[Subject] = []
    for width in widths:
        subject = build(width)
        pairs = _train(subject, width, seeds, steps, progress)
        before.append([first for first, _ in pairs])
        after.append([last for _, last in pairs])
        subjects.append(subject)
    return judge(
        before,
        after,
        widths=widths,
        steps=steps,
        tolerance=tolerance,
        roles=subjects[0].roles,
        products=subjects[0].products,
        exponents=subjects[0].exponents,
        apart=subjects[0].apart,
    )


def check_depths(
    build: Callable[[int], Subject],
    *,
    depths: Sequence[int] = DEPTHS,
    seeds: int = SEEDS,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
    progress: OnRun = lambda *_: None,
) -> DepthCheck:
    """Train a model with several numbers of blocks and check how what they add up to scales.

    Args:
        build: Returns the model with a number of blocks, ready for training; it measures sizes by name.
        depths: Two or more numbers of blocks.
        seeds: The number of runs per depth; two or more for intervals.
        steps: The number of training steps.
        tolerance: The largest allowed distance of a slope from its bound.
        progress: Called before each run with the depth and the seed.
    """
    depths = checked_widths(depths, seeds=seeds, steps=steps, tolerance=tolerance, called="depth")
    pairs = [_train(build(depth), depth, seeds, steps, progress) for depth in depths]
    before, after = ([[pair[place] for pair in at] for at in pairs] for place in (0, 1))
    return judge_depth(before, after, depths=depths, steps=steps, tolerance=tolerance)


def _train(subject: Subject, width: int, seeds: int, steps: int, progress: OnRun) -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []
    for seed in range(seeds):
        progress(width, seed)
        params, state = subject.start(seed)
        initial = jax.tree.map(np.asarray, params)  # a step may donate its input buffers
        first = subject.measure(initial, params)
        for index in range(steps):
            params, state = subject.step(params, state, index)
        pairs.append(jax.device_get((first, subject.measure(initial, params))))
    return pairs
