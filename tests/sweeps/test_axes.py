"""Sweeps along other axes than width take the same search, fit and verdict, and leave sweeps over width as they are."""

import math
from dataclasses import replace

import pytest

from tests.sweeps.simulated import Landscape, Pretended
from tests.sweeps.tiny import TINY
from widthwise.fit.design import Sample
from widthwise.models import count_parameters
from widthwise.study.axes import AXES
from widthwise.study.fits import fit_rows
from widthwise.sweeps.carry_out import Job, run_sweeps
from widthwise.sweeps.forecast import Held, count_sweep
from widthwise.sweeps.requests import SweepData
from widthwise.sweeps.sweep import Sweep
from widthwise.train import Run, Spec, resolve

BASE = replace(TINY, data="synthetic", learning_rate=2**-6)
VALUES = {"depth": (1, 2, 4, 8), "batch": (4, 8, 16, 32), "tokens": (2560, 5120, 10240, 20480), "together": (8, 16, 32)}


class Along(Pretended):
    """Losses whose optimum falls as the root of the size along an axis."""

    def __init__(self, axis: str) -> None:
        self.axis, landscape = AXES[axis], Landscape(exponent=-0.5, noise=0.002)
        super().__init__(landscape.loss)

    def point(self, spec: Spec) -> Sample:
        return Sample(self.axis.size(vars(spec)), math.log2(spec.learning_rate), spec.seed)

    def results(self, run: Run) -> dict[str, int]:
        return {"parameters": count_parameters(run.program.model).total}


@pytest.mark.parametrize("axis", VALUES)
def test_the_exponent_along_an_axis_is_found_and_named_after_it(axis):
    sweep = Sweep(base=BASE, axis=axis, values=VALUES[axis], precision=0.1)
    driver = Along(axis)
    ((found,),) = run_sweeps([Job(sweep=sweep, data=SweepData(BASE))], driver)
    assert found.reached == "precision"
    (fit,) = fit_rows(driver.rows.values())
    assert fit.transfer.law.exponent.value == pytest.approx(-0.5, abs=0.15)
    values = fit.to_json()
    assert values["axis"] == axis
    assert [optimum[axis] for optimum in values["optima"]] == list(VALUES[axis])
    assert all(optimum.keys().isdisjoint({"width"} - {axis}) for optimum in values["optima"])
    assert (values["loss_law"] is None) == (axis in ("batch", "tokens"))  # where models are equally large
    held = Held(driver.rows.values())
    constants = dict.fromkeys(sweep.all_settings, BASE.constants)
    counts = count_sweep(sweep, vocabulary=257, constants=constants, held=held)
    assert sum(count.known for count in counts) == driver.trained
    assert {count.size for count in counts} == set(VALUES[axis])


def test_groups_along_different_axes_are_told_apart_though_they_share_runs():
    driver = Along("width")
    data = SweepData(BASE)
    jobs = [
        Job(sweep=Sweep(base=BASE, axis=axis, values=(size, 2 * size)), data=data)
        for axis, size in (("depth", 1), ("batch", 8))
    ]
    with_widths = [Job(sweep=Sweep(base=BASE, widths=(16, 32)), data=data), *jobs]
    run_sweeps(with_widths, driver)
    shared = {run for run, row in driver.rows.items() if AXES["depth"].size(row.spec) == 1 and row.spec["batch"] == 8}
    assert shared  # the base is trained once, and here it is kept under the axis that asked first
    assert {fit.transfer.axis for fit in fit_rows(driver.rows.values())} == {"width", "depth", "batch"}


def test_a_sweep_over_width_is_what_it_was_before_there_were_axes():
    """The id names its runs in a study. Where it changed, sweeps could not be resumed."""
    sweep = Sweep(base=TINY, widths=(16, 32))
    assert sweep.id == "509095e16348c9f0"
    assert sweep.names == {}
    assert resolve(TINY, vocabulary=257, data={}).id == "654e822aa8fc3a9a"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"axis": "height"}, "axis is 'height'"),
        ({"values": (2, 4)}, "values are given but the axis is width: expected widths"),
        ({"axis": "depth", "widths": (16, 32)}, "widths are given but the axis is depth: expected values"),
        ({"axis": "depth", "values": (0, 2)}, "values are 0, 2: expected 1 or more"),
        ({"axis": "depth", "values": (2, 2)}, "values are 2, 2: expected each once"),
        ({"axis": "tokens", "values": (5120, 5121)}, "some of them take the same steps"),
        ({"axis": "together", "values": (8, 12)}, "width is 12: expected a multiple of the head dimension"),
        ({"axis": "depth", "values": (2,), "precision": 0.1}, "with one depth: expected two values or more"),
    ],
)
def test_what_a_sweep_along_an_axis_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Sweep(base=BASE, **values)
