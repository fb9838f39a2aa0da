"""Experiments that train nothing: exact."""

import math
from pathlib import Path

import pytest

from widthwise.experiments.experiment import Reading
from widthwise.experiments.paper.atan2 import large_regime, small_regime
from widthwise.experiments.paper.values import ARCTAN_CONSTANTS
from widthwise.experiments.registry import EXPERIMENTS
from widthwise.experiments.results import Results
from widthwise.report.exhibits import Lines, PlanePoint, Planes, Table
from widthwise.report.findings import Judgement
from widthwise.study import Study


def reading(name: str, tmp_path: Path) -> Reading:
    with Study.open(tmp_path) as study:
        return EXPERIMENTS[name].read(Results(study, name, "smoke"))


def test_two_classes_that_differ_in_the_readout(tmp_path: Path):
    found = reading("equivalence", tmp_path)
    assert [finding.verdict for finding in found.findings] == [Judgement.HOLDS] * 4
    assert [finding.measured for finding in found.findings] == [
        "2: standard and NTK; muP and mean-field",
        "they differ in the readout, where a + b is 1/2 and 1",
        "unstable: none",
        "the largest stable rates are the right ones in 12 of 12 cases",
    ]


def test_planes_are_those_of_the_paper_s_figure(tmp_path: Path):
    planes, _ = reading("equivalence", tmp_path).exhibits
    assert isinstance(planes, Planes)
    assert [(plane.role, plane.stable_total, plane.exact) for plane in planes.planes] == [
        ("embedding", 0.0, True),
        ("hidden", 0.5, True),
        ("readout", 0.5, False),
    ]
    assert planes.planes[2].points == (
        PlanePoint(parameterization="standard", a=0.0, b=0.5),
        PlanePoint(parameterization="ntk", a=0.5, b=0.0),
        PlanePoint(parameterization="mup", a=0.5, b=0.5),
        PlanePoint(parameterization="mean_field", a=1.0, b=0.0),
    )


def test_constants_of_the_arctangent_are_derived_and_agree_with_the_paper(tmp_path: Path):
    for b, paper in ARCTAN_CONSTANTS.items():
        assert (small_regime(b), round(large_regime(b), 2)) == paper
        assert large_regime(b) * math.atan(1 / b) == pytest.approx(1)
    _, table = reading("atan2", tmp_path).exhibits
    assert isinstance(table, Table)
    assert [row[1:3] == row[3:] for row in table.rows] == [True] * 6
    assert table.paper == {3, 4}


def test_claims_about_the_arctangent_hold(tmp_path: Path):
    assert [finding.verdict for finding in reading("atan2", tmp_path).findings] == [Judgement.HOLDS] * 4


def test_the_arctangent_is_drawn_against_division(tmp_path: Path):
    lines, _ = reading("atan2", tmp_path).exhibits
    assert isinstance(lines, Lines)
    assert not lines.log_x
    one, wider = (
        {series.name: dict(zip(series.x, series.y, strict=True)) for series in panel.series} for panel in lines.panels
    )
    assert one["arctangent"][1.0] == pytest.approx(math.pi / 4)
    assert (one["division"][4.0], one["division, clipped at 1"][4.0]) == (4.0, 1.0)
    assert wider["b = 8"][4.0] == pytest.approx(8 * math.atan(0.5))
