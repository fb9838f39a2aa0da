"""Muon trains hidden matrices, with the rate that its own factor leaves to set; the rest is trained as with Adam.

An orthogonalized update O keeps lengths. Held against that here, with O computed by a singular value decomposition: the
planned rate times the optimizer's own factor times O changes a layer by as much at every width.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from widthwise.scaling import Axes, Factors, Parameter, Part, find_factors
from widthwise.scaling.orthogonal import SHAPE_FACTORS, as_stored, by_axes, formula_of
from widthwise.scaling.request import FAMILY_OF, find_exponents
from widthwise.theory import (
    ADAM,
    ALIGNMENTS,
    FULL,
    MUON,
    MUON_FACTORS,
    MUP,
    PARAMETERIZATIONS,
    OptimizerFamily,
    orthogonalized,
    solve,
    with_adam,
)

R = 16
MATRIX = Axes(inputs=(1,), outputs=(0,))
VECTOR = Axes(outputs=(0,))


def matrix(out: tuple[int, int], into: tuple[int, int], part: Part = Part.HIDDEN, **others) -> Parameter:
    """Return a matrix whose outputs and inputs grow from one number to another."""
    return Parameter(
        path=part.value,
        shape=(out[1], into[1]),
        base_shape=(out[0], into[0]),
        part=part,
        axes=MATRIX,
        fan_in=into[1],
        grows_in=Fraction(into[1], into[0]),
        grows_out=Fraction(out[1], out[0]),
        **({"muon": part is Part.HIDDEN} | others),
    )


def vector(units: tuple[int, int], part: Part, **others) -> Parameter:
    grows = Fraction(units[1], units[0])
    shapes = {"shape": (units[1],), "base_shape": (units[0],)}
    return Parameter(path="vector", part=part, axes=VECTOR, grows_out=grows, **shapes, **others)


WIDE = (8, 8 * R)
HIDDEN = matrix(WIDE, WIDE)
OTHERS = (
    matrix(WIDE, (5, 5), Part.EMBEDDING),
    matrix((3, 3), WIDE, Part.READOUT),
    matrix((4, 4), WIDE, Part.INNER_READOUT),
    vector(WIDE, Part.EMBEDDING),
    vector((3, 3), Part.UNSCALED),
)


def factors(
    family, *parameters: Parameter, network: str = "mup", alignment: str = "full", **others
) -> dict[str, Factors]:
    return find_factors(parameters, solve(PARAMETERIZATIONS[network], family, ALIGNMENTS[alignment]), **others)


@pytest.mark.parametrize(
    ("name", "power"), [("muon", 0), ("muon+adam", 0), ("muon_out_in", 0), ("muon_max", -0.5), ("muon_max+adam", -0.5)]
)
@pytest.mark.parametrize("network", PARAMETERIZATIONS)
@pytest.mark.parametrize("alignment", ["full", "none"])
def test_a_layer_that_grows_alike_has_the_exponent_of_the_theory(name: str, power: float, network: str, alignment: str):
    found = factors(FAMILY_OF[name], HIDDEN, network=network, alignment=alignment)["hidden"]
    assert found.learning_rate == pytest.approx(R**power)
    assert found.init == factors(ADAM, HIDDEN, network=network)["hidden"].init


@pytest.mark.parametrize("name", ["muon", "muon_out_in", "muon_max"])
@pytest.mark.parametrize("network", PARAMETERIZATIONS)
@pytest.mark.parametrize("alignment", ["full", "none"])
@pytest.mark.parametrize("multipliers", [False, True])
def test_what_muon_does_not_train_is_planned_as_with_adam(name: str, network: str, alignment: str, multipliers: bool):
    options = {"network": network, "alignment": alignment, "multipliers": multipliers}
    mixed = factors(FAMILY_OF[name], HIDDEN, *OTHERS, **options)
    adam = factors(ADAM, HIDDEN, *OTHERS, **options)
    for parameter in OTHERS:
        assert mixed[parameter.path] == adam[parameter.path]
    assert mixed["hidden"] != adam["hidden"]
    left = factors(FAMILY_OF[name], replace(HIDDEN, muon=False), **options)
    assert left["hidden"] == adam["hidden"]


TIED = (
    matrix(WIDE, (5, 5), Part.TIED),
    replace(vector(WIDE, Part.EMBEDDING), path="scale", gain_of="tied"),
    replace(HIDDEN, grows_head=Fraction(4)),
)


def test_tied_logits_and_attention_are_as_with_adam():
    mixed, adam = factors(FAMILY_OF["muon"], *TIED), factors(ADAM, *TIED)
    assert mixed["tied"] == adam["tied"]
    assert mixed["scale"] == adam["scale"]
    assert mixed["hidden"].init == adam["hidden"].init
    assert mixed["hidden"].learning_rate == 4**-0.5  # queries that start smaller are updated by less


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


def orthogonal(shape: tuple[int, int], rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an orthogonalized gradient of a few examples, and the activations that it was made of."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rank, shape[1]))
    z /= rms(z)
    u, _, vt = np.linalg.svd(rng.normal(size=(rank, shape[0])).T @ z, full_matrices=False)
    return u[:, :rank] @ vt[:rank], z


GROWTHS = {
    "wider": ((8, 8 * R**2), (8, 8 * R)),
    "narrower": ((8, 8 * R), (8, 8 * R**2)),
    "turned around": ((8, 8 * R), (64, 64 * 2)),
    "few outputs": ((4, 4), (8, 8 * R)),
}


@pytest.mark.parametrize("formula", MUON_FACTORS)
@pytest.mark.parametrize(("out", "into"), GROWTHS.values(), ids=list(GROWTHS))
def test_sides_that_grow_differently_change_activations_by_as_much(formula: str, out, into):
    parameter = matrix(out, into, muon=True)
    family = with_adam(MUON_FACTORS[formula])
    rate = factors(family, parameter)["hidden"].learning_rate
    changes = {}
    for shape, times in ((parameter.base_shape, 1.0), (parameter.shape, rate)):
        update, z = orthogonal(shape, rank=2)
        changes[shape] = times * SHAPE_FACTORS[formula](*shape) * rms(z @ update.T)
    assert changes[parameter.shape] == pytest.approx(changes[parameter.base_shape])


def test_without_alignment_inputs_that_outnumber_outputs_do_not_add_up():
    parameter = matrix((8, 8), (16, 16 * R), muon=True)
    update, _ = orthogonal((8, 16 * R), rank=8)
    base, _ = orthogonal((8, 16), rank=8)
    rng = np.random.default_rng(1)
    here, before = (rms(rng.normal(size=(100, o.shape[1])) @ o.T) for o in (update, base))
    assert here == pytest.approx(before, rel=0.1)
    assert factors(FAMILY_OF["muon"], parameter, alignment="none")["hidden"].learning_rate == 1
    assert factors(FAMILY_OF["muon"], parameter)["hidden"].learning_rate == R**-0.5


def test_an_optimizer_that_takes_inputs_for_outputs_is_made_up_for():
    """A weight that is stored with inputs first, as in GPT-2 of Hugging Face, has its factor turned around there."""
    stored = replace(
        matrix((8, 8 * R**2), (8, 8 * R), muon=True),
        shape=(8 * R, 8 * R**2),
        base_shape=(8, 8),
        axes=Axes(inputs=(0,), outputs=(1,)),
    )
    assert by_axes(stored, stored.shape) == as_stored(stored, stored.shape)[::-1]
    seen = factors(FAMILY_OF["muon"], stored)["hidden"].learning_rate
    turned = factors(FAMILY_OF["muon"], stored, sides=as_stored)["hidden"].learning_rate
    assert seen == pytest.approx(1)  # √(out/in), all of which is the optimizer's
    assert turned == pytest.approx(R**0.5)  # of which nothing is


@pytest.mark.parametrize("network", PARAMETERIZATIONS)
def test_epsilon_follows_the_norm_of_the_gradient(network: str):
    """Its entries have the size of Adam's epsilon; there are r·s times as many of them."""
    parameter = matrix((8, 8 * 4), (8, 8 * 9))
    adam, muon = (factors(family, parameter, network=network)["hidden"] for family in (ADAM, FAMILY_OF["muon"]))
    assert muon.epsilon == pytest.approx(adam.epsilon * 6)


def test_at_the_base_width_every_factor_is_one():
    same = [replace(p, shape=p.base_shape, grows_in=Fraction(1), grows_out=Fraction(1)) for p in (HIDDEN, *OTHERS)]
    for name in ("muon", "muon_out_in", "muon_max"):
        for network in PARAMETERIZATIONS:
            assert set(factors(FAMILY_OF[name], *same, network=network).values()) == {Factors()}


def test_muon_by_name_is_the_mixture_with_adam():
    for formula, muon in MUON_FACTORS.items():
        assert FAMILY_OF[muon.name] == FAMILY_OF[f"{muon.name}+adam"] == with_adam(muon)
        assert formula_of(FAMILY_OF[muon.name]) == formula


@pytest.mark.parametrize("family", [MUON, OptimizerFamily(name="all", isometric=True)])
def test_muon_alone_is_refused(family):
    with pytest.raises(ValueError, match=rf"^'{family.name}' orthogonalizes every update.*optimizer='muon'[^\n]*$"):
        find_exponents("mup", family, "full", None)
    with pytest.raises(ValueError, match="orthogonalizes every update"):
        find_exponents("mup", "adam", "full", solve(MUP, family, FULL))


def test_a_factor_that_is_not_known_is_refused():
    own = with_adam(orthogonalized("own", embedding=0, hidden="1/4", readout=0))
    with pytest.raises(ValueError, match=r"^'own\+adam' multiplies updates by a factor that plans do not know"):
        find_exponents("mup", own, "full", None)
