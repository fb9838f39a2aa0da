"""Asking for runs and telling their losses finds what a sweep finds, whoever trains them and in whatever order."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

import widthwise as ww
from tests.search.toys import CALM, WIDTHS, Counted, training

TRAIN = training(CALM)


def search(**changes) -> ww.Search:
    return ww.Search(**{"widths": WIDTHS, "learning_rate": 3e-3} | changes)


def test_asking_and_telling_in_any_order_is_a_sweep():
    counted, order, batches = Counted(TRAIN), random.Random(0), []
    asked = search()
    while points := asked.ask():
        batches.append(points)
        order.shuffle(points)
        for point in points:
            asked.tell(point, TRAIN(point.width, point.learning_rate, point.seed))
    result = ww.sweep(counted, widths=WIDTHS, learning_rate=3e-3, show=False)
    assert sorted(point for batch in batches for point in batch) == sorted(counted.runs)
    assert len(batches) < len(counted.runs) / 2
    assert asked.result().transfer == result.transfer


def test_what_was_asked_for_and_not_told_is_asked_for_again():
    asked = search()
    first, *others = asked.ask()
    assert asked.ask() == [first, *others]
    asked.tell(first, TRAIN(*first))
    assert asked.ask() == others


def test_a_point_comes_back_from_a_queue_as_plain_numbers(tmp_path: Path):
    asked = search(study=tmp_path)
    points = asked.ask()
    for line in [json.dumps(point) for point in points]:
        asked.tell(tuple(json.loads(line)), 2.0)
    assert list(asked.losses) == points
    assert [trial.width for trial in asked.result().trials] == [64] * 5


def test_another_search_takes_up_what_a_study_holds(tmp_path: Path):
    first = search(study=tmp_path, settings={"plan": "mup"})
    for point in first.ask()[:3]:
        first.tell(point, TRAIN(*point))
    second = search(study=tmp_path, settings={"plan": "mup"})
    assert second.losses == first.losses
    assert second.ask() == first.ask()
    assert search(study=tmp_path, settings={"plan": "none"}).losses == {}
    assert second.result().missing[-1].startswith("not finished after 3 runs")


def test_the_first_loss_of_a_run_stays(tmp_path: Path):
    one, other = search(study=tmp_path), search(study=tmp_path)
    point = one.ask()[0]
    one.tell(point, 2.0)
    other.tell(point, 3.0)
    assert other.losses == {point: 2.0}


@pytest.mark.parametrize("loss", [2, 2.5, np.float32(2.5), np.array(2.5), math.nan, math.inf])
def test_any_number_above_0_is_a_loss(loss):
    asked = search()
    point = asked.ask()[0]
    asked.tell(point, loss)
    assert asked.losses[point] == (float(loss) if math.isfinite(loss) else pytest.approx(math.nan, nan_ok=True))


def test_a_tensor_with_a_gradient_is_a_loss():
    torch = pytest.importorskip("torch")
    asked = search()
    point = asked.ask()[0]
    asked.tell(point, 2 * torch.ones((), requires_grad=True))
    assert asked.losses == {point: 2.0}


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (0.0, "is 0: expected a number above 0, NaN or infinity"),
        (-1.5, "is -1.5: expected a number above 0"),
        (-math.inf, "is -inf: expected a number above 0"),
        (None, "is of type NoneType: expected a number"),
        ("2.5", "is of type str: expected a number"),
        (True, "is of type bool: expected a number"),
        ([2.5], "is of type list: expected a number"),
        (np.ones(2), "is of type ndarray: expected a number"),
    ],
)
def test_anything_else_is_refused_and_not_stored(tmp_path: Path, loss, message: str):
    asked = search(study=tmp_path)
    point = asked.ask()[0]
    with pytest.raises(ValueError, match=f"^the loss of the run with width 64, learning rate .*, seed 0 {message}"):
        asked.tell(point, loss)
    assert not asked.losses
    assert not search(study=tmp_path).losses


def test_only_what_was_asked_for_is_told_and_once():
    asked = search()
    point = asked.ask()[0]
    with pytest.raises(ValueError, match="was not asked for: expected one that ask returned"):
        asked.tell(point._replace(seed=7), 2.0)
    asked.tell(point, 2.0)
    with pytest.raises(ValueError, match="was told before"):
        asked.tell(point, 2.0)


def test_without_runs_there_is_no_result():
    with pytest.raises(ValueError, match="no run has ended"):
        search().result()
