"""The search of one group, round by round: learning rates at every width, and then what narrows the exponent.

Widths follow each other from the smallest up: the optimum of one, moved by the theory's exponent, is where the search
at the next begins. If a precision is asked for, these searches only find where the optima are. Then all widths are
fitted at once, and the runs that narrow the exponent's interval most for their FLOPs come next, whatever their width,
rate and seed, until the interval is narrow enough. Losses of two settings are compared seed by seed, so they may ask
for a number of seeds at the optima of the smallest and the largest width. A last run tries the optimum of the smallest
width at the largest.

Every round depends on the losses of the rounds before it and on nothing else. So a sweep that was killed, and one that
finds its runs in the study, takes the same path as one that ran through.
"""

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from widthwise.fit import Estimate, TransferOutcome, Trial, curves, find_optima, judge, mean_loss, student
from widthwise.fit.design import Sample, choose, near_optimum
from widthwise.fit.landscape import finest
from widthwise.fit.optimum import Optima, Optimum
from widthwise.fit.powerlaw import PowerLaw, fit_power_law
from widthwise.search.lattice import AdaptiveSearch, Lattice, Proposal

Rounds: TypeAlias = Generator[Sequence[Sample], Mapping[Sample, float], None]
"""Yields the points to try next, and is sent their losses; those of runs that failed are missing."""

SHARE = 0.25
"""The most that a round may cost, as a share of what was spent before it: later rounds know better what to try."""
KNOWN_RISE = 0.02
"""How much worse, as a fraction, a rate below the optimum must be where the shape is known from narrower widths."""


def check_precision(
    precision: float | None, widths: Sequence[int], *, until_verdict: bool, axis: str = "width"
) -> None:
    """Raise ValueError for a precision that these widths, or values of another axis, cannot reach."""
    values = "widths" if axis == "width" else "values"
    if precision is None:
        if until_verdict:
            raise ValueError("until_verdict without a precision: expected both")
        return
    if not 0 < precision < math.inf:
        raise ValueError(f"precision is {precision}: expected a number above 0")
    if len(widths) < 2:
        raise ValueError(f"precision is {precision} with one {axis}: expected two {values} or more")
    if precision <= (least := finest(widths)):
        least = math.ceil(100 * least + 1) / 100
        raise ValueError(
            f"precision is {precision}: expected {least} or more with {values} {min(widths)} to {max(widths)}, "
            f"or a larger range of {values}"
        )


@dataclass(kw_only=True)
class GroupSearch:
    """The search of a group, and what it has found so far.

    Attributes:
        search: Which rates to try.
        widths: The widths, ascending.
        seeds: Seeds of every width; with a precision, searches use only the first one, and the others follow at the
            optimum of each width.
        start: The index of the rate to start at, at the smallest width.
        exponent: How the optimal rate is expected to change with width.
        cost: Returns the cost of a run of a width, such as its FLOPs.
        edge: Whether to locate the stability edge of every width.
        precision: The half-width of the exponent's interval to reach; None to only search every width.
        until_verdict: Whether to stop before that if the verdict is clear.
        loss_seeds: How many seeds to train at the optima of the smallest and the largest width.
        known: The losses, NaN where training diverged.
        proposals: What the search at each width found.
        failed: Whether it is over because a run failed.
    """

    search: Lattice
    widths: Sequence[int]
    seeds: Sequence[int]
    start: int
    exponent: float
    cost: Callable[[int], float]
    edge: bool = False
    precision: float | None = None
    until_verdict: bool = False
    loss_seeds: int = 0
    known: dict[Sample, float] = field(default_factory=dict[Sample, float], init=False)
    proposals: dict[int, Proposal] = field(default_factory=dict[int, Proposal], init=False)
    failed: bool = field(default=False, init=False)

    def rounds(self) -> Rounds:
        """Yield points to try until the search is over, or until a run failed: then there is nothing to decide on."""
        for batch in self._batches():
            losses = yield batch
            self.known |= losses
            if any(point not in losses for point in batch):
                self.failed = True
                return

    @property
    def most_runs(self) -> int:
        """The most runs of a width."""
        if self.precision is not None and isinstance(self.search, AdaptiveSearch):
            return self.search.max_points
        return len(self.seeds) * self.search.most_points

    @property
    def law(self) -> PowerLaw:
        """The power law of the optimal rates."""
        return fit_power_law(self._optima().runs)

    def reached(self, exponent: Estimate) -> Literal["precision", "verdict"] | None:
        """Return what was asked for and is reached with this exponent; None if nothing is."""
        if self.precision is not None and exponent.half_width <= self.precision:
            return "precision"
        return "verdict" if self.until_verdict and judge(exponent) is not TransferOutcome.CANNOT_TELL else None

    def _batches(self) -> Generator[Sequence[Sample]]:
        start, before = self.start, self.widths[0]
        for width in self.widths:
            search = self.search_at(width)
            start = search.start_from(start, width_ratio=width / before, exponent=self.exponent)
            while (proposal := search.propose(self._losses(width), start, edge=self.edge)).points:
                yield [Sample(width, index * search.step, seed) for index in proposal.points for seed in self._searched]
            self.proposals[width] = proposal
            start, before = (start if proposal.optimum is None else proposal.optimum), width
        if self.precision is not None:
            while batch := self._narrowing(self.precision) or self._seeding():
                yield batch
        if batch := self._repeating():
            yield batch
        if self.precision is not None and (batch := self._reusing()):
            yield batch

    @property
    def _searched(self) -> Sequence[int]:
        """The seeds that searches use; with a precision, others follow as needed."""
        return self.seeds if self.precision is None else self.seeds[:1]

    def search_at(self, width: int) -> Lattice:
        """Return the search at a width: with a precision, it only finds where the optimum is."""
        if self.precision is None or not isinstance(self.search, AdaptiveSearch):
            return self.search
        if width == self.widths[0]:
            return replace(self.search, refine=0)
        return replace(self.search, refine=0, reach=1, rise=min(self.search.rise, KNOWN_RISE))

    def _losses(self, width: int) -> dict[int, float]:
        """Return the mean loss at every index tried, over the seeds that searches use."""
        losses: dict[int, list[float]] = {}
        for point, loss in self.known.items():
            if point.width == width and point.seed in self._searched:
                losses.setdefault(round(point.octave / self.search.step), []).append(loss)
        return {index: mean_loss(each) for index, each in losses.items()}

    def _optima(self) -> Optima:
        trials = [
            Trial(width=point.width, learning_rate=2.0**point.octave, eval_loss=loss, seed=point.seed)
            for point, loss in self.known.items()
        ]
        return find_optima(curves(trials))

    def _narrowing(self, precision: float) -> list[Sample]:
        """Return the runs that narrow the exponent most for their cost; none when it is precise enough."""
        optima = self._optima()
        if beyond := self._beyond(optima):
            return beyond
        landscape = (law := fit_power_law(optima.runs)).landscape
        if landscape is None or self.reached(law.exponent):
            return []
        # Runs narrow one part of the interval; the rest is there however many there are.
        fixed, now = student(math.inf) * landscape.least([0.0, 1.0]), law.exponent.half_width
        if precision <= fixed:
            return []
        step, taken = self.search.step, Counter(point.width for point in self.known)
        candidates = {
            optimum.width: [
                octave
                for octave in (index * step for index in self.search.indices)
                if near_optimum(landscape, Sample(optimum.width, octave, 0))
                and (optimum.edge.smallest_unstable is None or 2.0**octave < optimum.edge.smallest_unstable)
            ]
            for optimum in optima.known
            if taken[optimum.width] < self.most_runs
        }
        used = {width: {point.seed for point in self.known if point.width == width} for width in self.widths}
        chosen = choose(
            landscape,
            [point for point in self.known if point.width in law.widths],
            candidates=candidates,
            new_seeds={width: self._new_seed(used[width]) for width in candidates},
            cost=self.cost,
            factor=math.sqrt((precision**2 - fixed**2) / max(now**2 - fixed**2, precision**2 - fixed**2)),
            most_cost=SHARE * sum(self.cost(width) * count for width, count in taken.items()),
        )
        return [
            point
            for place, point in enumerate(chosen)
            if taken[point.width] + sum(before.width == point.width for before in chosen[:place]) < self.most_runs
        ]

    def _seeding(self) -> list[Sample]:
        """Return a run at the optimum of each width for those of the seeds that it has not seen."""
        new: list[Sample] = []
        for optimum in self._optima().known:
            left = self.most_runs - sum(point.width == optimum.width for point in self.known)
            new += self._at(optimum, self.seeds)[: max(left, 0)]
        return new

    def _at(self, optimum: Optimum, seeds: Sequence[int]) -> list[Sample]:
        """Return a run at an optimum for those of some seeds that its width has not seen."""
        used = {point.seed for point in self.known if point.width == optimum.width}
        return [Sample(optimum.width, self._nearest(optimum), seed) for seed in seeds if seed not in used]

    def _nearest(self, optimum: Optimum) -> float:
        """Return the rate on the lattice that is nearest to an optimum, in octaves."""
        return round(optimum.octaves.value / self.search.step) * self.search.step

    def _repeating(self) -> list[Sample]:
        """Return the runs that complete the seeds that losses are compared with.

        The largest width is what settings are compared at, and the smallest tells how losses fall from there.
        """
        seeds = list(self.seeds)
        while len(seeds) < self.loss_seeds:
            seeds.append(self._new_seed(set(seeds)))
        ends = (self.widths[0], self.widths[-1])
        optima = self._optima().known if self.loss_seeds else ()
        return [new for one in optima if one.width in ends for new in self._at(one, seeds[: self.loss_seeds])]

    def _reusing(self) -> list[Sample]:
        """Return the run that shows what reusing the optimum of the smallest width costs at the largest one."""
        optima = self._optima().known
        if len(optima) < 2:
            return []
        index = round(optima[0].octaves.value / self.search.step)
        sample = Sample(self.widths[-1], index * self.search.step, self.seeds[0])
        tried = [known.octave for known in self.known if known.width == sample.width]
        inside = min(tried) <= sample.octave <= max(tried)  # then the fit says what it costs
        return [] if inside or index not in self.search.indices or len(tried) >= self.most_runs else [sample]

    def _beyond(self, optima: Optima) -> list[Sample]:
        """Return rates beyond the best one of each width that has it at an end, if there are any in the bounds."""
        found: list[Sample] = []
        for optimum in optima.each:
            if optimum.interior:
                continue
            tried = [round(point.octave / self.search.step) for point in self.known if point.width == optimum.width]
            index = min(tried) - 1 if not optimum.lower_tried else max(tried) + 1
            if index in self.search.indices and len(tried) < self.most_runs:
                found.append(Sample(optimum.width, index * self.search.step, self.seeds[0]))
        return found

    def _new_seed(self, used: set[int]) -> int:
        """Return the next seed: of those given, and then counting up."""
        return next((seed for seed in self.seeds if seed not in used), max(used | set(self.seeds)) + 1)
