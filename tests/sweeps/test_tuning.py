"""Constants are found by the paper's protocol, and stopping on the way changes nothing."""

import logging
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable

import pytest

from widthwise.parameterize import Constants
from widthwise.sweeps.tuning import ConstantsTrial, Tuned, Tuning
from widthwise.theory import Role

Loss = Callable[[Constants], float]


def logs(constants: Constants) -> list[float]:
    return [math.log10(constants.of(role)) for role in Role]


def valley(embedding: float, hidden: float, readout: float, edge: float = math.inf) -> Loss:
    """Return a loss with its minimum there, in log10, that diverges where constants are large together."""

    def loss(constants: Constants) -> float:
        e, h, r = logs(constants)
        if h + 0.5 * r > edge:
            return math.nan
        e, h, r = e - embedding, h - hidden, r - readout
        return 3 * (1 + 0.02 * (0.5 * e**2 + 2 * h**2 + r**2 + h * r))

    return loss


def tried(loss: Loss, *constants: Constants) -> list[ConstantsTrial]:
    return [ConstantsTrial(constants=point, loss=loss(point)) for point in constants]


def run(tuning: Tuning, loss: Loss) -> list[ConstantsTrial]:
    trials: list[ConstantsTrial] = []
    while points := tuning.propose(trials):
        trials += tried(loss, *points)
    return trials


def result(tuning: Tuning, trials: list[ConstantsTrial]) -> Tuned:
    found = tuning.result(trials)
    assert found is not None
    return found


def test_it_comes_closer_than_random_constants():
    loss = valley(0.7, -0.3, 0.4, edge=0.3)
    excess = []
    for seed in range(3):
        tuning = Tuning(trials=100, batch=10, extensions=0, seed=seed)
        rng = random.Random(seed)
        blind = tried(loss, *(Constants(**{role: 10 ** rng.uniform(-2, 2) for role in Role}) for _ in range(100)))
        found = [loss(result(tuning, trials).constants) / 3 - 1 for trials in (run(tuning, loss), blind)]
        excess.append(found)
    searched, drawn = (statistics.mean(column) for column in zip(*excess, strict=True))
    assert searched < 1e-3
    assert searched < drawn / 2


def test_diverged_trials_keep_it_away():
    # The optimum lies on the edge. A sampler that is not told of the trials beyond it wastes 69 % of its trials there.
    loss = valley(0, -0.5, 0, edge=-0.5)
    later = [trial for seed in range(4) for trial in run(Tuning(trials=60, batch=10, seed=seed), loss)[30:60]]
    assert sum(math.isnan(trial.loss) for trial in later) / len(later) < 0.4


def test_batches_have_the_size_asked_for_and_lie_in_range():
    tuning = Tuning(trials=20, batch=8, extensions=0, low=0.5, high=4)
    loss, trials, sizes = valley(0, 0, 0), [], []
    while points := tuning.propose(trials):
        sizes.append(len(points))
        trials += tried(loss, *points)
    assert sizes == [8, 8, 4]
    assert len({trial.constants for trial in trials}) == 20
    assert trials[0].constants == Constants()
    assert all(0.5 <= trial.constants.of(role) <= 4 for trial in trials for role in Role)


def test_the_default_is_left_out_where_it_is_out_of_range():
    points = Tuning(batch=4, low=2).propose([])
    assert len(points) == 4
    assert all(constants.of(role) >= 2 for constants in points for role in Role)


def test_a_search_that_is_stopped_anywhere_ends_with_the_same_trials():
    # The optimum of the embedding lies outside: stopping must not change how ranges move either.
    tuning, loss, rng = (
        Tuning(trials=50, batch=14, extensions=1, near=3, seed=3),
        valley(3, 0, 0, edge=1),
        random.Random(0),
    )
    trials: list[ConstantsTrial] = []
    while points := tuning.propose(trials):
        finished = rng.sample(points, rng.randint(1, len(points)))
        trials += tried(loss, *finished)
    undisturbed = run(tuning, loss)
    assert {trial.constants for trial in trials} == {trial.constants for trial in undisturbed}
    assert len(trials) == len(undisturbed) == 100
    assert result(tuning, trials) == result(tuning, undisturbed)


def test_other_settings_continue_what_is_known():
    loss = valley(0.3, 0, 0)
    trials = run(Tuning(trials=20, batch=8, extensions=0), loss)[:13]
    more = Tuning(trials=30, batch=6, extensions=0, seed=1)
    points = more.propose(trials)
    assert len(points) == 5
    while points := more.propose(trials):
        trials += tried(loss, *points)
    assert len(trials) == 30


def test_a_range_with_its_optimum_at_the_edge_is_moved_and_searched_again():
    # As embedding of muP with SGD in the paper: 1399.
    tuning = Tuning(trials=60, batch=20, near=3)
    trials = run(tuning, valley(3.15, 0.5, -0.5))
    found = result(tuning, trials)
    assert len(trials) == 120
    assert found.extended == (Role.EMBEDDING,)
    assert found.at_edge == ()
    assert found.ranges[Role.HIDDEN] == (0.01, 100)
    optimum = result(tuning, trials[:60]).constants.embedding
    low, high = found.ranges[Role.EMBEDDING]
    assert (low, high) == pytest.approx((optimum / 100, optimum * 100), rel=1e-5)
    assert all(low <= trial.constants.embedding <= high for trial in trials[60:])
    assert logs(found.constants)[0] == pytest.approx(3.15, abs=0.5)


def test_an_optimum_that_stays_at_the_edge_is_said():
    tuning = Tuning(trials=40, batch=10, extensions=1, near=3)
    trials = run(tuning, valley(0, 0, 7))
    found = result(tuning, trials)
    assert len(trials) == 80
    assert found.extended == (Role.READOUT,)
    assert found.at_edge == (Role.READOUT,)


def test_the_result_is_the_geometric_mean_of_trials_as_good_as_the_best():
    tuning = Tuning(trials=10)
    trials = [
        ConstantsTrial(constants=Constants(embedding=1, hidden=4, readout=0.1), loss=3.0),
        ConstantsTrial(constants=Constants(embedding=100, hidden=1, readout=0.1), loss=3.0029),
        ConstantsTrial(constants=Constants(embedding=50, hidden=50, readout=50), loss=3.0031),
        ConstantsTrial(constants=Constants(), loss=math.nan),
    ]
    found = result(tuning, trials)
    assert found.constants == Constants(embedding=10, hidden=2, readout=0.1)
    assert (found.loss, found.averaged) == (3.0, 2)


def test_a_search_in_which_all_diverged_ends_without_a_result():
    tuning = Tuning(trials=20, batch=10)
    trials = run(tuning, lambda constants: math.inf)
    assert len(trials) == 20
    assert tuning.result(trials) is None
    assert tuning.result([]) is None


def test_seeds_differ():
    first, second = (Tuning(batch=4, seed=seed).propose([]) for seed in (0, 1))
    assert not set(first[1:]) & set(second[1:])
    assert first == Tuning(batch=4).propose([])


def test_optuna_is_quiet_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch):
    import optuna

    said, handler, before = [], logging.Handler(), optuna.logging.get_verbosity()
    monkeypatch.setattr(handler, "emit", said.append)
    monkeypatch.setattr(logging.getLogger("optuna"), "handlers", [handler])
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        Tuning(batch=4).propose([])
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(before)
    assert not said


def test_optuna_is_imported_only_when_it_is_asked_and_pytorch_not_at_all():
    script = (
        "import sys, widthwise.cli.train, widthwise.sweeps.tuning as tuning\n"
        "tuning.Tuning().result([])\n"
        "print([name for name in ('optuna', 'torch') if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trials": 0}, "trials is 0: expected 1 or more"),
        ({"near": 0.5}, "near is 0.5"),
        ({"low": 1.0, "high": 1.0}, "constants from 1.0 to 1.0"),
    ],
    ids=lambda value: str(value),
)
def test_wrong_settings_are_refused(wrong: dict[str, float], message: str):
    with pytest.raises(ValueError, match=message):
        Tuning(**wrong)
