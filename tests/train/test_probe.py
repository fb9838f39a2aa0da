"""A probe measures alignment on the way, over lanes and devices, and leaves training as it is."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.train.runs import LANGUAGE, MODEL, lane, program
from widthwise.measure import Probe, log_spaced, measure
from widthwise.train import Checkpoints, Lanes, Result, State, make_mesh, train
from widthwise.train.lanes import _evaluate, _measure, take_steps

EVALUATION = LANGUAGE.held_out(1)
TOKENS = EVALUATION.tokens[0][:, :-1]
PROBE = Probe(tokens=TOKENS, steps=log_spaced(40))
CHOSEN = [lane(1e-2), lane(1e-2, parameterization="mup")]


def run(probe: Probe | None = PROBE, *, side_by_side: bool = False, **options) -> list[Result]:
    """Train step by step, so that one compilation serves all tests."""
    lanes = Lanes(program(), CHOSEN, LANGUAGE, side_by_side=side_by_side)
    return train(lanes, EVALUATION, chunk=1, evaluate_every=40, probe=probe, **options)


@functools.cache
def plain() -> list[Result]:
    return run()


def after(steps: int, lanes: Lanes) -> list[State]:
    states = lanes.start()
    for step in range(steps):
        states, _ = lanes.chunk(states, step, 1)
    return states


def table(result: Result, name: str = "alpha") -> np.ndarray:
    """Return a field over steps and layers."""
    return np.array([[layer[name] for layer in point.layers.values()] for point in result.alignment])


def test_what_is_measured_is_what_measuring_at_that_step_gives():
    results = plain()
    assert [point.step for point in results[0].alignment] == list(log_spaced(40))
    lanes = Lanes(program(), CHOSEN, LANGUAGE, side_by_side=False)
    initial = [lanes.params(lanes.start(), i) for i in (0, 1)]
    states = after(4, lanes)
    measured = jax.jit(lambda scale, *params: measure(lambda p: MODEL.logits(p, TOKENS, scale), *params))
    for i, one in enumerate(CHOSEN):
        effective = [one.scales.effective(x) for x in (initial[i], lanes.params(states, i))]
        found = measured(one.attention_scale, *effective)
        (point,) = (point for point in results[i].alignment if point.step == 4)
        assert list(point.layers) == list(found.paths)
        for path, layer in point.layers.items():
            assert layer["u"] == pytest.approx(float(found[path].u), abs=1e-3, nan_ok=True)


def test_nothing_is_measured_where_nothing_has_changed():
    """The first step of the warm-up has rate 0; muP's multipliers at width 32 are not exact in floating point."""
    for result in plain():
        for point in result.alignment[:2]:
            assert all(np.isnan([layer["alpha"], layer["omega"]]).all() for layer in point.layers.values()), point.step


def test_measuring_leaves_training_as_it_is():
    for measured, unmeasured in zip(plain(), run(None), strict=True):
        assert measured.train_loss == unmeasured.train_loss
        assert measured.eval_loss == unmeasured.eval_loss
        assert unmeasured.alignment == []


def test_all_that_measuring_needs_is_compiled_ahead_and_nothing_else(monkeypatch):
    """40 steps, 17 at a time: the last chunk is cut, and with a probe at steps 1, 2, 4, 8, 16, 32 and 40 all are."""
    compiled = (take_steps, _measure, _evaluate)
    for each in compiled:
        monkeypatch.setattr(each, "_begun", {})

    def begun(chunk: int, probe: Probe | None) -> tuple[int, ...]:
        before = [(len(each._begun), each.jitted._cache_size()) for each in compiled]
        lanes = Lanes(program(), CHOSEN, LANGUAGE, side_by_side=False)
        train(lanes, EVALUATION, chunk=chunk, evaluate_every=40, probe=probe)
        assert [each.jitted._cache_size() for each in compiled] == [late for _, late in before]
        return tuple(len(each._begun) - ahead for each, (ahead, _) in zip(compiled, before, strict=True))

    assert begun(17, PROBE) == (1, 1, 1)
    assert begun(17, None) == (1, 0, 0)
    assert begun(17, PROBE) == (0, 0, 0)
    assert begun(20, None) == (1, 0, 0)


def test_initial_parameters_may_be_kept_and_every_step_measured():
    every = Probe(tokens=TOKENS, steps=tuple(range(41)), keep_initial=True)
    for kept, drawn in zip(run(every), plain(), strict=True):
        assert [point.step for point in kept.alignment] == list(range(41))
        by_step = {point.step: point for point in kept.alignment}
        for point in drawn.alignment:
            for path, layer in point.layers.items():
                assert layer == pytest.approx(by_step[point.step].layers[path], rel=1e-2, abs=1e-2, nan_ok=True)


def test_lanes_side_by_side_measure_the_same():
    for together, alone in zip(run(side_by_side=True), plain(), strict=True):
        np.testing.assert_allclose(table(together, "ratio"), table(alone, "ratio"), atol=2e-3)
        np.testing.assert_allclose(table(together)[3:], table(alone)[3:], atol=2e-2)


def test_split_over_devices_the_same_is_measured():
    lanes = Lanes(program(), CHOSEN, LANGUAGE, side_by_side=False)
    split = Lanes(program(), CHOSEN, LANGUAGE, side_by_side=True, mesh=make_mesh(lanes=2, fsdp=4))
    states, split_states = (each.chunk(each.start(), 0, 20)[0] for each in (lanes, split))
    found = split.measure(split_states, TOKENS, initial=split.initial())
    for one, other in zip(lanes.measure(states, TOKENS), found, strict=True):
        assert one.paths == other.paths
        np.testing.assert_allclose(one.values.ratio, other.values.ratio, atol=1e-3)
        np.testing.assert_allclose(one.values.alpha, other.values.alpha, atol=1e-2)


def test_an_interrupted_run_goes_on_to_the_same_measurements(tmp_path: Path):
    def piece(stop_after: int) -> list[Result]:
        calls, checkpoints = iter(range(1000)), Checkpoints(tmp_path)
        results = run(checkpoints=checkpoints, stop=lambda: next(calls) >= stop_after)
        checkpoints.close()
        return results

    assert [result.status for result in piece(20)] == ["interrupted"] * 2
    for pieces, whole in zip(piece(1000), plain(), strict=True):
        assert [point.step for point in pieces.alignment] == [point.step for point in whole.alignment]
        np.testing.assert_array_equal(table(pieces), table(whole))


def test_a_lane_that_diverged_is_not_measured_any_more():
    lanes = Lanes(program(), [lane(1e-2), lane(1e30)], LANGUAGE, side_by_side=True)
    results = train(lanes, EVALUATION, chunk=1, probe=PROBE)
    assert [point.step for point in results[0].alignment][-1] == 40
    assert 0 < len(results[1].alignment) < len(results[0].alignment)


def test_readout_alignment_rises_under_adam_and_more_in_mup_than_in_standard():
    """The paper's Figure 2: peaks above 0.9 in muP, moderate ones in standard, where the initial readout stays."""
    standard, mup = (
        np.array([point.layers["readout/kernel"]["ratio"] for point in result.alignment]) for result in plain()
    )
    assert standard[0] == pytest.approx(0.5, abs=0.1)
    assert mup[0] == pytest.approx(0.5, abs=0.1)
    assert standard.max() > standard[0] + 0.02
    assert mup.max() > standard.max() + 0.05
