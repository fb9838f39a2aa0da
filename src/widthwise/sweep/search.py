"""The learning-rate search of the experimental details (appendix): which rates to try next, given what is known.

Rates lie on a lattice, 2^(k·step) for integers k, and the search is a pure function of the losses known so far. It
replays itself from its start: a step is taken on the results of the steps before and of nothing else. A search that
was stopped in the middle of a batch therefore asks for the rest of that batch, and ends with the same points as one
that was not; whatever is known beyond that is taken into account at the end.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from widthwise.sweep.reading import Reading

RESOLUTION = 0.5
"""The largest gap, in log2, between the largest stable and the smallest unstable rate."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What to try next, and what is known so far; all rates are lattice indices.

    Attributes:
        points: The rates to try next, side by side; none when the search is over.
        optimum: The rate with the smallest loss.
        largest_stable: The largest rate tried below the smallest unstable one.
        smallest_unstable: The smallest rate above the optimum that diverged or lost more than 20 %.
        missing: What a complete sweep has and this one does not, in words; empty when complete.
    """

    points: tuple[int, ...]
    optimum: int | None
    largest_stable: int | None
    smallest_unstable: int | None
    missing: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether nothing is left to try; `missing` says whether that is a success."""
        return not self.points


@dataclass(frozen=True, kw_only=True)
class Lattice(ABC):
    """Learning rates 2^(k·step) between two bounds, and an order in which to try them."""

    lowest: float
    """The lower bound of learning rates."""
    highest: float
    """The upper bound of learning rates."""
    step: float = 0.5
    """The distance of neighbouring rates, in log2: 0.5 or 0.25 in the paper."""

    def __post_init__(self) -> None:
        if not 0 < self.step <= RESOLUTION:
            raise ValueError(f"step is {self.step}: expected a number above 0, up to {RESOLUTION}")
        if not 0 < self.lowest < self.highest < math.inf:
            raise ValueError(f"rates from {self.lowest} to {self.highest}: expected 0 < lowest < highest")
        if not self.indices:
            raise ValueError(f"rates from {self.lowest} to {self.highest}: no multiple of 2^{self.step} lies between")

    @property
    def indices(self) -> range:
        """The indices within the bounds."""
        lowest, highest = (round(math.log2(bound) / self.step, 9) for bound in (self.lowest, self.highest))
        return range(math.ceil(lowest), math.floor(highest) + 1)

    def rate(self, index: int) -> float:
        """Give a learning rate."""
        return 2.0 ** (index * self.step)

    def index(self, rate: float) -> int:
        """Give the index of the rate nearest to this one.

        >>> Grid(lowest=1e-4, highest=1).index(1e-3)
        -20
        """
        return round(math.log2(rate) / self.step)

    def start_from(self, optimum: int, *, width_ratio: float, exponent: float) -> int:
        """Predict where the optimum lies at another width, to start there.

        Args:
            optimum: The index of the optimum at a neighbouring width.
            width_ratio: This width over the neighbouring one.
            exponent: How the base learning rate should scale with width: 0 with rates per layer, or what the theory
                says for a global one.

        >>> Grid(lowest=1e-4, highest=1).start_from(-12, width_ratio=2, exponent=-1)
        -14
        """
        return self._within(optimum + round(exponent * math.log2(width_ratio) / self.step))

    def propose(self, losses: Mapping[int, float], start: int) -> Proposal:
        """Say what to try next.

        Args:
            losses: The eval loss at every index tried, the mean over seeds; NaN or infinite where training diverged.
            start: The index to start around. Keep it the same throughout a search.
        """
        seen: dict[int, float] = {}
        while True:
            points = self._next(seen, self._within(start))
            if any(point not in losses for point in points):
                break
            if points:
                seen.update({point: losses[point] for point in points})
            elif len(seen) < len(losses):
                seen = dict(losses)
            else:
                break
        reading = Reading.of(losses)
        return Proposal(
            points=tuple(point for point in points if point not in losses),
            optimum=reading.optimum,
            largest_stable=reading.stable,
            smallest_unstable=reading.unstable,
            missing=tuple(self._missing(reading)),
        )

    @abstractmethod
    def _next(self, seen: Mapping[int, float], start: int) -> list[int]:
        """Give the next batch after these results: indices within the bounds that are not among them."""

    def _within(self, index: int) -> int:
        return min(max(index, self.indices[0]), self.indices[-1])

    @property
    def _gap(self) -> int:
        """The largest gap allowed at the stability threshold, as a difference of indices."""
        return math.floor(RESOLUTION / self.step + 1e-9)

    def _missing(self, reading: Reading) -> Iterable[str]:
        if not reading.tried:
            yield "nothing was tried"
        elif reading.optimum is None:
            yield f"every rate diverged, down to {self.rate(reading.tried[0]):.3g}"
        else:
            for end, neighbour in (("lowest", reading.lower), ("highest", reading.upper)):
                if neighbour is None:
                    yield f"optimum at the {end} rate tried, {self.rate(reading.optimum):.3g}"
                elif abs(neighbour - reading.optimum) > 1:
                    between = sorted((self.rate(neighbour), self.rate(reading.optimum)))
                    yield "nothing tried next to the optimum, between {:.3g} and {:.3g}".format(*between)
            if reading.unstable is None or reading.stable is None:
                yield f"no unstable rate up to {self.rate(reading.tried[-1]):.3g}"
            elif reading.unstable - reading.stable > self._gap:
                between = self.rate(reading.stable), self.rate(reading.unstable)
                yield "stability threshold only known to lie between {:.3g} and {:.3g}".format(*between)


@dataclass(frozen=True, kw_only=True)
class Grid(Lattice):
    """Every rate between the bounds, all at once."""

    def _next(self, seen: Mapping[int, float], start: int) -> list[int]:
        return [index for index in self.indices if index not in seen]


@dataclass(frozen=True, kw_only=True)
class Search(Lattice):
    """An adaptive search: coarse around the start, then where something is missing, then fine.

    Several points are proposed at a time, since they can run as lanes. The search first moves until the best rate has
    worse ones on both sides, then fills in around it and halves the gap at the stability threshold, in one batch.
    """

    lowest: float = 2.0**-24
    highest: float = 2.0**12
    coarse: float = 1.0
    """The distance of rates at first, in log2; a multiple of the step."""
    reach: int = 2
    """How many coarse rates to try at a time, in each direction."""
    refine: int = 2
    """How many neighbours of the optimum to try on each side; two make five points for a parabola."""
    rise: float = 0.05
    """How much worse, as a fraction, some rate below the optimum must be.

    Past the edge of stability losses can stay level and noisy over many octaves: being the best of its neighbours is no
    sign of an optimum there.
    """
    max_points: int = 40
    """The most rates to try."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.coarse >= self.step and (self.coarse / self.step).is_integer()):
            raise ValueError(f"coarse is {self.coarse}: expected a multiple of the step {self.step}")
        for name in ("reach", "refine", "max_points"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if not self.rise >= 0:
            raise ValueError(f"rise is {self.rise}: expected 0 or more")

    def _next(self, seen: Mapping[int, float], start: int) -> list[int]:
        if not seen:
            return self._new([*self._beyond(start, -1), start, *self._beyond(start, 1)], seen)
        reading = Reading.of(seen)
        return self._new(self._bracketing(reading), seen) or self._new(self._refining(reading), seen)

    def _new(self, wanted: Iterable[int], seen: Mapping[int, float]) -> list[int]:
        points = {self._within(index) for index in wanted} - seen.keys()
        return sorted(points)[: max(0, self.max_points - len(seen))]

    def _beyond(self, index: int, direction: int) -> list[int]:
        spacing = round(self.coarse / self.step)
        return [index + direction * spacing * count for count in range(1, self.reach + 1)]

    def _bracketing(self, reading: Reading) -> list[int]:
        """Give rates beyond the best one where there are none, or none that are clearly worse."""
        down = [] if reading.risen(self.rise) else self._beyond(reading.tried[0], -1)
        up = self._beyond(reading.tried[-1], 1) if reading.optimum is not None and reading.upper is None else []
        return down + up

    def _refining(self, reading: Reading) -> list[int]:
        """Give rates around the optimum and at the stability threshold."""
        if reading.optimum is None:
            return []
        wanted = [reading.optimum + distance for distance in range(-self.refine, self.refine + 1)]
        if reading.unstable is None or reading.stable is None:
            return wanted + self._beyond(reading.tried[-1], 1)
        if reading.unstable - reading.stable > self._gap:
            wanted.append((reading.stable + reading.unstable) // 2)
        return [index for index in wanted if index < reading.unstable]
