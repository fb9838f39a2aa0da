"""Sweeps of one's own: how the optimal learning rate of any training function changes with width."""

import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat

from widthwise.search.ask_tell import Search, read_sizes
from widthwise.search.result import SweepResult


def sweep(
    train: Callable[..., SupportsFloat],
    *,
    learning_rate: float,
    widths: Sequence[int] = (),
    axis: str = "width",
    values: Sequence[int] = (),
    precision: float | None = 0.1,
    until_verdict: bool = False,
    seeds: Sequence[int] = (0,),
    edge: bool = False,
    cost: Callable[[int], float] | None = None,
    max_runs: int | None = None,
    study: Path | str | None = None,
    settings: Mapping[str, Any] | None = None,
    show: bool = True,
) -> SweepResult:
    """Train at several widths and learning rates until it is known how the optimal rate changes with width.

    Which runs come next depends on the losses so far and on nothing else. So a sweep that was stopped and is called
    again, with the same study, trains the same runs as one that ran through, and none of them twice. An exception in
    `train`, or Ctrl-C, ends the sweep and loses the run in progress at most.

    Args:
        train: Trains a model and returns its final eval loss, a number above 0, or NaN or infinity if it diverged. It
            is called with the keyword arguments `width`, or another axis, `learning_rate` and `seed`.
        widths: The widths.
        axis: What grows: width, depth, batch, tokens or together. `train` takes the size along it by this name.
        values: The sizes along another axis than width.
        learning_rate: Where to start at the smallest width.
        precision: The half-width of the exponent's interval to reach; see `Search`.
        until_verdict: Whether to stop earlier, once it is clear whether the rate transfers.
        seeds: The seeds that every width gets.
        edge: Whether to locate the stability edge too.
        cost: Returns the cost of a run of a width; see `Search`.
        max_runs: The most runs.
        study: The folder of a study in which every loss is stored as soon as it is known.
        settings: Names and values that tell this sweep from others in the study, such as `{"plan": "mup"}`; the name of
            the function by default. Known losses are not computed again, so change them, or the study, whenever you
            change what `train` does.
        show: Whether to print progress to the standard error.

    >>> def train(width, learning_rate, seed):
    ...     return 2 + (math.log2(learning_rate) + 8) ** 2 / 10 - math.log2(width) / 20 + seed / 1000
    >>> result = sweep(train, widths=(64, 128, 256, 512), learning_rate=1e-2, show=False)
    >>> str(result.verdict.outcome)
    'transfers'
    """
    read_sizes(axis, widths, values)
    _check_arguments(train, axis)
    search = Search(
        widths=widths,
        axis=axis,
        values=values,
        learning_rate=learning_rate,
        precision=precision,
        until_verdict=until_verdict,
        seeds=seeds,
        edge=edge,
        cost=cost,
        max_runs=max_runs,
        study=study,
        settings={"function": _name(train)} if settings is None else settings,
    )
    if show and search.losses:
        _say(f"{len(search.losses)} runs are known from the study")
    while points := search.ask():
        for point in points:
            search.tell(point, train(**point.named(axis)))
            if show:
                loss = search.losses[point]
                _say(f"{point.describe(axis)}: {'diverged' if math.isnan(loss) else f'loss {loss:.4f}'}")
        if show:
            _say(f"after {len(search.losses)} runs: {search.result().verdict}")
    return search.result()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _check_arguments(train: Callable[..., Any], axis: str) -> None:
    try:
        signature = inspect.signature(train)
    except TypeError:
        raise ValueError(f"train is {train!r}: expected a function") from None
    except ValueError:  # some functions that are not written in Python do not tell
        return
    try:
        signature.bind(**{axis: 1}, learning_rate=1.0, seed=0)
    except TypeError as error:
        raise ValueError(
            f"train is called as {_name(train)}({axis}=…, learning_rate=…, seed=…), but it is "
            f"{_name(train)}{signature}: {error}"
        ) from None


def _name(train: Callable[..., Any]) -> str:
    while isinstance(train, functools.partial):
        train = train.func
    return getattr(train, "__name__", type(train).__name__)
