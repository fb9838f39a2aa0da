"""Measured alignment becomes exponents: those of the assumptions where it equals them, and bounds in between."""

import math
from fractions import Fraction

import pytest

from widthwise.measure import AlignmentPoint, implied, slopes, summarize
from widthwise.measure.implied import MeasuredAlignment, RoleAlignment, Spread, alignment_of
from widthwise.models import MLP, layout, prescribe
from widthwise.theory import ADAM, FULL, NONE, PARAMETERIZATIONS, SGD, STANDARD, TENSOR_PROGRAMS, Role, solve

MODEL = MLP(width=64, hidden_layers=2)
LAYOUT = layout(MODEL, STANDARD)


def point(step: int, **exponents: tuple[float, float, float]) -> AlignmentPoint:
    paths = {"first": "hidden/0", "second": "hidden/1", "readout": "readout", "embedding": "embedding"}
    layers = {
        paths[name]: {**dict(zip(("alpha", "omega", "u"), values, strict=True)), "fan_in": 64.0}
        for name, values in exponents.items()
    }
    return AlignmentPoint(step=step, layers=layers)


def measured(hidden: tuple[float, float, float], readout: tuple[float, float, float]) -> MeasuredAlignment:
    def role(values: tuple[float, float, float]) -> RoleAlignment:
        spreads = (Spread(smallest=x, median=x, largest=x) for x in values)
        return RoleAlignment(layers=2, **dict(zip(("alpha", "omega", "u"), spreads, strict=True)))

    return {Role.HIDDEN: role(hidden), Role.READOUT: role(readout)}


def test_roles_are_summarized_over_layers_and_moments():
    nan = math.nan
    points = [
        point(0, first=(nan,) * 3, second=(nan,) * 3, readout=(nan,) * 3, embedding=(nan,) * 3),
        point(1, first=(0.7, 0.5, 0.6), second=(0.9, 0.55, 0.6), readout=(0.6, 0.5, 0.5), embedding=(9, 9, 9)),
        point(2, first=(0.8, 0.5, 0.7), second=(1.0, 0.5, 0.6), readout=(0.8, 0.7, 0.5), embedding=(9, 9, 9)),
    ]
    found = summarize(points, LAYOUT)
    assert found[Role.HIDDEN].layers == 2
    assert found[Role.HIDDEN].alpha == Spread(smallest=0.7, median=pytest.approx(0.85), largest=1.0)
    assert found[Role.READOUT].omega == Spread(smallest=0.5, median=pytest.approx(0.6), largest=0.7)
    assert str(found[Role.READOUT].alpha) == "0.70 [0.60, 0.80]"


def test_a_run_without_steps_has_nothing_to_summarize():
    with pytest.raises(ValueError, match="hidden layers was never finite"):
        summarize([point(0, first=(math.nan,) * 3, readout=(math.nan,) * 3)], LAYOUT)


@pytest.mark.parametrize("name", PARAMETERIZATIONS)
@pytest.mark.parametrize("family", [ADAM, SGD], ids=lambda family: family.name)
@pytest.mark.parametrize(
    ("values", "assumption"),
    [
        (((1, 0.5, 1), (1, 0.5, 1)), FULL),
        (((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), NONE),
        (((1, 0.5, 1), (1, 1, 1)), TENSOR_PROGRAMS),
    ],
    ids=["full", "none", "tensor_programs"],
)
def test_measuring_what_is_assumed_implies_the_same_exponents(name: str, family, values, assumption):
    case = implied(PARAMETERIZATIONS[name], family, measured(*values))
    expected = solve(PARAMETERIZATIONS[name].with_hidden_layers(2), family, assumption)
    assert case.rates == expected.rates
    assert case.verdict == expected.verdict


def test_hidden_omega_above_one_half_compounds_over_the_chain_only():
    found = measured((1, 0.6, 1), (1, 0.5, 1))
    by_chain = {chain: implied(STANDARD, ADAM, found, chain=chain) for chain in (1, 2, 12)}
    for chain, case in by_chain.items():
        assert case.verdict.stable
        assert case.rates is not None
        assert case.rates[0] == Fraction(chain, 10)  # the embedding must leave room for every layer above it
        assert len(set(case.rates[1:-1])) == 1


def test_measured_exponents_are_cut_to_what_the_theory_knows():
    alignment = alignment_of(measured((1.07, 0.512, -0.2), (0.333, 0.5, 0.5)), "largest")
    hidden = alignment.hidden[0]
    assert (hidden.alpha, hidden.omega, hidden.u) == (1, Fraction(51, 100), 0)
    assert alignment.readout.alpha == Fraction(33, 100)


def test_the_statistic_chooses_between_typical_and_safe():
    spread = Spread(smallest=0.5, median=0.7, largest=0.9)
    half = Spread(smallest=0.5, median=0.5, largest=0.5)
    role = RoleAlignment(layers=1, alpha=spread, omega=half, u=half)
    found = {Role.HIDDEN: role, Role.READOUT: role}
    typical, safe = (implied(STANDARD, ADAM, found, statistic=name).rates for name in ("median", "largest"))
    assert typical is not None
    assert safe is not None
    assert [float(rate) for rate in typical] == [0, 0.7, 0.7, 0.7]
    assert [float(rate) for rate in safe] == [0, 0.9, 0.9, 0.9]


def test_what_is_implied_can_be_prescribed():
    case = implied(STANDARD, ADAM, measured((0.8, 0.5, 0.7), (0.9, 0.5, 0.7)))
    plan = prescribe(MODEL, case, base_width=16)
    assert plan.scales.learning_rate["hidden"][0] == pytest.approx(4**-0.8)
    assert plan.scales.learning_rate["readout"] == pytest.approx(4**-0.9)


def test_slopes_leave_constants_behind():
    """Ratios of 3·n^0.9 are log_n 0.9 + log_n 3 at each width, and have slope 0.9."""
    by_width = {}
    for width in (64, 128, 512):
        at_width = point(4, first=(0.9 + math.log(3, width), 0.5, math.nan))
        layer = {**at_width.layers["hidden/0"], "fan_in": float(width)}
        by_width[width] = [AlignmentPoint(step=4, layers={"hidden/0": layer})]
    (found,) = slopes(by_width)
    assert found.step == 4
    assert found.layers["hidden/0"]["alpha"] == pytest.approx(0.9)
    assert found.layers["hidden/0"]["omega"] == pytest.approx(0.5)
    assert math.isnan(found.layers["hidden/0"]["u"])
    with pytest.raises(ValueError, match="a slope needs two or more"):
        slopes({64: by_width[64]})
