"""How numbers and layers enter the theory."""

from fractions import Fraction

import numpy as np
import pytest

from widthwise.theory import (
    NTK,
    STANDARD,
    Alignment,
    Exact,
    Layer,
    LayerAlignment,
    OptimizerFamily,
    Parameterization,
    exact,
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, Fraction(1)),
        ("3/4", Fraction(3, 4)),
        (" -0.5 ", Fraction(-1, 2)),
        (".5", Fraction(1, 2)),
        (0.1, Fraction(1, 10)),
        (1e-05, Fraction(1, 100_000)),
        (np.float64(0.75), Fraction(3, 4)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(2), Fraction(2)),
    ],
)
def test_numbers_are_read_exactly(given: Exact, expected: Fraction):
    assert exact(given) == expected


@pytest.mark.parametrize(
    "wrong", ["", "a", "1/0", "1/2/3", "1,5", "1e999999999", "9" * 5000, float("nan"), float("inf"), True, None]
)
def test_what_is_not_a_number_is_named(wrong):
    with pytest.raises(ValueError, match=r"is not a number: expected a fraction such as 3/4") as error:
        exact(wrong)
    assert repr(wrong) in str(error.value)


def test_hidden_layers_can_differ():
    network = Parameterization.of(embedding=(0, 0), hidden=[(0, "1/2"), ("1/2", 0)], readout=(1, 0))
    assert network.hidden == (STANDARD.hidden[0], NTK.hidden[0])
    assert network.labels == ("embedding", "hidden.1", "hidden.2", "readout")
    with pytest.raises(ValueError, match="2 hidden layers that are not all alike"):
        network.with_hidden_layers(3)


def test_depth_repeats_the_hidden_layer():
    assert STANDARD.with_hidden_layers(3).hidden == STANDARD.hidden * 3
    assert STANDARD.with_hidden_layers(0).labels == ("embedding", "readout")
    assert STANDARD.with_hidden_layers(3).with_hidden_layers(1) == STANDARD
    with pytest.raises(ValueError, match="-1 hidden layers"):
        STANDARD.with_hidden_layers(-1)
    with pytest.raises(ValueError, match="'standard' has no hidden layer to repeat"):
        STANDARD.with_hidden_layers(0).with_hidden_layers(2)


@pytest.mark.parametrize("container", [list, tuple])
def test_hidden_layers_come_in_any_sequence(container):
    pairs = container([(0, "1/2"), (0, "1/2")])
    network = Parameterization.of(embedding=(0, 0), hidden=pairs, readout=(0, "1/2"))
    assert network.hidden == STANDARD.hidden * 2
    assert Parameterization.of(embedding=(0, 0), hidden=container([]), readout=(0, 1)).hidden == ()


def test_what_is_not_a_pair_is_named():
    with pytest.raises(ValueError, match=r"\(0, 1, 2\) is not a pair \(a, b\)"):
        Parameterization.of(embedding=(0, 1, 2), hidden=(0, 1), readout=(0, 1))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"\(1, 1, 1\): expected one number, or a pair"):
        Alignment.of(alpha=(1, 1, 1), omega=1, u=1)  # pyright: ignore[reportArgumentType]


def test_numbers_are_made_exact_wherever_they_enter():
    assert Layer(0.1, "-1/10").total == 0
    assert LayerAlignment(0.1, 0.5, 1).alpha == Fraction(1, 10)
    assert OptimizerFamily(name="root", gradient_power=0.5).rate_correction == Fraction(3, 2)  # pyright: ignore[reportArgumentType]


def test_layers_compare_by_their_exponents():
    assert Layer(0, 0.5) == Layer("0", "1/2")
    assert Layer(0, "1/2") != Layer("1/2", 0)


@pytest.mark.parametrize("name", ["alpha", "omega", "u"])
@pytest.mark.parametrize("value", ["-1/10", "11/10"])
def test_alignment_is_between_zero_and_one(name: str, value: str):
    with pytest.raises(ValueError, match=f"{name} is {value}: expected a number from 0 to 1"):
        LayerAlignment(**{"alpha": 1, "omega": "1/2", "u": 1, name: value})


def test_alignment_can_differ_between_hidden_layers_and_readout():
    alignment = Alignment.of(alpha=1, omega=("1/2", 1), u=("3/4", 0))
    assert alignment.layers(2) == (
        LayerAlignment(1, "1/2", "3/4"),
        LayerAlignment(1, "1/2", "3/4"),
        LayerAlignment(1, 1, 0),
    )
