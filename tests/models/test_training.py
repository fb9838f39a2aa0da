"""The theory acts: equivalent scales train identically, one program serves all, and wrong exponents show."""

import functools
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from widthwise.models import MLP, Model, Transformer, layout, prescribe
from widthwise.optim import OPTIMIZERS, Optimizer, warmup_cosine
from widthwise.parameterize import Prescription, Scales
from widthwise.theory import (
    ADAM,
    ALIGNMENTS,
    FULL,
    MUP,
    PARAMETERIZATIONS,
    STANDARD,
    Parameterization,
    Role,
    check,
    solve,
)

MODEL = Transformer(width=32, blocks=1, head_dim=8, context=8, vocabulary=13, dtype="float64")
LAYOUT = layout(replace(MODEL, dtype="float32"), STANDARD)
STEPS = 20
TO_NTK = {Role.HIDDEN: "1/2", Role.READOUT: "1/2"}
TO_MEAN_FIELD = {Role.EMBEDDING: "1/2", Role.HIDDEN: "1/2", Role.READOUT: "1/2"}
Train = Callable[[Prescription, float, float | None], np.ndarray]


def unit(model: Model, seed: int = 0):
    """Draw parameters of standard deviation 1, and ones for LayerNorm scales, without JAX: that would be compiled."""
    random = np.random.default_rng(seed)

    def one(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        drawn = random.standard_normal(leaf.shape) if len(leaf.shape) > 1 else np.ones(leaf.shape)
        return drawn.astype(leaf.dtype)

    return jax.tree.map(one, model.shapes())


@functools.cache
def trainer(optimizer: Optimizer) -> Train:
    """Compile 20 steps in float64 once; scales, rate and epsilon are arguments."""
    batch = np.random.default_rng(1).integers(MODEL.vocabulary, size=(4, MODEL.context + 1))
    drawn = unit(MODEL)

    @jax.jit
    def run(scales: Scales, rate, epsilon, attention_scale):
        transformation = optimizer.build(
            rate, scales, LAYOUT, epsilon=epsilon, schedule=warmup_cosine(steps=STEPS, warmup=2), weight_decay=1e-3
        )

        def step(carry, _):
            params, state = carry

            def loss(params):
                logits = MODEL.logits(scales.effective(params), batch[:, :-1], attention_scale)
                return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

            value, gradients = jax.value_and_grad(loss)(params)
            updates, state = transformation.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), value

        params = scales.initial(drawn)
        return jax.lax.scan(step, (params, transformation.init(params)), length=STEPS)[1]

    def train(plan: Prescription, rate: float, epsilon: float | None) -> np.ndarray:
        epsilon = None if optimizer.epsilon is None else epsilon
        scale = MODEL.attention_scale(plan.exponents.parameterization)
        return np.asarray(run(plan.scales, rate, epsilon, scale))

    return train


def difference(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.max(np.abs(x - y) / np.abs(x)))


@pytest.mark.parametrize(
    ("name", "rate", "epsilon"),
    [
        ("sgd", 0.5, None),
        ("adam_atan2", 3e-3, None),
        ("adam", 3e-3, 1e-15),
        ("adam_ps", 3e-2, 1e-15),
        ("adafactor", 3e-2, 1e-12),
        ("muon", 3e-2, 1e-15),
    ],
)
def test_equivalent_parameterizations_train_identically(name: str, rate: float, epsilon: float | None):
    optimizer = OPTIMIZERS[name]
    with jax.enable_x64(True):
        train = trainer(optimizer)
        for network, theta in ((STANDARD, TO_NTK), (MUP, TO_MEAN_FIELD)):
            before = prescribe(MODEL, solve(network, optimizer.family, FULL), base_width=16)
            after = before.move(theta)
            assert after.exponents.parameterization.readout != network.readout
            losses = train(before, rate, epsilon)
            assert np.isfinite(losses).all()
            assert losses[-1] < losses[0] - 0.05
            assert difference(losses, train(after, rate, epsilon)) < 1e-9


def test_an_epsilon_that_is_not_moved_tells_equivalent_parameterizations_apart():
    with jax.enable_x64(True):
        train = trainer(OPTIMIZERS["adam"])
        before = prescribe(MODEL, solve(STANDARD, ADAM, FULL), base_width=16)
        moved = before.move(TO_NTK)
        unmoved = replace(moved, scales=replace(moved.scales, epsilon=before.scales.epsilon))
        losses = train(before, 3e-3, 1e-3)
        assert difference(losses, train(moved, 3e-3, 1e-3)) < 1e-9
        assert difference(losses, train(unmoved, 3e-3, 1e-3)) > 1e-3


def test_one_compilation_serves_every_parameterization_alignment_rate_and_epsilon():
    model = Transformer(width=32, blocks=1, head_dim=8, context=8, vocabulary=13)
    batch = np.random.default_rng(1).integers(13, size=(2, 9))
    drawn = unit(model)
    traces = 0

    @jax.jit
    def step(scales, rate, epsilon, attention_scale):
        nonlocal traces
        traces += 1

        def loss(params):
            logits = model.logits(scales.effective(params), batch[:, :-1], attention_scale)
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

        params = scales.initial(drawn)
        transformation = OPTIMIZERS["adam"].build(rate, scales, epsilon=epsilon)
        updates, _ = transformation.update(jax.grad(loss)(params), transformation.init(params), params)
        return jnp.sum(jax.tree.leaves(scales.effective(optax.apply_updates(params, updates)))[0])

    outcomes = set()
    for network in PARAMETERIZATIONS.values():
        for alignment in ("full", "none"):
            plan = prescribe(model, solve(network, ADAM, ALIGNMENTS[alignment]), base_width=16)
            for rate in (1e-4, 1e-3, 3e-3, 1e-2, 1e-1):
                for epsilon in (1e-12, 1e-9, 1e-3):
                    outcomes.add(float(step(plan.scales, rate, epsilon, model.attention_scale(network))))
    assert traces == 1
    assert len(outcomes) > 80  # and they are not all the same run


@pytest.mark.parametrize(("rates", "slope", "tolerance"), [("global", 1.0, 0.15), ("solved", 0.0, 0.1)])
def test_the_first_hidden_layer_shows_whether_adams_rates_follow_the_width(rates: str, slope: float, tolerance: float):
    """A negative control: with one global rate, an Adam step changes activations in proportion to the width."""
    widths = [128, 256, 512]
    exponents = solve(STANDARD, ADAM, FULL) if rates == "solved" else check(STANDARD, [0, 0, 0], ADAM, FULL)
    changes = [np.mean([activation_change(width, exponents, seed) for seed in range(2)]) for width in widths]
    measured = np.polyfit(np.log(widths), np.log(changes), 1)[0]
    assert measured == pytest.approx(slope, abs=tolerance)


def activation_change(width: int, exponents, seed: int) -> float:
    """Return the RMS change of the first hidden layer's output after one small Adam step."""
    model = MLP(width=width)
    scales = prescribe(model, exponents, base_width=128).scales
    random = np.random.default_rng(seed)
    x = random.standard_normal((16, model.inputs), np.float32)
    labels = random.integers(model.outputs, size=16)
    return float(_activation_change(model, scales, unit(model, seed), x, labels))


@functools.partial(jax.jit, static_argnums=0)
def _activation_change(model: MLP, scales: Scales, drawn, x, labels) -> jax.Array:
    params = scales.initial(drawn)

    def loss(params):
        logits = model.logits(scales.effective(params), x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    transformation = OPTIMIZERS["adam"].build(1e-5, scales, epsilon=1e-15)
    updates, _ = transformation.update(jax.grad(loss)(params), transformation.init(params), params)
    stepped = optax.apply_updates(params, updates)
    before, after = (model.activations(scales.effective(p), x)[1] for p in (params, stepped))
    return jnp.sqrt(jnp.mean((after - before) ** 2))


@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=list(PARAMETERIZATIONS))
def test_activations_of_the_mlp_start_at_constant_size_and_logits_at_no_more(network: Parameterization):
    sizes = {}
    for width in (64, 1024):
        model = MLP(width=width)
        plan = prescribe(model, solve(network, ADAM, FULL), base_width=64)
        x = np.random.default_rng(1).standard_normal((64, model.inputs), np.float32)
        sizes[width] = np.asarray(_activation_sizes(model, plan.scales, unit(model), x))
    *ratios, logits = np.log(sizes[1024] / sizes[64]) / np.log(16)
    np.testing.assert_allclose(ratios, 0, atol=0.1)
    assert logits == pytest.approx(float(0.5 - network.readout.total), abs=0.15)


@functools.partial(jax.jit, static_argnums=0)
def _activation_sizes(model: MLP, scales: Scales, drawn, x) -> list[jax.Array]:
    return [jnp.sqrt(jnp.mean(z**2)) for z in model.activations(scales.effective(scales.initial(drawn)), x)]


def test_the_mlp_states_the_roles_of_its_parameters():
    model = MLP(width=16, hidden_layers=0)
    assert [leaf.role for leaf in prescribe(model, solve(MUP, ADAM, FULL), base_width=16).layout.leaves] == [
        Role.EMBEDDING,
        Role.READOUT,
    ]
    with pytest.raises(ValueError, match="hidden_layers is -1"):
        MLP(width=16, hidden_layers=-1)
    with pytest.raises(ValueError, match="width is 0"):
        MLP(width=0)
