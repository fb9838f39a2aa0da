"""What several processes decide together is decided before any of them acts."""

from typing import Any

import numpy as np
import pytest
from jax.experimental import multihost_utils

from tests.train.runs import LANGUAGE, lane, program
from widthwise.train import Lanes, train
from widthwise.train.processes import agreed

EVALUATION = LANGUAGE.held_out(2)


class Kept:
    """Checkpoints that only remember what was to be saved."""

    def __init__(self) -> None:
        self.saved: list[tuple[int, bool, bool]] = []

    def save(self, step: int, states: Any, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        self.saved.append((step, best, due))

    def latest(self) -> int:
        return 0

    def restore(self, like: Any, read: Any) -> None:
        return None


def test_a_process_on_its_own_agrees_with_itself():
    assert agreed(True, False) == (True, False)


def test_one_process_that_wishes_is_enough(monkeypatch):
    monkeypatch.setattr("widthwise.train.processes.jax.process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda own: np.array([own, [False, True, False]]))
    assert agreed(True, False, False) == (True, True, False)


@pytest.mark.parametrize(
    ("wish", "saved", "status"),
    [(0, [(1, False, True)], "interrupted"), (1, [(1, False, True)], "finished"), (2, [(1, True, False)], "finished")],
    ids=["stop", "due", "best"],
)
def test_the_wish_of_another_process_counts(monkeypatch, wish: int, saved: list, status: str):
    steps = iter(range(40))

    def all_agreed(*wishes: bool) -> tuple[bool, ...]:
        first = next(steps) == 0
        return tuple(own or (first and index == wish) for index, own in enumerate(wishes))

    monkeypatch.setattr("widthwise.train.loop.agreed", all_agreed)
    kept = Kept()
    (result,) = train(Lanes(program(), [lane()], LANGUAGE, side_by_side=False), EVALUATION, chunk=1, checkpoints=kept)
    assert kept.saved[: len(saved)] == saved
    assert result.status == status
