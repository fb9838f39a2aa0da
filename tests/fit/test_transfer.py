"""The verdict on transfer, and what it is made of."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.fit.sweeps import Shape, simulate
from widthwise.fit import Estimate, TransferOutcome, Trial, fit_transfer, judge


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (-0.05, 0.09, TransferOutcome.TRANSFERS),
        (0.01, 0.05, TransferOutcome.TRANSFERS),
        (-0.05, 0.2, TransferOutcome.CANNOT_TELL),
        (-math.inf, math.inf, TransferOutcome.CANNOT_TELL),
        (0.01, 0.2, TransferOutcome.CANNOT_TELL),
        (0.01, 0.3, TransferOutcome.DRIFTS),
        (-0.6, -0.3, TransferOutcome.DRIFTS),
    ],
)
def test_a_wide_interval_is_not_transfer_nor_a_negligible_exponent_drift(
    low: float, high: float, outcome: TransferOutcome
):
    assert judge(Estimate(value=(low + high) / 2, low=low, high=high)) is outcome


def test_the_verdict_says_what_it_rests_on():
    steady = fit_transfer(simulate(np.random.default_rng(0), exponent=0.0, seeds=3))
    falling = fit_transfer(simulate(np.random.default_rng(0), exponent=-1.0))
    assert str(steady.verdict) == f"transfers: exponent {steady.law.exponent}"
    assert falling.verdict.outcome is TransferOutcome.DRIFTS
    assert str(falling.verdict).startswith("drifts: exponent -")
    assert fit_transfer(simulate(np.random.default_rng(0), exponent=0.0), tolerance=1e-3).verdict.outcome != "transfers"


def test_a_wider_model_that_is_worse_is_named_whatever_the_exponent():
    trials = simulate(np.random.default_rng(0), widths=4, exponent=0.0, seeds=3)
    assert fit_transfer(trials).verdict.worse == ()
    spoiled = [replace(trial, eval_loss=trial.eval_loss * 1.3) if trial.width == 512 else trial for trial in trials]
    verdict = fit_transfer(spoiled).verdict
    assert (verdict.outcome, verdict.worse) == (TransferOutcome.TRANSFERS, (512,))
    assert str(verdict).endswith("; wider is worse at width 512")


def test_widths_whose_optimum_is_not_known_are_left_out_and_named():
    trials = simulate(np.random.default_rng(1), widths=4, exponent=0.0)
    trials = [trial for trial in trials if trial.width != 512 or trial.learning_rate < 2**-9]
    transfer = fit_transfer(trials)
    assert transfer.law.widths == (64, 128, 256)
    assert str(transfer.verdict).endswith("(optimum not inside what was tried at width 512)")
    alone = fit_transfer([trial for trial in trials if trial.width in (64, 512)], predict=[1024])
    assert alone.verdict.outcome is TransferOutcome.CANNOT_TELL
    assert str(alone.verdict).startswith("cannot tell: fewer than two optima known")
    assert math.isnan(alone.predictions[0].learning_rate.value)


def test_reusing_the_base_learning_rate_costs_what_the_curve_says():
    quiet = Shape(noise=1e-5)
    base, near, far, beyond = fit_transfer(
        simulate(np.random.default_rng(2), widths=4, exponent=-1.0, shape=quiet, start=-8.0)
    ).reuse
    assert base.given_up == pytest.approx(0.0, abs=1e-6)
    assert near.eval_loss == pytest.approx(3 * math.exp(0.02), rel=0.01)
    assert near.given_up == pytest.approx(3 * 0.0202, rel=0.05)
    assert near.stable
    assert far.given_up == pytest.approx(2.5 * (math.exp(0.02 * 4 + 0.6 * 0.25) - 1), rel=0.05)
    assert not far.stable
    assert not beyond.stable
    diverged = fit_transfer(simulate(np.random.default_rng(2), widths=5, exponent=-1.0, shape=quiet)).reuse[-1]
    assert diverged.given_up == math.inf


def test_a_learning_rate_far_from_what_was_tried_has_an_unknown_cost():
    trials = simulate(np.random.default_rng(3), widths=2, exponent=4.0)
    trials = [trial for trial in trials if trial.width == 64 or trial.learning_rate > 2**-6]
    assert math.isnan(fit_transfer(trials).reuse[1].given_up)


def test_json_is_complete_and_has_no_infinities():
    trials = simulate(np.random.default_rng(4), widths=5, exponent=-1.0, parameters=True)
    trials += [Trial(width=4096, learning_rate=1e-3, eval_loss=math.nan)]
    transfer = fit_transfer(trials, predict=[8192])
    values = json.loads(json.dumps(transfer.to_json(), allow_nan=False))
    assert values["exponent"] == transfer.law.exponent.value
    assert values["interval"][0] < -1 < values["interval"][1] or abs(values["exponent"] + 1) < 0.05
    assert values["verdict"] == "drifts"
    assert [optimum["width"] for optimum in values["optima"]] == [64, 128, 256, 512, 1024, 4096]
    assert values["optima"][0]["eval_loss"] == pytest.approx(4.0, rel=0.02)
    assert values["optima"][0]["interval"][0] < 2**-8.3 < values["optima"][0]["interval"][1]
    assert values["optima"][0]["octaves_to_edge"] == pytest.approx(1.94, abs=0.35)
    assert values["optima"][-1]["learning_rate"] is None
    assert values["optima"][-1]["interior"] is False
    assert values["predictions"][0]["interval"][0] < 2**-15.3 < values["predictions"][0]["interval"][1]
    assert values["reuse"][4]["given_up"] is None
    # Loss is 2 + 2·64/width and there are 12·width² parameters: the exponent is 1/2.
    assert values["loss_law"]["exponent"] == pytest.approx(0.5, abs=0.1)
    assert values["loss_law"]["irreducible"] == pytest.approx(2.0, abs=0.1)


def test_without_parameters_there_is_no_law_of_loss_and_with_three_widths_it_is_open():
    rng = np.random.default_rng(5)
    assert fit_transfer(simulate(rng)).to_json()["loss_law"] is None
    law = fit_transfer(simulate(rng, widths=3, parameters=True)).loss_law
    assert law is not None
    assert not law.determined


def test_no_trials_and_no_tolerance_are_refused():
    with pytest.raises(ValueError, match="no trials"):
        fit_transfer([])
    with pytest.raises(ValueError, match="tolerance is 0"):
        fit_transfer([Trial(width=1, learning_rate=1.0, eval_loss=1.0)], tolerance=0)


def test_any_trials_have_a_result_that_json_takes():
    rng = np.random.default_rng(7)
    outcomes = (math.nan, math.inf, 2.0, 2.0, 2.1, 5.0)
    for _ in range(100):
        places = {tuple(place) for place in rng.integers((5, -6, 0), (9, 3, 3), (rng.integers(1, 60), 3)).tolist()}
        trials = [
            Trial(width=2**w, learning_rate=2.0**x, eval_loss=rng.choice(outcomes), seed=seed, parameters=4**w)
            for w, x, seed in places
        ]
        json.dumps(fit_transfer(trials, predict=[4096]).to_json(), allow_nan=False)
