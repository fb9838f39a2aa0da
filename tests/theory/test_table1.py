"""Everything the paper's Table 1 states is derived, cell by cell; what it leaves unsaid is reported."""

import csv
from fractions import Fraction
from pathlib import Path

import pytest

from widthwise.theory import ADAM, ALIGNMENTS, FAMILIES, PARAMETERIZATIONS, TENSOR_PROGRAMS, Role, solve

POWERS = {"1": Fraction(0), "sqrt(n)": Fraction(1, 2), "n": Fraction(1), "n^1.5": Fraction(3, 2)}
ROLES = [role.value for role in Role]


def printed(cell: str) -> Fraction:
    """Read a power of n as the table prints it."""
    return -POWERS[cell.removeprefix("1/")] if cell.startswith("1/") else POWERS[cell]


def rows() -> list[dict[str, str]]:
    lines = Path(__file__).with_name("table1.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


TABLE = rows()
CASES = [
    (row["parameterization"], row["layer"], alignment, family, row[f"{alignment} {family}"])
    for row in TABLE
    for alignment in ("full", "none")
    for family in FAMILIES
]


def test_the_table_is_complete():
    assert len(TABLE) == 12
    assert len(CASES) == 72


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['parameterization']} {row['layer']}")
def test_initialization_multiplier_and_gradient(row: dict[str, str]):
    case = solve(PARAMETERIZATIONS[row["parameterization"]], ADAM, ALIGNMENTS["full"])
    index = ROLES.index(row["layer"])
    layer = case.parameterization.layers[index]
    assert case.gradients is not None
    assert -2 * layer.b == printed(row["variance"])
    assert -layer.a == printed(row["multiplier"])
    assert -case.gradients.at_init[index] == printed(row["gradient"])


@pytest.mark.parametrize(("parameterization", "layer", "alignment", "family", "cell"), CASES)
@pytest.mark.parametrize("hidden_layers", [1, 5])
def test_learning_rate(parameterization: str, layer: str, alignment: str, family: str, cell: str, hidden_layers: int):
    network = PARAMETERIZATIONS[parameterization].with_hidden_layers(hidden_layers)
    case = solve(network, FAMILIES[family], ALIGNMENTS[alignment])
    assert case.rates is not None
    by_role = {"embedding": case.rates[:1], "hidden": case.rates[1:-1], "readout": case.rates[-1:]}
    assert {-c for c in by_role[layer]} == {printed(cell)}


@pytest.mark.parametrize("name", PARAMETERIZATIONS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("alignment", ["full", "none"])
def test_every_case_learns_features_and_exactly_four_are_trivial(name: str, family: str, alignment: str):
    case = solve(PARAMETERIZATIONS[name], FAMILIES[family], ALIGNMENTS[alignment])
    trivial = name in ("mup", "mean_field") and family in ("sgd", "adafactor") and alignment == "none"
    assert case.verdict.stable
    assert case.verdict.feature_learning
    assert case.verdict.nontrivial is not trivial
    logits = {c.name: c.slack for c in case.constraints if c.name.startswith("stable_logits")}
    if trivial:
        assert len(logits) == 3
        assert set(logits.values()) == {Fraction(1, 2)}
        assert [(c.name, c.slack) for c in case.broken] == [("nontrivial", Fraction(-1, 2))]
    else:
        assert min(logits.values()) == 0
        assert case.broken == ()


@pytest.mark.parametrize("name", PARAMETERIZATIONS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("hidden_layers", [0, 1, 4])
def test_tensor_programs_leave_standard_and_ntk_without_features(name: str, family: str, hidden_layers: int):
    network = PARAMETERIZATIONS[name].with_hidden_layers(hidden_layers)
    verdict = solve(network, FAMILIES[family], TENSOR_PROGRAMS).verdict
    residual = Fraction(1, 2) if name in ("standard", "ntk") else 0
    assert verdict.stable
    assert verdict.nontrivial
    assert verdict.residual == residual
    assert verdict.feature_learning is (residual == 0)


def test_gradients_grow_where_the_readouts_update_outgrows_its_initialization():
    grown = {
        (name, family, alignment)
        for name, network in PARAMETERIZATIONS.items()
        for family in FAMILIES
        for alignment in ("full", "none")
        if (gradients := solve(network, FAMILIES[family], ALIGNMENTS[alignment]).gradients)
        and gradients.trained != gradients.at_init
    }
    assert grown == {("mup", "adam", "none"), ("mean_field", "adam", "none")}
