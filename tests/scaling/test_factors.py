"""Factors are powers of growth since the base width, held against exponents that were worked out by hand.

The network is x → tanh(x E) → tanh(· W) → · R. Let r be the growth of its width. Activations have size 1. A readout of
size r^-1 (muP, mean-field) or r^-1/2 (standard, NTK) sends gradients of that size back; those of the readout's own
entries have size 1. A sum over r times as many terms, all aligned, is r times as large.
"""

from dataclasses import replace
from fractions import Fraction

import pytest

from widthwise.scaling import Axes, Factors, Parameter, Part, find_factors
from widthwise.theory import (
    ADAFACTOR,
    ADAM,
    ALIGNMENTS,
    FULL,
    MEAN_FIELD,
    MUP,
    NTK,
    PARAMETERIZATIONS,
    SGD,
    STANDARD,
    OptimizerFamily,
    Parameterization,
    check,
    solve,
)

R = 16
"""The growth; all its powers here are exact in floating point."""

MATRIX = Axes(inputs=(0,), outputs=(1,))
VECTOR = Axes(outputs=(0,))


def parameter(path: str, part: Part, *, grows_in: int = 1, grows_out: int = 1, axes: Axes = MATRIX) -> Parameter:
    shape = (grows_in, grows_out) if axes is MATRIX else (grows_out,)
    return Parameter(
        path=path,
        shape=shape,
        base_shape=(1,) * len(shape),
        part=part,
        axes=axes,
        fan_in=grows_in,
        grows_in=Fraction(grows_in),
        grows_out=Fraction(grows_out),
    )


EMBEDDING = parameter("embedding", Part.EMBEDDING, grows_out=R)
VECTOR_OF_UNITS = parameter("vector", Part.EMBEDDING, grows_out=R, axes=VECTOR)
HIDDEN = parameter("hidden", Part.HIDDEN, grows_in=R, grows_out=R)
READOUT = parameter("readout", Part.READOUT, grows_in=R)
BIAS = parameter("bias", Part.UNSCALED, axes=VECTOR)
NETWORK = (EMBEDDING, VECTOR_OF_UNITS, HIDDEN, READOUT, BIAS)


def factors(
    parameterization: Parameterization, family: OptimizerFamily, *parameters: Parameter, alignment: str = "full"
) -> dict[str, Factors]:
    return find_factors(parameters or NETWORK, solve(parameterization, family, ALIGNMENTS[alignment]))


def column(found: dict[str, Factors], name: str) -> dict[str, float]:
    return {path: getattr(factors, name) for path, factors in found.items()}


def powers(*exponents: float) -> dict[str, float]:
    """Return r^exponent for embedding, hidden and readout; vectors are as embeddings, other biases have 1."""
    embedding, hidden, readout = (R**exponent for exponent in exponents)
    return {"embedding": embedding, "vector": embedding, "hidden": hidden, "readout": readout, "bias": 1}


@pytest.mark.parametrize(("network", "readout"), [(MUP, -1), (MEAN_FIELD, -1), (STANDARD, -0.5), (NTK, -0.5)])
@pytest.mark.parametrize("family", [SGD, ADAM, ADAFACTOR])
def test_initial_sizes_do_not_depend_on_the_optimizer(
    network: Parameterization, readout: float, family: OptimizerFamily
):
    assert column(factors(network, family), "init") == powers(0, -0.5, readout)


@pytest.mark.parametrize(
    ("family", "network", "expected"),
    [
        # An update of the learning rate's size; sums over r aligned terms need r^-1.
        (ADAM, MUP, (0, -1, -1)),
        (ADAM, STANDARD, (0, -1, -1)),
        # Updates as large as the gradients: r^-1 or r^-1/2 for embedding and hidden, 1 for the readout.
        (SGD, MUP, (1, 0, -1)),
        (SGD, STANDARD, (0.5, -0.5, -1)),
        # Updates as large as the weights: 1 for the embedding, r^-1/2 for hidden, r^-1 or r^-1/2 for the readout.
        (ADAFACTOR, MUP, (0, -0.5, 0)),
        (ADAFACTOR, STANDARD, (0, -0.5, -0.5)),
    ],
)
def test_updates_are_such_that_activations_change_by_as_much_at_every_width(
    family: OptimizerFamily, network: Parameterization, expected: tuple[float, ...]
):
    assert column(factors(network, family), "learning_rate") == powers(*expected)


def test_without_alignment_sums_grow_as_the_root_of_their_terms():
    assert column(factors(MUP, ADAM, alignment="none"), "learning_rate") == powers(0, -0.5, -0.5)


@pytest.mark.parametrize(("network", "size"), [(MUP, -1), (MEAN_FIELD, -1), (STANDARD, -0.5), (NTK, -0.5)])
@pytest.mark.parametrize("family", [ADAM, ADAFACTOR])
def test_epsilon_follows_the_size_of_gradients(network: Parameterization, size: float, family: OptimizerFamily):
    assert column(factors(network, family), "epsilon") == powers(size, size, 0)


@pytest.mark.parametrize("network", PARAMETERIZATIONS.values())
def test_a_layer_that_starts_at_zero_is_updated_as_if_it_had_its_usual_size(network: Parameterization):
    """Parameter scaling replaces the size of such a layer by a floor, which therefore follows the initial sizes."""
    found = factors(network, ADAFACTOR)
    assert column(found, "floor") == column(found, "init")
    assert {path: f.floor * f.learning_rate for path, f in found.items()} == powers(0, -1, -1)


@pytest.mark.parametrize(("one", "other"), [(STANDARD, NTK), (MUP, MEAN_FIELD)])
@pytest.mark.parametrize("family", [SGD, ADAM, ADAFACTOR])
def test_without_multipliers_there_are_two_parameterizations_not_four(
    one: Parameterization, other: Parameterization, family: OptimizerFamily
):
    assert factors(one, family) == factors(other, family)
    assert column(factors(one, family), "multiplier") == powers(0, 0, 0)


def test_at_the_base_width_every_factor_is_one():
    same = [replace(p, grows_in=Fraction(1), grows_out=Fraction(1)) for p in NETWORK]
    for network in PARAMETERIZATIONS.values():
        for family in (SGD, ADAM, ADAFACTOR):
            for multipliers in (False, True):
                found = find_factors(tuple(same), solve(network, family, FULL), multipliers=multipliers)
                assert set(found.values()) == {Factors()}


@pytest.mark.parametrize(
    ("network", "multiplier", "rate"),
    [
        # The paper's own exponents (Table 1), relative to the base width.
        (STANDARD, (0, 0, 0), (0, -1, -1)),
        (NTK, (0, -0.5, -0.5), (0, -0.5, -0.5)),
        (MUP, (0.5, 0, -0.5), (-0.5, -1, -0.5)),
        (MEAN_FIELD, (0, -0.5, -1), (0, -0.5, 0)),
    ],
)
def test_multipliers_are_those_of_the_parameterization(
    network: Parameterization, multiplier: tuple[float, ...], rate: tuple[float, ...]
):
    case = solve(network, ADAM, FULL)
    found = find_factors(NETWORK, case, multipliers=True)
    assert column(found, "multiplier") == powers(*multiplier)
    assert column(found, "learning_rate") == powers(*rate)
    plain = find_factors(NETWORK, case)
    assert {path: f.init * f.multiplier for path, f in found.items()} == column(plain, "init")


def test_a_parameter_that_acts_nonlinearly_has_no_multiplier():
    bent = (replace(EMBEDDING, linear=False), HIDDEN, READOUT)
    found = find_factors(bent, solve(MUP, ADAM, FULL), multipliers=True)
    assert found["embedding"] == find_factors(bent, solve(MUP, ADAM, FULL))["embedding"]
    assert found["readout"].multiplier == R**-0.5


@pytest.mark.parametrize("network", [MUP, STANDARD])
def test_parts_that_grow_differently_follow_their_own_fan_in(network: Parameterization):
    """The residual stream grows 4 times, the inside of the MLP 16 times."""
    embedding = parameter("embedding", Part.EMBEDDING, grows_out=4)
    up = parameter("up", Part.HIDDEN, grows_in=4, grows_out=16)
    down = parameter("down", Part.HIDDEN, grows_in=16, grows_out=4)
    readout = parameter("readout", Part.READOUT, grows_in=4)
    found = factors(network, ADAM, embedding, up, down, readout)
    assert column(found, "init") | {"readout": 1} == {"embedding": 1, "up": 1 / 2, "down": 1 / 4, "readout": 1}
    assert column(found, "learning_rate") == {"embedding": 1, "up": 1 / 4, "down": 1 / 16, "readout": 1 / 4}


def test_gradients_spread_over_the_outputs_of_a_layer():
    """Entries of δ have size 1 / outputs: with SGD the rate makes up for them, with Adam epsilon does."""
    up = parameter("up", Part.HIDDEN, grows_in=4, grows_out=16)
    assert factors(MUP, ADAM, up)["up"].epsilon == 1 / 16
    assert factors(MUP, SGD, up)["up"].learning_rate == 16 / 4


@pytest.mark.parametrize("network", [MUP, STANDARD])
def test_an_inner_readout_is_scaled_as_a_hidden_layer(network: Parameterization):
    """Keys and values of fixed heads must neither grow nor shrink, whatever the final readout does."""
    keys = parameter("keys", Part.INNER_READOUT, grows_in=R)
    found = factors(network, ADAM, *NETWORK, keys)["keys"]
    assert (found.init, found.learning_rate) == (R**-0.5, R**-1)


TIED = (
    parameter("embedding", Part.TIED, grows_out=R),
    HIDDEN,
    replace(VECTOR_OF_UNITS, path="norm"),
    replace(VECTOR_OF_UNITS, path="scale", gain_of="embedding"),
    replace(VECTOR_OF_UNITS, path="bias", gain_of="embedding"),
)


@pytest.mark.parametrize("network", [MUP, STANDARD])
@pytest.mark.parametrize(
    ("family", "vectors", "gains"),
    [
        (ADAM, Factors(epsilon=1 / R), Factors(init=1 / R, floor=1 / R, learning_rate=1 / R)),
        (SGD, Factors(learning_rate=R, epsilon=1 / R), Factors(init=1 / R, floor=1 / R, learning_rate=1 / R)),
        (ADAFACTOR, Factors(epsilon=1 / R), Factors(init=1 / R, floor=1 / R)),
    ],
)
def test_the_norm_in_front_of_a_tied_readout_takes_the_factor_of_the_logits(
    network: Parameterization, family: OptimizerFamily, vectors: Factors, gains: Factors
):
    """The updates of a tied embedding have constant size, so its logits need 1/r in every parameterization."""
    found = factors(network, family, *TIED)
    assert found["embedding"] == found["norm"] == vectors
    assert found["scale"] == found["bias"] == gains


def test_multipliers_keep_the_factor_of_tied_logits_in_the_norm():
    found = find_factors(TIED, solve(MUP, ADAM, FULL), multipliers=True)
    assert found["embedding"] == Factors(epsilon=1 / R)
    assert found["scale"].init * found["scale"].multiplier == 1 / R


def test_one_set_of_exponents_is_expected_for_all_hidden_layers():
    network = STANDARD.with_hidden_layers(2)
    assert find_factors(NETWORK, solve(network, ADAM, FULL)) == factors(STANDARD, ADAM)
    with pytest.raises(ValueError, match="2 hidden layers that differ"):
        find_factors(NETWORK, check(network, [0, 1, 2, 1], ADAM, FULL))
    with pytest.raises(ValueError, match="0 hidden layers that do not exist"):
        find_factors(NETWORK, solve(STANDARD.with_hidden_layers(0), ADAM, FULL))
