"""Runs learn, lanes keep to themselves, and what was interrupted goes on as if it had not been."""

import functools
import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.runs import LANGUAGE, MODEL, lane, program
from widthwise.data import Order, Streamed
from widthwise.models import count_parameters
from widthwise.theory import PARAMETERIZATIONS
from widthwise.train import Checkpoints, Lanes, Spec, resolve, train
from widthwise.train.lanes import take_steps
from widthwise.train.program import DIVERGED

EVALUATION = LANGUAGE.held_out(2)
SPEC = Spec(data="synthetic", width=32, base_width=16, blocks=1, head_dim=16, context=16, batch=8, steps=40, warmup=5)


def test_the_loss_approaches_the_entropy_and_the_model_never_goes_below_it():
    """Against the known distribution, not samples of it, cross-entropy is entropy plus a distance that is positive."""
    steps = 200
    lanes = Lanes(program(steps), [lane(2e-2)], LANGUAGE, side_by_side=False)
    states = lanes.start()
    distances = []
    for start in range(0, steps, 50):
        states, _ = lanes.chunk(states, start, 50)
        distances.append(distance(lanes, states))
    assert min(distances) > 0
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.05 < distances[0]


def test_the_compiler_says_what_lanes_take():
    def taken(count: int) -> int:
        return Lanes(program(optimizer="sgd"), [lane()] * count, LANGUAGE, side_by_side=True).chunk_bytes(2)

    parameters = 4 * count_parameters(MODEL).total
    assert 2 * parameters < (taken(4) - taken(2)) / 2  # they and their momentum


def distance(lanes: Lanes, states) -> float:
    """Return the cross-entropy of the model to the language, less the language's entropy, on held-out text."""
    one, tokens = lanes.lanes[0], EVALUATION.tokens[0][:, :-1]
    predicted = jax.jit(lambda *given: jax.nn.log_softmax(MODEL.logits(*given)))(
        one.scales.effective(lanes.params(states, 0)), tokens, one.attention_scale
    )
    truth = LANGUAGE.log_probabilities[tokens]
    return float(np.mean(np.sum(np.exp(truth) * (truth - np.asarray(predicted)), axis=-1)))


@pytest.mark.parametrize("side_by_side", [True, False])
def test_lanes_equal_single_runs(side_by_side: bool):
    chosen = [lane(1e-2), lane(3e-3, seed=1), lane(1e-2, parameterization="mup")]
    together = train(Lanes(program(), chosen, LANGUAGE, side_by_side=side_by_side), EVALUATION, evaluate_every=20)
    for one, result in zip(chosen, together, strict=True):
        (alone,) = train(Lanes(program(), [one], LANGUAGE, side_by_side=False), EVALUATION, evaluate_every=20)
        np.testing.assert_allclose(result.train_loss, alone.train_loss, rtol=2e-4)
        assert [point.step for point in result.points] == [20, 40]
        assert result.eval_loss == pytest.approx(alone.eval_loss, rel=2e-4)
        for role, size in alone.points[-1].gradients.items():
            assert result.points[-1].gradients[role] == pytest.approx(size, rel=5e-3)


def test_all_parameterizations_and_other_data_share_one_compilation(monkeypatch):
    begun: dict = {}
    monkeypatch.setattr(take_steps, "_begun", begun)
    before = take_steps.jitted._cache_size()
    for seed, name in enumerate(PARAMETERIZATIONS):
        spec = replace(SPEC, parameterization=name, learning_rate=1e-2 / (seed + 1), seed=seed)
        run = resolve(spec, vocabulary=8, data={})
        train(Lanes(run.program, [run.lane], replace(LANGUAGE, seed=seed), side_by_side=False), EVALUATION)
    assert (len(begun), take_steps.jitted._cache_size()) == (1, before)


def test_streamed_data_starts_over_for_its_shape_alone(monkeypatch):
    opened, read = [], Streamed._read_from
    monkeypatch.setattr(Streamed, "_read_from", lambda self, start: opened.append(start) or read(self, start))
    text = np.random.default_rng(0).integers(0, 8, 5000).astype(np.uint16)
    batches = Streamed(text, Order(sequences=len(text) // 16 - 1, batch=8, seed=0), 16, 8)
    (result,) = train(Lanes(program(), [lane(1e-2)], batches, side_by_side=False), EVALUATION, evaluate_every=20)
    assert result.status == "finished"
    assert opened == [0, 0]


@pytest.mark.parametrize("side_by_side", [True, False])
@pytest.mark.parametrize("rate", [1e30, 1e3])
def test_a_lane_that_diverges_is_recorded_and_leaves_the_others_alone(side_by_side: bool, rate: float):
    """The second lane overflows once its warm-up has begun, or its loss stays finite and far above any sensible one."""
    chosen = [lane(1e-2), lane(rate), lane(3e-3)]
    results = train(Lanes(program(), chosen, LANGUAGE, side_by_side=side_by_side), EVALUATION)
    assert [result.status for result in results] == ["finished", "diverged", "finished"]
    diverged, most = results[1], DIVERGED * math.log(8)
    assert 0 < diverged.steps < 40
    assert len(diverged.train_loss) == diverged.steps + 1
    assert max(diverged.train_loss[:-1]) <= most
    assert not diverged.train_loss[-1] <= most
    assert np.isfinite(diverged.train_loss[-1]) == (rate == 1e3)
    assert np.isnan(diverged.eval_loss)
    for one, result in zip(chosen[:2], results[:2], strict=True):
        (alone,) = train(Lanes(program(), [one], LANGUAGE, side_by_side=False), EVALUATION)
        assert (result.status, result.steps) == (alone.status, alone.steps)
        assert result.eval_loss == pytest.approx(alone.eval_loss, rel=2e-4, nan_ok=True)


def test_training_ends_early_when_all_lanes_have_diverged():
    seen = []
    train(Lanes(program(), [lane(1e30)], LANGUAGE), EVALUATION, progress=lambda p: seen.append(p.step))
    assert seen[-1] < 40


def test_the_size_of_chunks_changes_nothing():
    a, b = (
        train(Lanes(program(), [lane()], LANGUAGE, side_by_side=False), EVALUATION, chunk=chunk, evaluate_every=20)
        for chunk in (1, 20)
    )
    np.testing.assert_array_equal(a[0].train_loss, b[0].train_loss)
    assert [point.eval_loss for point in a[0].points] == [point.eval_loss for point in b[0].points]


def test_a_chunk_that_is_not_full_gives_the_same_and_its_compilation_is_no_training_time():
    seen = []
    run = functools.partial(train, evaluation=EVALUATION, evaluate_every=20, progress=lambda p: seen.append(p))
    (whole,) = run(Lanes(program(), [lane()], LANGUAGE, side_by_side=False), chunk=20)
    seen.clear()
    (cut,) = run(Lanes(program(), [lane()], LANGUAGE, side_by_side=False), chunk=17)
    assert [now.step for now in seen] == [17, 20, 37, 40]
    np.testing.assert_array_equal(whole.train_loss, cut.train_loss)
    for one, other in zip(whole.points, cut.points, strict=True):
        assert one.eval_loss == other.eval_loss
        assert one.params == pytest.approx(other.params, rel=1e-5)
        assert one.gradients == pytest.approx(other.gradients, rel=1e-5)
    assert seen[1].tokens_per_second == 0  # both programs were compiled by then, and nothing else done
    assert seen[3].tokens_per_second > 0.2 * seen[2].tokens_per_second


def test_with_muon_an_interrupted_run_goes_on_to_the_same_numbers(tmp_path: Path):
    """Its state is not the same for all parameters."""

    def run(*, checkpoints: Checkpoints | None = None, stop_after: int = 10**9):
        calls = iter(range(10**9))
        lanes = Lanes(program(optimizer="muon"), [lane(1e-2)], LANGUAGE, side_by_side=False)
        return train(lanes, EVALUATION, chunk=20, checkpoints=checkpoints, stop=lambda: next(calls) >= stop_after)[0]

    whole = run()
    assert whole.train_loss[-1] < whole.train_loss[0] - 0.05
    with Checkpoints(tmp_path) as checkpoints:
        assert run(checkpoints=checkpoints, stop_after=0).steps == 20
    with Checkpoints(tmp_path) as checkpoints:
        resumed = run(checkpoints=checkpoints)
    assert (resumed.train_loss, resumed.eval_loss) == (whole.train_loss, whole.eval_loss)


@pytest.mark.parametrize("side_by_side", [True, False])
@pytest.mark.parametrize(("rate", "status"), [(3e-3, "finished"), (1e3, "diverged")])
def test_an_interrupted_run_goes_on_to_the_same_numbers(
    tmp_path: Path, side_by_side: bool, rate: float, status: str, monkeypatch
):
    chosen = [lane(1e-2), lane(rate)]

    def run(folder: Path, stop_after: int = 10**9):
        calls = iter(range(10**9))
        checkpoints = Checkpoints(folder)
        lanes = Lanes(program(), chosen, LANGUAGE, side_by_side=side_by_side)
        results = train(
            lanes,
            EVALUATION,
            chunk=1,
            evaluate_every=20,
            checkpoints=checkpoints,
            stop=lambda: next(calls) >= stop_after,
        )
        checkpoints.close()
        return results

    undisturbed = run(tmp_path / "whole")
    first, second, _ = (run(tmp_path / "pieces", stop_after=9) for _ in range(3))
    unfinished = "diverged" if status == "diverged" else "interrupted"
    assert [r.status for r in (*first, *second)] == ["interrupted", unfinished] * 2
    assert first[0].steps == 10
    final = run(tmp_path / "pieces")
    assert [r.status for r in final] == ["finished", status]
    for whole, pieces in zip(undisturbed, final, strict=True):
        assert whole.train_loss == pieces.train_loss
        assert whole.points == pieces.points
    monkeypatch.setattr(Lanes, "begin", None)  # nothing is left to compile for
    again = run(tmp_path / "pieces")
    assert [r.train_loss for r in again] == [r.train_loss for r in final]


@pytest.mark.parametrize("stop_after", [1, 10**9])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path: Path, stop_after: int):
    def run(**options):
        said = []
        checkpoints = Checkpoints(tmp_path, say=said.append)
        lanes = Lanes(program(), [lane()], LANGUAGE, side_by_side=False)
        results = train(lanes, EVALUATION, chunk=17, checkpoints=checkpoints, **options)
        checkpoints.close()
        return results, said

    calls = iter(range(10**9))
    run(checkpoint_seconds=0, stop=lambda: next(calls) >= stop_after)
    newest = max(tmp_path.glob("*/*"), key=lambda path: int(path.name))
    for path in newest.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    results, said = run()
    assert len(said) == 1
    assert f"the checkpoint of step {newest.name} cannot be read" in said[0]
    assert results[0].status == "finished"
    (undisturbed,) = train(Lanes(program(), [lane()], LANGUAGE, side_by_side=False), EVALUATION, chunk=17)
    assert results[0].train_loss == undisturbed.train_loss


def test_packed_and_padded_losses_agree_with_a_plain_reference():
    lanes = Lanes(program(), [lane()], LANGUAGE, side_by_side=False)
    params = lanes.lanes[0].scales.effective(lanes.params(lanes.start(), 0))
    tokens = jnp.asarray(EVALUATION.tokens[0])
    weights = jnp.asarray(np.random.default_rng(0).integers(0, 2, tokens[:, 1:].shape), jnp.float32)
    scale = lanes.lanes[0].attention_scale
    logits = np.asarray(jax.jit(MODEL.logits)(params, tokens[:, :-1], scale), np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    surprise = -np.take_along_axis(log_probabilities, np.asarray(tokens)[:, 1:, None], -1)[..., 0]
    loss = jax.jit(lanes.program.loss)
    padded, packed = (loss(params, scale, tokens, given) for given in (weights, jnp.ones_like(weights)))
    assert float(padded) == pytest.approx((surprise * np.asarray(weights)).sum() / np.asarray(weights).sum(), rel=1e-5)
    assert float(packed) == pytest.approx(surprise.mean(), rel=1e-5)


def test_no_runs_are_refused():
    with pytest.raises(ValueError, match="no runs: expected one or more"):
        Lanes(program(), [], LANGUAGE)
