"""The schedule rises, falls, and has a defined course where the warm-up does not end."""

import numpy as np
import optax
import pytest

from widthwise.optim import warmup_cosine


def test_it_is_optaxs_where_the_warm_up_ends():
    ours = warmup_cosine(steps=100, warmup=10)
    theirs = optax.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100, 0.0)
    steps = np.arange(101)
    np.testing.assert_allclose([ours(t) for t in steps], [theirs(t) for t in steps], atol=1e-7)
    assert (float(ours(0)), float(ours(10)), float(ours(100))) == pytest.approx((0.0, 1.0, 0.0), abs=1e-7)


@pytest.mark.parametrize("warmup", [877, 1000])
def test_a_warm_up_that_does_not_end_keeps_its_slope_and_never_decays(warmup: int):
    schedule = warmup_cosine(steps=877, warmup=warmup)
    np.testing.assert_allclose([schedule(t) for t in (0, 100, 877)], [0, 100 / warmup, 877 / warmup], rtol=1e-6)


def test_without_warm_up_it_starts_at_the_peak():
    schedule = warmup_cosine(steps=10, warmup=0)
    assert (float(schedule(0)), float(schedule(5)), float(schedule(10))) == pytest.approx((1.0, 0.5, 0.0), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "named"), [({"steps": 0}, "steps is 0"), ({"steps": 5, "warmup": -1}, "warmup is -1")]
)
def test_nonsense_is_refused(options: dict[str, int], named: str):
    with pytest.raises(ValueError, match=named):
        warmup_cosine(**options)
