"""Orthogonalized updates, and families that differ between roles."""

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given

from tests.theory.cases import alignments
from widthwise.theory import (
    ADAM,
    ALIGNMENTS,
    FULL,
    MUON_FACTORS,
    NONE,
    PARAMETERIZATIONS,
    SGD,
    STANDARD,
    MixedFamily,
    Role,
    limits,
    move,
    move_case,
    solve,
    with_adam,
)

FACTORS = {
    "sqrt(max(1,out/in))": lambda rows, columns: max(1, rows / columns) ** 0.5,
    "sqrt(out/in)": lambda rows, columns: (rows / columns) ** 0.5,
    "sqrt(max(out,in))": lambda rows, columns: max(rows, columns) ** 0.5,
}
FIXED = 8
"""The size of a vocabulary that does not grow."""
SHAPES = {
    Role.EMBEDDING: lambda n: (n, FIXED),
    Role.HIDDEN: lambda n: (n, n),
    Role.READOUT: lambda n: (FIXED, n),
}
WIDTHS = (64, 256, 1024)
INDEX = {Role.EMBEDDING: 0, Role.HIDDEN: 1, Role.READOUT: 2}


def rates(family, alignment, parameterization=STANDARD) -> list[str]:
    return [str(-c) for c in solve(parameterization, family, alignment).rates or ()]


@pytest.mark.parametrize(
    ("formula", "full", "none"),
    [
        ("sqrt(max(1,out/in))", ["0", "0", "-1/2"], ["0", "0", "0"]),
        ("sqrt(out/in)", ["0", "0", "0"], ["0", "0", "1/2"]),
        ("sqrt(max(out,in))", ["0", "-1/2", "-1"], ["0", "-1/2", "-1/2"]),
    ],
)
def test_rates_of_the_standard_parameterization(formula: str, full: list[str], none: list[str]):
    assert rates(MUON_FACTORS[formula], FULL) == full
    assert rates(MUON_FACTORS[formula], NONE) == none


@pytest.mark.parametrize("formula", MUON_FACTORS)
@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=list(PARAMETERIZATIONS))
def test_every_parameterization_learns_features_at_the_solved_rates(formula: str, network):
    case = solve(network, MUON_FACTORS[formula], FULL)
    assert case.verdict.stable
    assert case.verdict.feature_learning
    assert case.verdict.nontrivial
    assert all(limits(case))  # no rate can be raised


@given(alignments(1))
def test_alignment_of_hidden_updates_drops_out(alignment):
    for family, network in itertools.product(MUON_FACTORS.values(), PARAMETERIZATIONS.values()):
        assumed = solve(network, family, alignment)
        as_by_chance = solve(network, family, NONE)
        if assumed.rates is None or assumed.residuals != as_by_chance.residuals:
            continue  # what the layers before it do differs: omega is above 1/2
        assert as_by_chance.rates is not None
        assert assumed.rates[1:-1] == as_by_chance.rates[1:-1]


def test_adam_s_hidden_rates_depend_on_alignment():
    """The control of the test above."""
    assert rates(ADAM, FULL)[1] != rates(ADAM, NONE)[1]


@pytest.mark.parametrize("muon", MUON_FACTORS.values(), ids=list(MUON_FACTORS))
@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=list(PARAMETERIZATIONS))
@pytest.mark.parametrize("alignment", ALIGNMENTS.values(), ids=list(ALIGNMENTS))
def test_in_a_mixture_every_role_has_the_rate_of_its_own_family(muon: MixedFamily, network, alignment):
    mixed, adam, orthogonal = (solve(network, family, alignment).rates for family in (with_adam(muon), ADAM, muon))
    assert mixed is not None
    assert adam is not None
    assert orthogonal is not None
    assert mixed == (adam[0], orthogonal[1], adam[2])


def test_a_readout_trained_by_adam_must_not_enlarge_gradients_that_sgd_follows():
    """With SGD below it, the readout may not outgrow its initialization, whatever trains it."""
    plain = MixedFamily(name="adam on top", embedding=SGD, hidden=SGD, readout=ADAM)
    case = solve(PARAMETERIZATIONS["mup"], plain, NONE)
    assert case.verdict.stable
    assert case.gradients is not None
    assert case.gradients.trained == case.gradients.at_init


@pytest.mark.parametrize("family", [*MUON_FACTORS.values(), with_adam(MUON_FACTORS["sqrt(out/in)"])])
def test_a_network_that_is_stored_differently_trains_alike(family: MixedFamily):
    case = solve(STANDARD, family, FULL)
    theta = [Fraction(1, 2), Fraction(1, 3), Fraction(-1)]
    moved = move_case(case, theta)
    assert moved.parameterization == move(STANDARD, theta)
    assert moved.residuals == case.residuals
    assert moved.logit_change == case.logit_change
    assert moved.rates == solve(moved.parameterization, family, FULL).rates


def slope(sizes: list[float]) -> float:
    return float(np.polyfit(np.log(WIDTHS), np.log(sizes), 1)[0])


@cache
def orthogonalized(role: Role, n: int) -> np.ndarray:
    """Return the update for a gradient that is random."""
    gradient = np.random.default_rng(n).normal(size=SHAPES[role](n))
    u, _, vt = np.linalg.svd(gradient, full_matrices=False)
    return u @ vt


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


@pytest.mark.parametrize("formula", MUON_FACTORS)
@pytest.mark.parametrize("role", Role)
def test_updates_have_the_size_that_the_family_says(formula: str, role: Role):
    sizes = [FACTORS[formula](*SHAPES[role](n)) * rms(orthogonalized(role, n)) for n in WIDTHS]
    family = MUON_FACTORS[formula].at(role)
    assert slope(sizes) == pytest.approx(-float(family.update(b=Fraction(0), c=Fraction(0), g=Fraction(5))), abs=1e-6)


@pytest.mark.parametrize("role", [Role.HIDDEN, Role.READOUT])
def test_only_in_hidden_layers_is_the_change_the_same_whatever_the_activations(role: Role):
    """Activations at random, and those for which the output is largest: the rows that an update consists of."""
    rng = np.random.default_rng(0)
    changes: dict[str, list[float]] = {"by chance": [], "aligned": []}
    for n in WIDTHS:
        update = orthogonalized(role, n)
        aligned = update.T @ rng.normal(size=len(update))
        for name, z in (("by chance", rng.normal(size=n)), ("aligned", aligned / rms(aligned))):
            changes[name].append(rms(update @ z))
    chance, aligned_slope = slope(changes["by chance"]), slope(changes["aligned"])
    assert chance == pytest.approx(0, abs=0.15)
    assert aligned_slope == pytest.approx(0 if role is Role.HIDDEN else 0.5, abs=0.02)
    assert MUON_FACTORS["sqrt(out/in)"].at(role).isometric == (role is Role.HIDDEN)
