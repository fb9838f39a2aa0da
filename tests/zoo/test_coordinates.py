"""Every model of the zoo keeps the sizes of its activations under a plan, and does not under one global rate.

Two widths, two seeds and five steps are enough to show a wrong exponent, which is 1/2 or more. They leave an
uncertainty of about 0.1 (with one seed it is 0.2), so the tolerance is wider than the usual one. Slopes reach 0.15 with
plans and at least 0.3 with one rate.

Keys and values with a fixed number of heads, in the first block, are not only uncertain. Changes of the embedding align
with their few initial columns, as with those of a readout that starts at its usual size. Their own changes grow as
n^0.13 from width 32 to 256, with 16 such columns, and as n^0.33 from 128 to 1024.
"""

import optax
import pytest

import widthwise as ww
from tests.zoo.cases import BASE_WIDTH, CASES, Case

# The looped Llama is the scanned one, and tests of training show that plans train them to the same weights.
DIFFERENT = [case for case in CASES if case.name != "llama-nnx-looped"]


@pytest.mark.parametrize("case", DIFFERENT, ids=lambda case: case.name)
def test_sizes_stay_under_a_plan_and_not_under_one_global_rate(case: Case):
    plan = ww.plan(case.build, width=64, base_width=BASE_WIDTH, example=case.example, call=case.call)
    options = {"widths": (32, 128), "seeds": 2, "steps": 5, "tolerance": 0.2, "show": False}
    planned = plan.check(case.loss, case.batch, learning_rate=3e-3, **options)
    assert planned.passed, str(planned)
    one_rate = plan.check(case.loss, case.batch, optimizer=lambda plan: optax.adam(3e-3), **options)
    assert not one_rate.passed
    assert not one_rate.unseen
