"""A search that proposes runs and is told their losses, wherever and by whatever they are trained.

It is the search of `widthwise sweep` without a model: widths, learning rates and seeds go out, losses come back. With a
study, each loss is stored when it is told, and a search that was stopped takes up where it ended.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat

from widthwise.fit import Estimate, Trial, fit_transfer
from widthwise.fit.design import Sample
from widthwise.search.lattice import AdaptiveSearch
from widthwise.search.result import SweepResult
from widthwise.search.rounds import GroupSearch, check_precision
from widthwise.study import Outcome, Request, Study
from widthwise.study.axes import AXES, OWN, WIDTH, axis_of, size_of
from widthwise.study.encoding import encode, key


class SearchPoint(NamedTuple):
    """A run to train. It is a tuple, so that it can come back from a queue as plain numbers.

    Along another axis, `width` is the size along it.
    """

    width: int
    learning_rate: float
    seed: int

    def __str__(self) -> str:
        return self.describe(WIDTH.name)

    def describe(self, axis: str) -> str:
        """Describe the run in words."""
        return f"{axis} {self.width}, learning rate {self.learning_rate:.3g}, seed {self.seed}"

    def named(self, axis: str) -> dict[str, Any]:
        """Return its numbers by name."""
        return {axis: self.width, "learning_rate": self.learning_rate, "seed": self.seed}


class Search:
    """A search for the optimal learning rate at several widths, to ask for runs and to tell their losses.

    Args:
        widths: The widths.
        axis: What grows: width, depth, batch, tokens or together.
        values: The sizes along another axis than width.
        learning_rate: Where to start at the smallest width. Rates are powers of √2, so the nearest one is tried.
        precision: Go on until the exponent of the optimal rate is known to this much to each side (95 %). With None,
            every width is searched by itself, which tries the best rate of each.
        until_verdict: Whether to stop before that once it is clear whether the rate transfers.
        seeds: The seeds that every width gets; a precision adds more as needed.
        edge: Whether to locate the stability edge of every width too.
        cost: Returns what a run of a width costs, in any unit: cheap runs are preferred. Width squared by default, as
            the weights of a layer, and with them the work of a step, grow with the product of its two sides; depth,
            tokens, and the same for all batch sizes, on as many tokens.
        max_runs: The most runs to ask for, with those that the study holds. Each width has at most 40 in any case.
        study: The folder of a study to store losses in, and to take those from that are known; None for neither.
        settings: Names and values that tell this sweep from others in the study. Change them, or the study, whenever
            you change what is trained: known losses are not computed again.

    Attributes:
        axis: What grows.
        losses: What is known, by run: the loss, NaN where training diverged.

    >>> search = Search(widths=(64, 128), learning_rate=0.01, precision=None)
    >>> while points := search.ask():
    ...     for point in points:
    ...         search.tell(point, 2 + (math.log2(point.learning_rate) + 6) ** 2 / 10)
    >>> [round(optimum.learning_rate.value, 4) for optimum in search.result().transfer.optima]
    [0.0156, 0.0156]
    """

    def __init__(
        self,
        *,
        learning_rate: float,
        widths: Sequence[int] = (),
        axis: str = WIDTH.name,
        values: Sequence[int] = (),
        precision: float | None = 0.1,
        until_verdict: bool = False,
        seeds: Sequence[int] = (0,),
        edge: bool = False,
        cost: Callable[[int], float] | None = None,
        max_runs: int | None = None,
        study: Path | str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        widths, seeds = read_sizes(axis, widths, values), _whole("seeds", seeds, least=0)
        if not (_is_number(learning_rate) and 0 < float(learning_rate) < math.inf):
            raise ValueError(f"learning_rate is {learning_rate!r}: expected a number above 0")
        if max_runs is not None and max_runs < 1:
            raise ValueError(f"max_runs is {max_runs}: expected 1 or more")
        check_precision(precision, widths, until_verdict=until_verdict, axis=axis)
        self.axis, self.settings = axis, _plain(settings or {})
        cost = cost or AXES[axis].cost
        for width in widths:
            if not 0 < (price := cost(width)) < math.inf:
                raise ValueError(f"cost of {axis} {width} is {price}: expected a number above 0")
        lattice = AdaptiveSearch()
        self._group = GroupSearch(
            search=lattice,
            widths=sorted(widths),
            seeds=seeds,
            start=lattice.index(learning_rate),
            exponent=0.0,
            cost=cost,
            edge=edge,
            precision=precision,
            until_verdict=until_verdict,
        )
        self._most = sys.maxsize if max_runs is None else max_runs
        self._folder = None if study is None else Path(study).absolute()
        self._stored = self._read()
        self.losses: dict[SearchPoint, float] = {}
        self._rounds = self._group.rounds()
        self._batch = _points(next(self._rounds, ()))
        self._advance()

    def ask(self) -> list[SearchPoint]:
        """Return the runs to train next, which can run side by side; none when the search is over.

        Asking again before all of them were told returns those that are left.
        """
        left = [point for point in self._batch if point not in self.losses]
        return left[: self._most - len(self.losses)]

    def tell(self, point: tuple[int, float, int], loss: SupportsFloat) -> None:
        """Record the final eval loss of a run, NaN or infinite if it diverged. With a study, it is stored at once.

        Raises:
            ValueError: If the loss is not a number above 0, or the run was not asked for.
        """
        point = SearchPoint(*point)
        if point in self.losses or point not in self._batch:
            told = "was told before" if point in self.losses else "was not asked for"
            raise ValueError(f"the run with {point.describe(self.axis)} {told}: expected one that ask returned")
        self.losses[point] = self._store(point, _read_loss(point.describe(self.axis), loss))
        self._advance()

    def result(self) -> SweepResult:
        """Return what is known so far.

        Raises:
            ValueError: If nothing is.
        """
        if not self.losses:
            raise ValueError("no run has ended: expected one or more")
        trials = tuple(
            Trial(width=point.width, learning_rate=point.learning_rate, eval_loss=loss, seed=point.seed)
            for point, loss in self.losses.items()
        )
        transfer = fit_transfer(trials, axis=self.axis)
        return SweepResult(
            settings=self.settings,
            trials=trials,
            transfer=transfer,
            missing=tuple(self._missing(transfer.law.exponent)),
            study=self._folder,
        )

    def _advance(self) -> None:
        """Take what is stored, and go on to the next round as soon as this one is complete."""
        while self._batch:
            for point in self._batch:
                if point in self._stored and len(self.losses) < self._most:
                    self.losses.setdefault(point, self._stored[point])
            if any(point not in self.losses for point in self._batch):
                return
            try:
                self._batch = _points(self._rounds.send({self._batch[p]: self.losses[p] for p in self._batch}))
            except StopIteration:
                self._batch = {}

    def _missing(self, exponent: Estimate) -> list[str]:
        found = self._group.proposals.items()
        lines = [f"{self.axis} {width}: {what}" for width, proposal in found for what in proposal.missing]
        known = f"known to ±{exponent.half_width:.2f}" if exponent.half_width < math.inf else "unknown"
        if self._batch:
            over = "out of runs" if not self.ask() else "not finished"
            lines.append(f"{over} after {len(self.losses)} runs, exponent {known}")
        elif self._group.precision is not None and not self._group.reached(exponent):
            lines.append(f"exponent {known} after {len(self.losses)} runs, and no more to try")
        return lines

    def _read(self) -> dict[SearchPoint, float]:
        """Return the losses that the study holds."""
        if self._folder is None:
            return {}
        with Study.open(self._folder) as study:
            return {
                SearchPoint(size_of(row.spec), row.spec["learning_rate"], row.spec["seed"]): row.results["eval_loss"]
                for row in study.runs()
                if row.ended and row.spec.get(OWN) == self.settings and axis_of(row.spec).name == self.axis
            }

    def _store(self, point: SearchPoint, loss: float) -> float:
        """Store a loss; return the one that the study holds, which may have come from elsewhere before."""
        if self._folder is None:
            return loss
        axis = {} if self.axis == WIDTH.name else {"axis": self.axis}
        spec = {**axis, **point.named(self.axis), OWN: self.settings}
        run = key(encode(spec))
        status = "finished" if math.isfinite(loss) else "diverged"
        with Study.open(self._folder) as study:
            study.ask([Request(id=run, request=spec, identity=spec)])
            study.record([Outcome(run=run, status=status, results={"eval_loss": loss})])
            return study.outcomes([run])[run][1]["eval_loss"]


def _points(samples: Sequence[Sample]) -> dict[SearchPoint, Sample]:
    return {SearchPoint(each.width, 2.0**each.octave, each.seed): each for each in samples}


def _read_loss(run: str, loss: Any) -> float:
    value = None
    if _is_number(loss):
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # an array or a tensor of several numbers
            value = float(loss.detach() if hasattr(loss, "detach") else loss)  # PyTorch warns about gradients
    if value is None:
        raise ValueError(f"the loss of the run with {run} is of type {type(loss).__name__}: expected a number")
    if value <= 0:
        raise ValueError(f"the loss of the run with {run} is {value:g}: expected a number above 0, NaN or infinity")
    return value if math.isfinite(value) else math.nan


def read_sizes(axis: str, widths: Sequence[int], values: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes along an axis; raise ValueError where they are those of another, or no sizes."""
    if axis not in AXES:
        raise ValueError(f"axis is {axis!r}: expected one of {', '.join(AXES)}")
    used, unused = (("widths", widths), ("values", values))[:: 1 if axis == WIDTH.name else -1]
    if len(unused[1]):
        raise ValueError(f"{unused[0]} are given but the axis is {axis}: expected {used[0]}")
    return _whole(*used, least=1)


def _whole(name: str, values: Sequence[int], *, least: int) -> tuple[int, ...]:
    given = tuple(values) if isinstance(values, Iterable) else ()
    whole = all(_is_number(one) and float(one).is_integer() and one >= least for one in given)
    if not (given and whole and len(set(given)) == len(given)):
        raise ValueError(f"{name} are {values!r}: expected integers of {least} or more, each once")
    return tuple(map(int, given))


def _is_number(value: Any) -> bool:
    return isinstance(value, SupportsFloat) and not isinstance(value, bool)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if not (isinstance(name, str) and isinstance(value, (str, int, float)) and value == value):
            raise ValueError(f"settings have {name!r}: {value!r}: expected names, and text or numbers")
    encode(settings)  # refuses text that a study cannot hold
    return dict(sorted(settings.items()))  # as a study lists them
