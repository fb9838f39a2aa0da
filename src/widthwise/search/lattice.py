"""The learning-rate search of the experimental details (appendix): which rates to try next, given what is known.

Rates lie on a lattice, 2^(k·step) for integers k, and the search is a pure function of the losses known so far. It
replays itself from its start: each step depends on the results of the steps before it and on nothing else. A search
that was stopped in the middle of a batch therefore proposes the rest of that batch and ends with the same points as
one that ran through; anything else that is known is taken into account at the end.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from widthwise.fit import first_unstable

RESOLUTION = 0.5
"""The largest gap, in log2, between the largest stable and the smallest unstable rate."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What to try next and what is known so far; all rates are lattice indices.

    Attributes:
        points: The rates to try next, side by side; none when the search is over.
        optimum: The rate with the smallest loss.
        largest_stable: The largest rate tried below the smallest unstable one.
        smallest_unstable: The smallest rate above the optimum that diverged or lost more than 20 %.
        missing: What is missing of a complete sweep, in words; empty when complete.
    """

    points: tuple[int, ...]
    optimum: int | None
    largest_stable: int | None
    smallest_unstable: int | None
    missing: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether nothing is left to try; `missing` tells whether that is a success."""
        return not self.points


class _Tried:
    """The rates tried so far, as lattice indices, and the best and the unstable among them.

    Attributes:
        rates: The rates, ascending.
        optimum: The rate with the smallest loss; None if all diverged.
        lower: The next rate below the optimum.
        upper: The next rate above it.
        stable: The largest rate below the smallest unstable one.
        unstable: The smallest rate above the optimum that diverged or lost more than 20 %.
    """

    def __init__(self, losses: Mapping[int, float]) -> None:
        self.rates = sorted(losses)
        finite = np.array([losses[rate] if math.isfinite(losses[rate]) else math.inf for rate in self.rates])
        self._level = np.log(finite)
        self.optimum = self.lower = self.upper = self.stable = None
        self.unstable = min(self.rates, default=None)
        if not np.isfinite(self._level).any():
            return
        best, first = int(np.argmin(self._level)), first_unstable(self._level)
        self.optimum = self.rates[best]
        self.lower = self.rates[best - 1] if best > 0 else None
        self.upper = self.rates[best + 1] if best + 1 < len(self.rates) else None
        self.stable = self.rates[-1 if first is None else first - 1]
        self.unstable = None if first is None else self.rates[first]

    def risen(self, fraction: float) -> bool:
        """Return whether some rate below the optimum is worse by this fraction, or diverged."""
        if self.optimum is None:
            return False
        best = self.rates.index(self.optimum)
        return bool((self._level[:best] > self._level[best] + math.log1p(fraction)).any())


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
            raise ValueError(f"rates from {self.lowest} to {self.highest}: no power of 2^{self.step} lies between")

    @property
    def indices(self) -> range:
        """The indices within the bounds."""
        lowest, highest = (round(math.log2(bound) / self.step, 9) for bound in (self.lowest, self.highest))
        return range(math.ceil(lowest), math.floor(highest) + 1)

    @property
    def most_points(self) -> int:
        """How many rates may be tried."""
        return len(self.indices)

    def rate(self, index: int) -> float:
        """Return the learning rate at an index."""
        return 2.0 ** (index * self.step)

    def index(self, rate: float) -> int:
        """Return the index of the nearest rate.

        >>> Grid(lowest=1e-4, highest=1).index(1e-3)
        -20
        """
        return round(math.log2(rate) / self.step)

    def start_from(self, optimum: int, *, width_ratio: float, exponent: float) -> int:
        """Return the index where the optimum is expected at another width.

        Args:
            optimum: The index of the optimum at a neighbouring width.
            width_ratio: This width over the neighbouring one.
            exponent: How the base learning rate should scale with width: 0 with rates per layer, or what the theory
                says for a global one.

        >>> Grid(lowest=1e-4, highest=1).start_from(-12, width_ratio=2, exponent=-1)
        -14
        """
        return self._within(optimum + round(exponent * math.log2(width_ratio) / self.step))

    def propose(self, losses: Mapping[int, float], start: int, *, edge: bool = False) -> Proposal:
        """Return what to try next.

        Args:
            losses: The mean eval loss over seeds at every index tried; NaN or infinite where training diverged.
            start: The index to start around; the same throughout a search.
            edge: Whether to locate the stability edge too.
        """
        seen: dict[int, float] = {}
        while True:
            points = self._next(seen, self._within(start), edge=edge)
            if any(point not in losses for point in points):
                break
            if points:
                seen.update({point: losses[point] for point in points})
            elif len(seen) < len(losses):
                seen = dict(losses)
            else:
                break
        tried = _Tried(losses)
        return Proposal(
            points=tuple(point for point in points if point not in losses),
            optimum=tried.optimum,
            largest_stable=tried.stable,
            smallest_unstable=tried.unstable,
            missing=tuple(self._missing(tried, edge=edge)),
        )

    @abstractmethod
    def _next(self, seen: Mapping[int, float], start: int, *, edge: bool) -> list[int]:
        """Return the next batch after these results: indices within the bounds that are not among them."""

    def _within(self, index: int) -> int:
        return min(max(index, self.indices[0]), self.indices[-1])

    @property
    def _apart(self) -> int:
        """The largest gap allowed next to the optimum, as a difference of indices."""
        return 1

    @property
    def _gap(self) -> int:
        """The largest gap allowed at the stability edge, as a difference of indices."""
        return math.floor(RESOLUTION / self.step + 1e-9)

    def _missing(self, tried: _Tried, *, edge: bool) -> Iterable[str]:
        if not tried.rates:
            yield "nothing was tried"
        elif tried.optimum is None:
            yield f"every rate diverged, down to {self.rate(tried.rates[0]):.3g}"
        else:
            for end, neighbour in (("lowest", tried.lower), ("highest", tried.upper)):
                if neighbour is None:
                    yield f"optimum at the {end} rate tried, {self.rate(tried.optimum):.3g}"
                elif abs(neighbour - tried.optimum) > self._apart:
                    between = sorted((self.rate(neighbour), self.rate(tried.optimum)))
                    yield "nothing tried next to the optimum, between {:.3g} and {:.3g}".format(*between)
            if not edge:
                return
            if tried.unstable is None or tried.stable is None:
                yield f"no unstable rate up to {self.rate(tried.rates[-1]):.3g}"
            elif tried.unstable - tried.stable > self._gap:
                between = self.rate(tried.stable), self.rate(tried.unstable)
                yield "stability threshold only known to lie between {:.3g} and {:.3g}".format(*between)


@dataclass(frozen=True, kw_only=True)
class Grid(Lattice):
    """Every rate between the bounds, all at once."""

    def _next(self, seen: Mapping[int, float], start: int, *, edge: bool) -> list[int]:
        return [index for index in self.indices if index not in seen]


@dataclass(frozen=True, kw_only=True)
class AdaptiveSearch(Lattice):
    """An adaptive search: coarse around the start, then where something is missing, then fine.

    Several points are proposed at a time, since they can run as lanes. The search first moves until the best rate has
    worse ones on both sides. Then it fills in around it and, if asked, halves the gap at the stability edge.
    """

    lowest: float = 2.0**-24
    highest: float = 2.0**12
    coarse: float = 1.0
    """The distance of rates at first, in log2; a multiple of the step."""
    reach: int = 2
    """Coarse rates to try at a time, in each direction."""
    refine: int = 2
    """Neighbours of the optimum to try on each side, unless a precision is asked for; two make five points."""
    rise: float = 0.05
    """How much worse, as a fraction, some rate below the optimum must be: past the stability edge losses can stay level
    and noisy over many octaves, and a local minimum there is no sign of an optimum."""
    max_points: int = 40
    """The most rates to try."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.coarse >= self.step and (self.coarse / self.step).is_integer()):
            raise ValueError(f"coarse is {self.coarse}: expected a multiple of the step {self.step}")
        for name, least in (("reach", 1), ("refine", 0), ("max_points", 1)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name} is {value}: expected {least} or more")
        if not self.rise >= 0:
            raise ValueError(f"rise is {self.rise}: expected 0 or more")

    @property
    def most_points(self) -> int:
        """How many rates may be tried."""
        return min(len(self.indices), self.max_points)

    @property
    def _apart(self) -> int:
        return 1 if self.refine else round(self.coarse / self.step)

    def _next(self, seen: Mapping[int, float], start: int, *, edge: bool) -> list[int]:
        if not seen:
            return self._new([*self._beyond(start, -1), start, *self._beyond(start, 1)], seen)
        tried = _Tried(seen)
        return self._new(self._bracketing(tried), seen) or self._new(self._refining(tried, edge=edge), seen)

    def _new(self, wanted: Iterable[int], seen: Mapping[int, float]) -> list[int]:
        points = {self._within(index) for index in wanted} - seen.keys()
        return sorted(points)[: max(0, self.max_points - len(seen))]

    def _beyond(self, index: int, direction: int) -> list[int]:
        spacing = round(self.coarse / self.step)
        return [index + direction * spacing * count for count in range(1, self.reach + 1)]

    def _bracketing(self, tried: _Tried) -> list[int]:
        """Return rates beyond the best one where none were tried, or none that are clearly worse."""
        down = [] if tried.risen(self.rise) else self._beyond(tried.rates[0], -1)
        up = self._beyond(tried.rates[-1], 1) if tried.optimum is not None and tried.upper is None else []
        return down + up

    def _refining(self, tried: _Tried, *, edge: bool) -> list[int]:
        """Return rates around the optimum and, if wanted, at the stability edge."""
        if tried.optimum is None:
            return []
        wanted = [tried.optimum + distance for distance in range(-self.refine, self.refine + 1)]
        if tried.unstable is None or tried.stable is None:
            return wanted + (self._beyond(tried.rates[-1], 1) if edge else [])
        if edge and tried.unstable - tried.stable > self._gap:
            wanted.append((tried.stable + tried.unstable) // 2)
        return [index for index in wanted if index < tried.unstable]
