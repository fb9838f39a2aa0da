"""The search of a group reaches the precision asked for, from what is known and nothing else, and always ends."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sweeps.simulated import Landscape
from widthwise.fit import Trial, curves, find_optima
from widthwise.fit.design import Sample
from widthwise.search.lattice import AdaptiveSearch, Grid
from widthwise.search.rounds import GroupSearch

WIDTHS = (32, 64, 128, 256)
GROUP = GroupSearch(
    search=AdaptiveSearch(),
    widths=WIDTHS,
    seeds=(0,),
    start=-11,
    exponent=-0.5,
    cost=lambda width: width**2,
    precision=0.1,
)
LANDSCAPE = Landscape()
Losses = Callable[[Sample], float]


def carry_out(group: GroupSearch, losses: Losses = LANDSCAPE.loss, *, most: int = 1000) -> list[list[Sample]]:
    """Search to the end, or for some rounds; return the rounds."""
    rounds, asked = group.rounds(), list[list[Sample]]()
    batch = next(rounds, None)
    while batch and len(asked) < most:
        asked.append(list(batch))
        try:
            batch = rounds.send({point: losses(point) for point in batch})
        except StopIteration:
            batch = None
    assert len(asked) < 1000 or most < 1000, "the search does not end"
    return asked


def trials_of(group: GroupSearch) -> list[Trial]:
    return [
        Trial(width=point.width, learning_rate=2.0**point.octave, eval_loss=loss, seed=point.seed)
        for point, loss in group.known.items()
    ]


def fresh(**changes) -> GroupSearch:
    return replace(GROUP, **changes)


def spent(group: GroupSearch) -> float:
    return sum(group.cost(point.width) for point in group.known)


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.0])
def test_the_precision_is_reached_and_the_interval_holds_the_truth(exponent: float):
    group = fresh(exponent=-0.5)
    carry_out(group, Landscape(exponent=exponent).loss)
    law = group.law.exponent
    assert law.half_width <= 0.1
    assert law.contains(exponent)
    assert not group.failed


def test_a_finer_precision_takes_more_and_begins_with_the_same_rounds():
    coarse, fine = fresh(precision=0.3), fresh(precision=0.06)
    first, second = carry_out(coarse), carry_out(fine)
    assert fine.law.exponent.half_width <= 0.06 < coarse.law.exponent.half_width <= 0.3
    assert spent(fine) > spent(coarse)
    assert second[: len(WIDTHS)] == first[: len(WIDTHS)]


def test_no_run_is_asked_for_twice_and_all_lie_on_the_lattice():
    asked = [point for batch in carry_out(fresh(precision=0.05)) for point in batch]
    assert len(set(asked)) == len(asked)
    assert all(round(point.octave / 0.5) * 0.5 == point.octave for point in asked)


def test_every_width_gets_every_seed_that_was_asked_for():
    for exponent in (0.0, -1.0):  # the second drifts, and its verdict ends the search early
        group = fresh(seeds=(0, 5), until_verdict=True, precision=0.2)
        carry_out(group, Landscape(exponent=exponent).loss)
        for width in WIDTHS:
            seeds = [point.seed for point in group.known if point.width == width]
            assert {0, 5} <= set(seeds)
            assert seeds.count(5) < seeds.count(0)


def test_what_is_known_decides_the_path_alone():
    landscape, whole, again = Landscape(noise=0.01), fresh(), fresh()
    rounds = carry_out(whole, landscape.loss)
    assert len(rounds) > len(WIDTHS) + 1
    assert carry_out(again, whole.known.__getitem__) == rounds
    assert again.law == whole.law
    for most in range(1, len(rounds)):
        stopped = fresh()
        assert carry_out(stopped, whole.known.__getitem__, most=most) == rounds[:most]
        assert list(stopped.known) == [point for batch in rounds[:most] for point in batch]


@pytest.mark.parametrize("at", [0, 3, 6])
def test_it_ends_where_a_run_failed(at: int):
    group, landscape = fresh(precision=0.05), Landscape(noise=0.01)
    rounds = group.rounds()
    batch = list(next(rounds))
    for _ in range(at):
        batch = list(rounds.send({point: landscape.loss(point) for point in batch}))
    with pytest.raises(StopIteration):
        rounds.send({point: landscape.loss(point) for point in batch[1:]})
    assert group.failed
    assert batch[0] not in group.known
    assert set(batch[1:]) <= group.known.keys()


def test_an_optimum_that_turns_out_to_lie_at_an_end_is_followed():
    """At width 64 there is a deeper valley, 2.5 octaves below the one that its search finds."""
    landscape = Landscape(noise=0.002, spread=0.0)
    deeper = landscape.optimum(64) - 2.5

    def losses(point: Sample) -> float:
        away = point.octave - deeper
        return 2 + abs(away) if point.width == 64 and away < 1.3 else landscape.loss(point)

    group = fresh(precision=0.07)
    carry_out(group, losses)
    assert group.proposals[64].optimum == 2 * landscape.optimum(64)
    tried = {point.octave for point in group.known if point.width == 64}
    assert {deeper - 1, deeper - 0.5, deeper} < tried
    assert group.law.exponent.half_width <= 0.07


def test_noise_takes_more_seeds():
    quiet, noisy = fresh(), fresh()
    carry_out(quiet, Landscape(noise=0.001, spread=0.02).loss)
    carry_out(noisy, Landscape(noise=0.01, spread=0.1).loss)
    seeds = [len({(point.width, point.seed) for point in group.known}) for group in (quiet, noisy)]
    assert seeds[0] < seeds[1]
    assert spent(quiet) < spent(noisy)


def test_seeds_that_were_given_come_first():
    group = fresh(seeds=(7, 3))
    carry_out(group, Landscape(noise=0.01, spread=0.1).loss)
    used = [{point.seed for point in group.known if point.width == width} for width in WIDTHS]
    assert max(map(len, used)) > 2
    assert all(seeds == set([7, 3, 8, 9, 10][: len(seeds)]) for seeds in used)


def test_it_spends_less_than_plain_searches_with_as_many_seeds_as_that_takes():
    landscape, group = Landscape(noise=0.01, spread=0.1), fresh()
    carry_out(group, landscape.loss)
    plain, seeds = fresh(precision=None), 0
    while not plain.known or plain.law.exponent.half_width > 0.1:
        seeds += 1
        plain = fresh(precision=None, seeds=tuple(range(seeds)))
        carry_out(plain, landscape.loss)
    assert group.law.exponent.half_width <= 0.1
    assert spent(group) < 0.7 * spent(plain)
    largest = [sum(point.width == 256 for point in one.known) for one in (group, plain)]
    assert largest[0] < largest[1]


@pytest.mark.parametrize("edge", [False, True])
@pytest.mark.parametrize("search", [AdaptiveSearch(), Grid(lowest=2**-8, highest=2**-4)])
def test_without_a_precision_every_width_is_searched_with_every_seed(search, edge: bool):
    landscape = Landscape()
    group = fresh(precision=None, search=search, seeds=(0, 1), edge=edge)
    carry_out(group, landscape.loss)
    start = -11
    for place, width in enumerate(WIDTHS):
        start = start if place == 0 else search.start_from(start, width_ratio=2, exponent=-0.5)
        losses: dict[int, float] = {}
        while points := search.propose(losses, start, edge=edge).points:
            for index in points:
                both = [landscape.loss(Sample(width, index / 2, seed)) for seed in (0, 1)]
                losses[index] = math.sqrt(both[0] * both[1])
        assert {(point.octave, point.seed) for point in group.known if point.width == width} == {
            (index / 2, seed) for index in losses for seed in (0, 1)
        }
        assert group.proposals[width].optimum == search.propose(losses, start, edge=edge).optimum
        start = group.proposals[width].optimum or 0


def test_where_every_run_diverged_it_ends_and_knows_nothing():
    group = fresh()
    carry_out(group, lambda _: math.nan)
    assert group.law.exponent.half_width == math.inf
    assert all("every rate diverged" in proposal.missing[0] for proposal in group.proposals.values())
    assert all(sum(point.width == width for point in group.known) <= 40 for width in WIDTHS)


@pytest.mark.parametrize("lost", [(256,), (64,), (32, 256), (32, 64, 128)])
def test_widths_at_which_every_run_diverged_are_left_out(lost: tuple[int, ...]):
    landscape, group = Landscape(), fresh()
    carry_out(group, lambda point: math.nan if point.width in lost else landscape.loss(point))
    assert group.law.widths == tuple(width for width in WIDTHS if width not in lost) or len(lost) > 2
    # Two widths that are a factor of 2 apart cannot tell the exponent that well in 40 runs each.
    assert (group.law.exponent.half_width <= 0.1) == (len(lost) < 2)


@pytest.mark.parametrize("draw", range(3))
def test_runs_that_diverge_here_and_there_do_not_keep_it_from_ending(draw: int):
    rng, landscape = random.Random(draw), Landscape(draw=draw)
    diverged: dict[Sample, bool] = {}

    def losses(point: Sample) -> float:
        gone = diverged.setdefault(point, rng.random() < 0.1 * (1 + draw))
        return math.nan if gone else landscape.loss(point)

    group = fresh()
    asked = [point for batch in carry_out(group, losses) for point in batch]
    assert len(set(asked)) == len(asked)
    assert group.law.exponent.half_width > 0
    assert all(sum(point.width == width for point in group.known) <= 40 for width in WIDTHS)


@pytest.mark.parametrize("at_end", ["lowest", "highest"])
def test_a_width_whose_optimum_lies_beyond_the_bounds_is_left_out(at_end: str):
    """The largest width has the lowest optimum, and the smallest the highest one."""
    bounds = {"lowest": {"lowest": 2.0**-7}, "highest": {"highest": 2.0**-5.5}}[at_end]
    group = fresh(search=AdaptiveSearch(**bounds))
    carry_out(group, Landscape(spread=0.0).loss)
    assert group.law.widths == {"lowest": (32, 64, 128), "highest": (64, 128, 256)}[at_end]


def test_no_width_gets_more_runs_than_a_search_may_have():
    group = fresh(search=AdaptiveSearch(max_points=12), precision=0.05)
    carry_out(group, Landscape(noise=0.02, spread=0.2).loss)
    assert group.law.exponent.half_width > 0.05
    assert max(sum(point.width == width for point in group.known) for width in WIDTHS) == 12


def test_a_clear_verdict_ends_it_before_the_precision():
    drifting = fresh(precision=0.06, until_verdict=True)
    carry_out(drifting, Landscape(exponent=-1.0).loss)
    law = drifting.law
    assert drifting.reached(law.exponent) == "verdict"
    assert law.exponent.high < -0.125
    assert law.exponent.half_width > 0.06
    precise = fresh(precision=0.06)
    carry_out(precise, Landscape(exponent=-1.0).loss)
    assert precise.reached(precise.law.exponent) == "precision"
    assert len(precise.known) > len(drifting.known)


def test_the_optimum_of_the_smallest_width_is_tried_at_the_largest_where_the_fit_does_not_reach():
    group = fresh(exponent=-1.0)
    *_, last = carry_out(group, Landscape(exponent=-1.0).loss)
    (sample,) = last
    assert sample.width == WIDTHS[-1]
    assert abs(sample.octave - math.log2(group.law.at(WIDTHS[0]).value)) < 0.5
    assert sample.octave > max(point.octave for point in group.known if point.width == WIDTHS[-1] and point != sample)


@pytest.mark.parametrize("precision", [0.1, None])
def test_losses_get_as_many_seeds_as_asked_at_the_optima_of_the_smallest_and_largest_width(precision: float | None):
    plain, repeated = fresh(precision=precision), fresh(precision=precision, loss_seeds=8)
    without, asked = carry_out(plain), carry_out(repeated)
    assert asked[: len(without) - 1] == without[:-1]  # what comes before is the same
    seeds = {width: {point.seed for point in repeated.known if point.width == width} for width in WIDTHS}
    assert all(seeds[width] >= set(range(8)) for width in (WIDTHS[0], WIDTHS[-1]))
    extra = set(repeated.known) - set(plain.known)
    assert {point.width for point in extra} == {WIDTHS[0], WIDTHS[-1]}
    assert len({(point.width, point.seed) for point in extra}) == len(extra)
    optima = {one.width: one.octaves.value for one in find_optima(curves(trials_of(plain))).each}
    assert all(abs(point.octave - optima[point.width]) <= 0.25 for point in extra)


def test_fewer_seeds_for_losses_than_there_are_add_nothing():
    plain, repeated = fresh(seeds=(3, 5)), fresh(seeds=(3, 5), loss_seeds=1)
    assert carry_out(plain) == carry_out(repeated)
    more = fresh(seeds=(3, 5), loss_seeds=4)
    carry_out(more)
    assert {point.seed for point in more.known if point.width == WIDTHS[-1]} == {3, 5, 6, 7}
