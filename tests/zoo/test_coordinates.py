"""Every model of the zoo keeps the sizes of its activations under a plan, and does not under one global rate.

Two widths, one seed and four steps show a wrong exponent, which is 1/2 or more. They leave an uncertainty of about 0.1,
so the tolerance is wider than the usual one. It also has to allow for keys and values with a fixed number of heads in
the first block: changes of the embedding align with their few initial columns, as with those of a readout that starts
at its usual size, and their changes grow by about n^0.15 (docs/own-model.md).
"""

import optax
import pytest

import widthwise as ww
from tests.zoo.cases import BASE_WIDTH, CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sizes_stay_under_a_plan_and_not_under_one_global_rate(case: Case):
    plan = ww.plan(case.build, width=64, base_width=BASE_WIDTH, example=case.example, call=case.call)
    options = {"widths": (32, 128), "seeds": 1, "steps": 4, "tolerance": 0.25, "show": False}
    planned = plan.check(case.loss, case.batch, learning_rate=3e-3, **options)
    assert planned.passed, str(planned)
    one_rate = plan.check(case.loss, case.batch, optimizer=lambda plan: optax.adam(3e-3), **options)
    assert not one_rate.passed
    assert not one_rate.unseen
