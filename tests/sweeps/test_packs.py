"""Packing: what is computed together, in which order, and how many fit."""

from dataclasses import replace

import pytest

from tests.sweeps.tiny import TINY
from widthwise.sweeps.memory import lanes_that_fit
from widthwise.sweeps.packs import Pack, plan
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.worker import resolved, train_pack
from widthwise.train.cost import state_bytes

DATA = SweepData(TINY)


def wanted(**changes):
    return DATA.run(replace(TINY, **changes))


def test_runs_of_one_program_are_packed_whatever_they_differ_in():
    runs = [
        wanted(parameterization=parameterization, alignment=alignment, learning_rate=rate, seed=seed)
        for parameterization in ("standard", "mup")
        for alignment in ("global", "full")
        for rate in (1e-3, 1e-2)
        for seed in (0, 1)
    ]
    (pack,) = plan(runs, lambda _: 64)
    # At the base width all alignments are one run.
    assert len(pack.ids) == len(set(pack.ids)) == 8


def test_programs_are_never_mixed_and_the_longest_come_first():
    runs = [wanted(seed=0), wanted(width=32), wanted(seed=1), wanted(optimizer="sgd"), wanted(steps=4000)]
    packs = plan(runs, lambda _: 64)
    assert sorted(len(pack.ids) for pack in packs) == [1, 1, 1, 2]
    assert len({pack.program for pack in packs}) == 3
    assert [pack.flops for pack in packs] == sorted((pack.flops for pack in packs), reverse=True)
    assert packs[0].specs[0].steps == 4000


@pytest.mark.parametrize(
    "change", [{"batch": 2 * TINY.batch}, {"data_seed": 1}, {"eval_batches": TINY.eval_batches + 1}]
)
def test_runs_that_read_different_batches_are_never_mixed(change):
    usual, other = wanted(), SweepData(replace(TINY, **change)).run(replace(TINY, **change, seed=1))
    assert usual.program == other.program
    packs = plan([usual, other], lambda _: 64)
    assert sorted(pack.ids for pack in packs) == sorted([(usual.id,), (other.id,)])
    with pytest.raises(ValueError, match="runs of a pack read different batches"):
        train_pack(Pack.join(packs), lambda _: False)


@pytest.mark.parametrize(("fit", "sizes"), [(1, [1] * 7), (3, [3, 3, 1]), (4, [4, 3]), (6, [4, 3]), (64, [7])])
def test_packs_are_as_few_and_as_even_as_the_device_allows(fit, sizes):
    runs = [wanted(seed=seed) for seed in range(7)]
    assert sorted((len(pack.ids) for pack in plan(runs, lambda _: fit)), reverse=True) == sizes


def test_runs_that_measure_alignment_are_packed_and_remembered_apart():
    plain, probed = DATA.run(TINY), DATA.run(TINY, probe=True)
    packs = plan([plain, probed], lambda _: 64)
    assert sorted(pack.probe for pack in packs) == [False, True]
    assert len({pack.program for pack in packs}) == 2


def test_what_is_left_of_a_plan_is_packed_as_before():
    runs = [wanted(seed=seed) for seed in range(6)]
    before = plan(runs, lambda _: 2)
    after = plan([run for run in runs if run.id not in before[0].ids], lambda _: 2)
    assert [pack.key for pack in after] == [pack.key for pack in before[1:]]


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_lanes_that_fit_take_less_than_there_is(monkeypatch, optimizer: str):
    class Device:
        def __init__(self, limit: int) -> None:
            self.limit = limit

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": self.limit}

    pack = Pack.of([wanted(optimizer=optimizer)])
    _, (run,) = resolved(pack)
    one = state_bytes(run.program.model, run.program.optimizer)

    def fitting(limit: int) -> int:
        monkeypatch.setattr("widthwise.sweeps.memory.jax.devices", lambda: [Device(limit)])
        return lanes_that_fit(pack, lambda _: False)

    assert fitting(0) == fitting(one) == 1  # at least one is tried
    assert 100 < fitting(1000 * one) < 1000
    assert fitting(4000 * one) == pytest.approx(4 * fitting(1000 * one), abs=4)


def test_lanes_that_fill_up_a_pack_change_nothing_and_are_not_told(monkeypatch):
    runs = [wanted(learning_rate=rate, steps=20) for rate in (2**-8, 2**-7, 2**-6, 2**-5, 2**-4)]
    pack = Pack.of(runs)
    alone = train_pack(pack, lambda _: False)
    monkeypatch.setattr("widthwise.sweeps.worker.jax.default_backend", lambda: "gpu")
    padded = train_pack(pack, lambda _: False)
    assert alone is not None
    assert padded is not None
    assert [outcome.run for outcome in padded] == [one.id for one in runs]
    for one, other in zip(alone, padded, strict=True):
        assert one.results["eval_loss"] == pytest.approx(other.results["eval_loss"], rel=1e-4)
