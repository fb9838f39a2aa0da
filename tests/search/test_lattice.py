"""The learning-rate search ends where the full grid would, with far fewer points, however it is started or stopped."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.search.lattice import AdaptiveSearch, Grid, Lattice, Proposal

NARROW = {"lowest": 2.0**-10, "highest": 2.0**4, "max_points": 1000}


@dataclass(frozen=True)
class Valley:
    """A loss with one minimum, and a cliff that training falls off; in octaves."""

    optimum: float
    left: float
    right: float
    power: float
    cliff: float

    def at(self, rate: float) -> float:
        x = math.log2(rate) - self.optimum
        if x > self.cliff:
            return math.nan
        return 3 + (self.right if x > 0 else self.left) * abs(x) ** self.power


valleys = st.builds(
    Valley,
    optimum=st.floats(-12, 6),
    left=st.floats(0.01, 2),
    right=st.floats(0.01, 2),
    power=st.floats(1, 3),
    cliff=st.floats(-3, 6) | st.just(math.inf),
)
searches = st.builds(
    AdaptiveSearch,
    step=st.sampled_from([0.5, 0.25]),
    coarse=st.sampled_from([0.5, 1.0, 4.0]),
    reach=st.integers(1, 3),
    refine=st.integers(1, 3),
    **{name: st.just(value) for name, value in NARROW.items()},
)
starts = st.integers(-60, 40)


def run(
    lattice: Lattice, loss: Callable[[int], float], start: int, *, edge: bool = True
) -> tuple[Proposal, dict[int, float], int]:
    """Search to the end; give the end, all losses, and the number of batches."""
    losses: dict[int, float] = {}
    for batches in range(1000):
        proposal = lattice.propose(losses, start, edge=edge)
        if proposal.done:
            return proposal, losses, batches
        assert not losses.keys() & set(proposal.points), "a point was asked for twice"
        assert set(proposal.points) <= set(lattice.indices)
        losses |= {index: loss(index) for index in proposal.points}
    raise AssertionError("the search does not end")


def whole(search: AdaptiveSearch) -> Grid:
    return Grid(lowest=search.lowest, highest=search.highest, step=search.step)


@given(search=searches, valley=valleys, start=starts)
def test_a_search_finds_what_the_grid_finds(search: AdaptiveSearch, valley: Valley, start: int):
    def loss(index: int) -> float:
        return valley.at(search.rate(index))

    found, losses, _ = run(search, loss, start)
    truth, _, _ = run(whole(search), loss, 0)
    assert bool(found.missing) == bool(truth.missing)
    if truth.optimum is None:
        assert found.optimum is None
    else:
        assert found.optimum is not None
        assert losses[found.optimum] == loss(truth.optimum)
    if not found.missing:
        assert found.largest_stable is not None
        assert found.smallest_unstable is not None
        assert truth.smallest_unstable is not None
        assert search.rate(found.smallest_unstable) / search.rate(found.largest_stable) <= 2**0.5 * (1 + 1e-9)
        assert found.largest_stable < truth.smallest_unstable <= found.smallest_unstable


@given(search=searches, valley=valleys, start=starts)
def test_without_the_edge_it_finds_the_optimum_of_the_grid_and_misses_nothing_else(
    search: AdaptiveSearch, valley: Valley, start: int
):
    def loss(index: int) -> float:
        return valley.at(search.rate(index))

    found, losses, _ = run(search, loss, start, edge=False)
    truth, _, _ = run(whole(search), loss, 0, edge=False)
    assert bool(found.missing) == bool(truth.missing)
    assert not any("stab" in line for line in found.missing)  # "stability threshold", "no unstable rate"
    if truth.optimum is not None:
        assert found.optimum is not None
        assert losses[found.optimum] == loss(truth.optimum)


@pytest.mark.parametrize(("last", "missing"), [(5, ()), (60, ("no unstable rate up to 4.1e+03",))])
def test_without_the_edge_no_run_is_spent_on_it(last: int, missing: tuple[str, ...]):
    def loss(index: int) -> float:
        return math.nan if index > last else 3 + 0.01 * min(index, 6) ** 2

    found, losses, _ = run(AdaptiveSearch(), loss, start=0, edge=False)
    assert (found.optimum, found.missing) == (0, ())
    assert set(losses) == {-4, -2, -1, 0, 1, 2, 4}
    with_edge, more, _ = run(AdaptiveSearch(), loss, start=0)
    assert (with_edge.optimum, with_edge.missing) == (0, missing)
    assert losses.keys() < more.keys()


@given(search=searches, start=starts, seed=st.integers(0, 10_000), diverged=st.floats(0, 1))
def test_noise_does_not_make_it_loop(search: AdaptiveSearch, start: int, seed: int, diverged: float):
    rng = random.Random(seed)
    noise = {index: math.nan if rng.random() < diverged else rng.uniform(1, 2) for index in search.indices}
    found, losses, _ = run(search, noise.__getitem__, start)
    finite = {index: value for index, value in losses.items() if math.isfinite(value)}
    assert found.optimum == (min(finite, key=finite.__getitem__) if finite else None)


@given(search=searches, valley=valleys, start=starts, seed=st.integers(0, 10_000))
def test_a_search_that_is_stopped_anywhere_ends_with_the_same_points(
    search: AdaptiveSearch, valley: Valley, start: int, seed: int
):
    def loss(index: int) -> float:
        return valley.at(search.rate(index))

    rng = random.Random(seed)
    losses: dict[int, float] = {}
    while points := search.propose(losses, start, edge=True).points:
        finished = rng.sample(points, rng.randint(1, len(points)))
        losses |= {index: loss(index) for index in finished}
    assert losses.keys() == run(search, loss, start)[1].keys()


@pytest.mark.parametrize(("step", "most"), [(0.5, 10), (0.25, 12)])
def test_a_good_start_saves_most_of_the_grid(step: float, most: float):
    rng = random.Random(0)
    search = AdaptiveSearch(step=step)
    used, batches = [], []
    for _ in range(300):
        valley = Valley(rng.uniform(-14, 0), rng.uniform(0.03, 0.3), rng.uniform(0.03, 0.3), 2, rng.uniform(0.5, 4))
        start = search.index(2 ** (valley.optimum + rng.gauss(0, 0.75)))
        found, losses, count = run(search, lambda index, valley=valley: valley.at(search.rate(index)), start)
        assert not found.missing
        used.append(len(losses))
        batches.append(count)
    assert sum(used) / 300 < most
    assert sum(batches) / 300 < 3.5
    assert most < len(search.indices) / 6


def test_a_start_far_above_the_edge_comes_down_from_the_plateau():
    noise = random.Random(1)
    plateau = {index: 7 + noise.uniform(-0.1, 0.1) for index in range(-60, 40)}
    valley = Valley(optimum=-8, left=0.2, right=0.05, power=2, cliff=2)

    def loss(index: int) -> float:
        depth = valley.at(search.rate(index))
        return plateau[index] if math.isnan(depth) or depth > 7 else depth

    search = AdaptiveSearch()
    found, losses, _ = run(search, loss, start=0)
    assert (found.optimum, found.smallest_unstable, found.missing) == (-16, -11, ())
    assert len(losses) < 25


def test_everything_diverged_goes_down_and_says_so():
    search = AdaptiveSearch(lowest=2.0**-10, highest=1)
    assert max(search.propose({-4: math.nan, -2: math.inf, 0: math.nan}, -2).points) < -4
    found, losses, _ = run(search, lambda index: math.nan, start=-2)
    assert min(losses) == -20
    assert found.optimum is None
    assert found.smallest_unstable == -20
    assert found.missing == ("every rate diverged, down to 0.000977",)


def test_nothing_diverged_goes_up_and_says_so():
    search = AdaptiveSearch(lowest=2.0**-10, highest=1)
    found, losses, _ = run(search, lambda index: 3 + 1e-3 * (index + 10) ** 2, start=-14)
    assert max(losses) == 0
    assert (found.optimum, found.largest_stable, found.smallest_unstable) == (-10, 0, None)
    assert found.missing == ("no unstable rate up to 1",)


@pytest.mark.parametrize(
    ("slope", "missing"),
    [
        (1.0, "optimum at the lowest rate tried, 0.0312"),
        (-1.0, "optimum at the highest rate tried, 1"),
    ],
)
def test_an_optimum_at_a_bound_is_said(slope: float, missing: str):
    search = AdaptiveSearch(lowest=2.0**-5, highest=1)
    found, _, _ = run(search, lambda index: 20 + slope * index, start=-4)
    assert missing in found.missing


def test_a_budget_is_kept_and_what_it_leaves_open_is_said():
    search = AdaptiveSearch(max_points=5)
    found, losses, _ = run(search, lambda index: math.nan if index > 2 else 3 + 0.1 * (index + 2) ** 2, start=0)
    assert sorted(losses) == [-4, -2, 0, 2, 4]
    assert found.missing == (
        "nothing tried next to the optimum, between 0.25 and 0.5",
        "nothing tried next to the optimum, between 0.5 and 1",
        "stability threshold only known to lie between 1 and 2",
    )


def test_unstable_is_above_the_optimum_and_a_fifth_worse():
    grid = Grid(lowest=2.0**-3, highest=1)
    losses = {-6: math.nan, -5: 5.0, -4: 2.0, -3: 2.4, -2: 2.41, -1: 2.1, 0: math.nan}
    found = grid.propose(losses, 0)
    assert (found.optimum, found.largest_stable, found.smallest_unstable) == (-4, -3, -2)
    assert found.done
    assert not found.missing


def test_a_grid_is_tried_at_once_and_never_twice():
    grid = Grid(lowest=2.0**-2, highest=2.0**-0.5, step=0.25)
    assert grid.propose({}, 0).points == (-8, -7, -6, -5, -4, -3, -2)
    assert grid.propose({-8: 1.0, -5: 1.0}, 0).points == (-7, -6, -4, -3, -2)


def test_what_was_known_before_is_taken_into_account():
    search = AdaptiveSearch()
    near = {index: 3 + 0.1 * (index + 10) ** 2 for index in range(-20, 0)}
    far = {-40: 4.0, -39: 2.0, -38: 4.0}
    assert search.propose(near, -10).optimum == -10
    assert search.propose(near | far, -10).optimum == -39
    assert search.propose(near | far, -10).points == (-41,)


def test_a_start_follows_the_neighbour_and_the_exponent():
    search = AdaptiveSearch(step=0.25, lowest=2.0**-10, highest=1)
    assert search.start_from(-12, width_ratio=4, exponent=0) == -12
    assert search.start_from(-12, width_ratio=4, exponent=-0.5) == -16
    assert search.start_from(-12, width_ratio=0.5, exponent=-1) == -8
    assert search.start_from(-12, width_ratio=2**20, exponent=-1) == -40


@given(index=st.integers(-100, 100), step=st.sampled_from([0.5, 0.25]))
def test_rates_and_indices_are_inverse(index: int, step: float):
    search = AdaptiveSearch(step=step)
    assert search.index(search.rate(index)) == index


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step": 0.75}, "step is 0.75"),
        ({"lowest": 1.0, "highest": 0.5}, "rates from 1.0 to 0.5"),
        ({"lowest": 1.1, "highest": 1.2}, "no power"),
        ({"coarse": 0.75}, "coarse is 0.75"),
        ({"reach": 0}, "reach is 0"),
        ({"rise": -1.0}, "rise is -1.0"),
    ],
    ids=lambda value: str(value),
)
def test_wrong_settings_are_refused(wrong: dict[str, float], message: str):
    with pytest.raises(ValueError, match=message):
        AdaptiveSearch(**wrong)
