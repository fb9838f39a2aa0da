"""Muon orthogonalizes what the layout says is a matrix, as Optax does, and its factors have the theory's exponents."""

import functools
import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.optim import OPTIMIZERS, adam
from widthwise.optim.muon import orthogonalization_flops, orthogonalize
from widthwise.parameterize import Axes, Rule, find_roles, ones_like
from widthwise.scaling.orthogonal import SHAPE_FACTORS
from widthwise.theory import MUON_FACTORS, Role

module = importlib.import_module("widthwise.optim.muon")
HIDDEN = functools.partial(Rule, role=Role.HIDDEN)
MATRIX = Axes(inputs=(0,), outputs=(1,))
RULES = {
    "square": HIDDEN(axes=MATRIX),
    "up": HIDDEN(axes=MATRIX),
    "down": HIDDEN(axes=MATRIX),
    "query": HIDDEN(axes=Axes(inputs=(0,), outputs=(1, 2))),
    "out": HIDDEN(axes=Axes(inputs=(0, 1), outputs=(2,))),
    "stack": HIDDEN(axes=Axes(stack=(1,), inputs=(2,), outputs=(0,))),
    "readout": Rule(role=Role.READOUT, axes=MATRIX),
    "norm": Rule(role=Role.EMBEDDING, axes=Axes(outputs=(0,))),
}
SHAPES = {
    "square": (8, 8),
    "up": (8, 32),
    "down": (32, 8),
    "query": (8, 2, 4),
    "out": (2, 4, 8),
    "stack": (16, 3, 8),
    "readout": (8, 5),
    "norm": (8,),
}
DIMENSIONS = {
    name: optax.contrib.MuonDimensionNumbers(rule.axes.inputs, rule.axes.outputs)
    if rule.role is Role.HIDDEN and rule.axes is not None
    else None
    for name, rule in RULES.items()
}


def draw(seed: int):
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}


PARAMS, GRADIENTS = draw(0), draw(1)
LAYOUT = find_roles(PARAMS, rules=RULES)


def first_update(transformation: optax.GradientTransformation, gradients=GRADIENTS):
    return jax.jit(lambda p, g: transformation.update(g, transformation.init(p), p)[0])(PARAMS, gradients)


def ours(name: str, **options) -> optax.GradientTransformation:
    return OPTIMIZERS[name].build(1.0, ones_like(PARAMS), LAYOUT, **options)


def as_matrices(name: str, x) -> np.ndarray:
    axes = RULES[name].axes
    assert axes is not None
    inputs = math.prod(SHAPES[name][axis] for axis in axes.inputs)
    outputs = math.prod(SHAPES[name][axis] for axis in axes.outputs)
    return np.transpose(x, (*axes.stack, *axes.inputs, *axes.outputs)).reshape(-1, inputs, outputs)


@pytest.mark.parametrize("optimizer", ["muon", "muon_out_in", "muon_max"])
def test_every_hidden_matrix_has_singular_values_around_its_factor_and_the_rest_is_adams(optimizer: str):
    (factor,) = (SHAPE_FACTORS[formula] for formula, family in MUON_FACTORS.items() if family.name == optimizer)
    found, plain = first_update(ours(optimizer)), first_update(adam(1.0, ones_like(PARAMS)))
    for name, rule in RULES.items():
        if rule.role is not Role.HIDDEN:
            np.testing.assert_array_equal(found[name], plain[name])
            continue
        for matrix in as_matrices(name, np.asarray(found[name])):
            inputs, outputs = matrix.shape
            values = np.linalg.svd(matrix, compute_uv=False) / factor(outputs, inputs)
            assert 0.6 < values.min() <= values.max() < 1.3, name  # five iterations do not converge, by design


@pytest.mark.parametrize(("name", "consistent_rms"), [("muon", None), ("muon_max", 1.0)])
def test_the_first_update_is_optaxs(name: str, consistent_rms: float | None):
    """Later ones differ, since Optax corrects the bias of the momentum."""
    theirs = optax.contrib.muon(
        1.0, adam_b2=0.98, muon_weight_dimension_numbers=DIMENSIONS, consistent_rms=consistent_rms
    )
    found, expected = first_update(ours(name)), first_update(theirs)
    for leaf, rule in RULES.items():
        if rule.role is Role.HIDDEN:
            np.testing.assert_allclose(found[leaf], expected[leaf], rtol=1e-4, atol=1e-5, err_msg=leaf)


def test_the_size_of_a_gradient_does_not_matter_and_without_one_nothing_moves():
    usual, small, none = (
        first_update(ours("muon"), jax.tree.map(lambda x, size=size: size * x, GRADIENTS)) for size in (1, 1e-8, 0)
    )
    for name in ("square", "up", "stack"):
        np.testing.assert_allclose(usual[name], small[name], rtol=1e-3, atol=1e-4)
        assert not none[name].any()


def test_batches_of_matrices_are_limited_and_their_size_changes_nothing(monkeypatch):
    sizes = []
    newton_schulz = module._newton_schulz
    monkeypatch.setattr(module, "_newton_schulz", lambda x: (sizes.append(x.shape), newton_schulz(x))[1])
    together = first_update(ours("muon"))
    assert sorted(sizes) == [(2, 8, 32), (3, 8, 8), (3, 8, 16)]
    sizes.clear()
    monkeypatch.setattr(module, "LARGEST_BATCH", 130)
    apart = first_update(ours("muon"))
    assert sorted(sizes) == [(1, 8, 8), (1, 8, 32), (1, 8, 32), (2, 8, 8), (3, 8, 16)]  # no leaf is divided
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), together, apart)


def test_half_precision_is_for_products_alone_and_keeps_directions():
    usual, half = (first_update(ours("muon", dtype=dtype)) for dtype in (None, "bfloat16"))
    np.testing.assert_array_equal(half["readout"], usual["readout"])
    for name in ("square", "up", "stack"):
        assert half[name].dtype == jnp.float32
        assert (half[name] != usual[name]).any()
        assert np.sum(half[name] * usual[name]) > 0.995 * np.linalg.norm(half[name]) * np.linalg.norm(usual[name])


@pytest.mark.parametrize("formula", MUON_FACTORS)
def test_the_exponents_of_the_theory_are_those_of_the_factors(formula: str):
    """Entries of O have size 1 / √max(out, in)."""
    small, large, fixed = 2**20, 2**30, 7
    sides = {
        Role.EMBEDDING: lambda n: (n, fixed),
        Role.HIDDEN: lambda n: (4 * n, n),
        Role.READOUT: lambda n: (fixed, n),
    }
    for role, shape in sides.items():
        sizes = [SHAPE_FACTORS[formula](*shape(n)) / math.sqrt(max(shape(n))) for n in (small, large)]
        measured = math.log(sizes[1] / sizes[0]) / math.log(large / small)
        assert measured == pytest.approx(-float(MUON_FACTORS[formula].at(role).size), abs=1e-6), role


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (64, 256), (256, 64)])
def test_flops_are_those_that_the_compiler_counts(inputs: int, outputs: int):
    rule = orthogonalize([MATRIX], factor=SHAPE_FACTORS["sqrt(out/in)"])
    x = jax.ShapeDtypeStruct((inputs, outputs), jnp.float32)
    costs = jax.jit(lambda x: rule.update(x, rule.init(x), x)[0]).lower(x).compile().cost_analysis()
    assert costs is not None
    assert costs["flops"] == pytest.approx(orthogonalization_flops(outputs, inputs), rel=0.06)


def test_an_unknown_factor_is_refused():
    with pytest.raises(ValueError, match=r"factor is 'spectral': expected one of sqrt\(max\(1,out/in\)\), "):
        module.muon(1.0, ones_like(PARAMS), LAYOUT, factor="spectral")
