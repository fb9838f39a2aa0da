"""What holds for every optimizer, one table of tests over all of them."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from widthwise.optim import OPTIMIZERS, Optimizer, warmup_cosine
from widthwise.parameterize import Axes, Rule, Scales, find_roles, ones_like, prescribe, stack
from widthwise.theory import FAMILIES, FULL, MUON, MUP, Role, solve, with_adam

every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
MATRIX = Axes(inputs=(0,), outputs=(1,))
SHAPES = {
    "embedding": (12, 16),
    "heads": (16, 2, 8),
    "hidden": (16, 16),
    "readout": (16, 4),
    "scale": (16,),
    "stack": (2, 16, 16),
}
RULES = {
    "scale": Rule(role=Role.EMBEDDING, axes=Axes(outputs=(0,))),
    "embedding": Rule(role=Role.EMBEDDING, axes=MATRIX),
    "hidden": Rule(role=Role.HIDDEN, axes=MATRIX),
    "readout": Rule(role=Role.READOUT, axes=MATRIX),
    "heads": Rule(role=Role.HIDDEN, axes=Axes(inputs=(0,), outputs=(1, 2))),
    "stack": Rule(role=Role.HIDDEN, axes=Axes(stack=(0,), inputs=(1,), outputs=(2,))),
}


def random_tree(seed: int, size: float = 1.0):
    random = np.random.default_rng(seed)
    drawn = {name: size * random.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    drawn["embedding"][3] = 0.0  # a token that is never seen
    return drawn


PARAMS = random_tree(0, 0.3)
LAYOUT = find_roles(PARAMS, rules=RULES)
GRADIENTS = jax.tree.map(lambda *steps: np.stack(steps), *(random_tree(seed) for seed in range(1, 6)))
SCHEDULE = warmup_cosine(steps=5, warmup=2)


def scales_like(seed: int) -> Scales:
    numbers = iter(np.random.default_rng(seed).uniform(0.5, 2.0, 100))
    return jax.tree.map(lambda _: float(next(numbers)), ones_like(PARAMS))


def steps(optimizer: Optimizer, params, scales: Scales, learning_rate, gradients=GRADIENTS, layout=LAYOUT, **options):
    """Take a step with each of the gradients: what the parameters are after each, and the last state."""
    return _steps(optimizer, params, scales, learning_rate, gradients, layout, **options)


@functools.partial(jax.jit, static_argnames=("optimizer", "layout", "schedule"))
def _steps(optimizer: Optimizer, params, scales: Scales, learning_rate, gradients, layout, **options):
    """All numbers are arguments, so that what is compiled serves every test that takes such steps."""
    transformation = optimizer.build(learning_rate, scales, layout, **options)

    def step(before, gradient):
        params, state = before
        updates, state = transformation.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    (_, state), after_each = jax.lax.scan(step, (params, transformation.init(params)), gradients)
    return after_each, state


def at(step: int, tree):
    return jax.tree.map(lambda x: np.asarray(x)[step], tree)


def trained(*args, **options):
    """Return the parameters after the last step."""
    return at(-1, steps(*args, **options)[0])


def assert_close(x, y, rtol: float = 2e-5, atol: float = 1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), x, y)


@every_optimizer
def test_it_moves_every_parameter_that_has_a_gradient_and_stays_finite(optimizer: Optimizer):
    params = trained(optimizer, PARAMS, scales_like(0), 0.01)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))
    moved = jax.tree.map(lambda x, y: x != y, params, PARAMS)
    assert not moved["embedding"][3].any()
    assert moved["embedding"][:3].all()
    assert all(moved[name].all() for name in ("hidden", "scale", "readout"))


@every_optimizer
def test_jit_changes_nothing(optimizer: Optimizer):
    """With one leaf of each kind, a stack of matrices and a vector: a program is compiled for every operation."""
    params, gradients = ({name: tree[name] for name in ("scale", "stack")} for tree in (PARAMS, at(0, GRADIENTS)))
    layout = find_roles(params, rules={name: RULES[name] for name in params})

    def step(params, gradients):
        transformation = optimizer.build(0.01, ones_like(params), layout)
        return transformation.update(gradients, transformation.init(params), params)

    assert_close(jax.jit(step)(params, gradients), step(params, gradients))


@every_optimizer
def test_lanes_equal_single_runs(optimizer: Optimizer):
    scales = [scales_like(seed) for seed in range(3)]
    rates = np.array([0.01, 0.02, 0.005])
    lanes, _ = jax.vmap(functools.partial(steps, optimizer, PARAMS))(stack(scales), rates)
    for lane, (one, rate) in enumerate(zip(scales, rates, strict=True)):
        assert_close(at(lane, lanes), steps(optimizer, PARAMS, one, float(rate))[0])


@every_optimizer
def test_sharded_equals_unsharded(optimizer: Optimizer):
    mesh = Mesh(np.array(jax.devices()[:4]), ("fsdp",))

    def shard(x):
        return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*[None] * (x.ndim - 1), "fsdp")))

    given = jax.tree.map(shard, (PARAMS, GRADIENTS))
    sharded, state = steps(optimizer, given[0], scales_like(0), 0.01, given[1])
    assert len(sharded["hidden"].sharding.device_set) == 4
    assert not sharded["hidden"].is_fully_replicated
    plain, plain_state = steps(optimizer, PARAMS, scales_like(0), 0.01)
    assert_close(sharded, plain)
    assert_close(state, plain_state, rtol=1e-4)


@every_optimizer
def test_state_is_float32_also_for_bfloat16_gradients(optimizer: Optimizer):
    gradients = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.bfloat16), GRADIENTS)
    params, state = jax.eval_shape(functools.partial(steps, optimizer), PARAMS, scales_like(0), 0.01, gradients)
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype(jnp.float32)}
    assert {x.dtype for x in jax.tree.leaves(state)} <= {jnp.dtype(jnp.float32), jnp.dtype(jnp.int32)}


@every_optimizer
def test_a_convex_problem_is_solved(optimizer: Optimizer):
    target = random_tree(9)
    schedule = warmup_cosine(steps=300, warmup=10)
    rate = 0.2 if optimizer.orthogonalizes else 0.05  # entries of orthogonalized updates are small
    transformation = optimizer.build(rate, ones_like(PARAMS), layout=LAYOUT, schedule=schedule)

    def loss(params):
        return sum(jnp.sum((x - y) ** 2) for x, y in zip(jax.tree.leaves(params), jax.tree.leaves(target), strict=True))

    def step(before, _):
        params, state = before
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = transformation.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    losses = jax.jit(lambda params: jax.lax.scan(step, (params, transformation.init(params)), length=300)[1])(PARAMS)
    assert losses[-1] < 1e-3 * losses[0]


@every_optimizer
def test_the_factor_of_a_parameter_multiplies_its_step_and_no_others(optimizer: Optimizer):
    one = ones_like(PARAMS)
    tripled = Scales(**{**vars(one), "learning_rate": {**one.learning_rate, "hidden": 3.0}})
    before, after = (at(0, steps(optimizer, PARAMS, scales, 0.01)[0]) for scales in (one, tripled))
    step, tripled_step = (jax.tree.map(lambda x, y: x - y, params, PARAMS) for params in (before, after))
    np.testing.assert_allclose(tripled_step["hidden"], 3 * step["hidden"], rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(tripled_step["readout"], step["readout"])


@every_optimizer
def test_weight_decay_is_independent_of_the_learning_rate_and_of_the_factors(optimizer: Optimizer):
    """With no gradient a parameter shrinks by the schedule times the decay, whatever the rates are."""
    zeros = jax.tree.map(np.zeros_like, GRADIENTS)
    expected = np.prod([1 - 0.1 * float(SCHEDULE(t)) for t in range(5)])
    for rate in (0.01, 10.0):
        params = trained(optimizer, PARAMS, scales_like(0), rate, zeros, weight_decay=0.1, schedule=SCHEDULE)
        assert_close(params, jax.tree.map(lambda x: expected * x, PARAMS))


@every_optimizer
def test_each_parameter_can_have_a_decay_of_its_own(optimizer: Optimizer):
    zeros = jax.tree.map(np.zeros_like, GRADIENTS)
    each = {**jax.tree.map(lambda _: 0.0, PARAMS), "hidden": 0.1}
    params = trained(optimizer, PARAMS, scales_like(0), 0.01, zeros, weight_decay=each, schedule=SCHEDULE)
    left = np.prod([1 - 0.1 * float(SCHEDULE(t)) for t in range(5)])
    assert_close(params, {**PARAMS, "hidden": left * PARAMS["hidden"]})


@every_optimizer
def test_all_numbers_are_data_one_trace_serves_all(optimizer: Optimizer):
    before, found = _steps._cache_size(), []
    for seed in range(3):
        numbers = {"learning_rate": 0.1 / (seed + 1), "weight_decay": 0.01 * seed}
        found.append(trained(optimizer, PARAMS, scales_like(seed), **numbers, schedule=SCHEDULE)["hidden"])
    assert _steps._cache_size() - before <= 1
    assert not np.allclose(found[0], found[1])
    assert not np.allclose(found[1], found[2])


@every_optimizer
def test_only_an_optimizer_with_an_epsilon_takes_one(optimizer: Optimizer):
    if optimizer.epsilon is None:
        with pytest.raises(ValueError, match=f"epsilon is 1e-08 but {optimizer.name} has no epsilon"):
            optimizer.build(0.1, ones_like(PARAMS), epsilon=1e-8)
    else:
        default, same, other = (
            trained(optimizer, PARAMS, scales_like(0), 0.1, epsilon=epsilon)
            for epsilon in (None, optimizer.epsilon, 1.0)
        )
        jax.tree.map(np.testing.assert_array_equal, default, same)
        assert not np.allclose(default["readout"], other["readout"])


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("sgd", optax.sgd(0.03, momentum=0.9)),
        ("adam", optax.adam(0.03, b1=0.9, b2=0.98, eps=1e-9)),
        (
            "adam_ps",
            optax.chain(optax.scale_by_adam(0.9, 0.98, 1e-9), optax.scale_by_param_block_rms(1e-3), optax.scale(-0.03)),
        ),
        ("adafactor", optax.adafactor(0.03, min_dim_size_to_factor=1)),
    ],
)
def test_with_scales_all_one_it_is_optaxs(name: str, reference: optax.GradientTransformation):
    theirs = Optimizer(name=name, family=OPTIMIZERS[name].family, make=lambda *_, **__: reference)
    params, ours = (trained(one, PARAMS, ones_like(PARAMS), 0.03) for one in (theirs, OPTIMIZERS[name]))
    for whole_layer in ("heads", "stack") if OPTIMIZERS[name].by_layer else ():  # where ours means to differ
        del ours[whole_layer], params[whole_layer]
    assert_close(ours, params, rtol=1e-6, atol=1e-7)


@every_optimizer
def test_a_stack_of_layers_trains_as_the_layers_would_by_themselves(optimizer: Optimizer):
    together = trained(optimizer, PARAMS, ones_like(PARAMS), 0.01)
    layer, gradients = ({"only": x["stack"][..., 1, :, :]} for x in (PARAMS, GRADIENTS))
    layout = find_roles(layer, rules={"only": Rule(role=Role.HIDDEN, axes=MATRIX)})
    alone = trained(optimizer, layer, ones_like(layer), 0.01, gradients, layout)
    np.testing.assert_allclose(together["stack"][1], alone["only"], rtol=2e-5, atol=1e-6)


@every_optimizer
def test_a_plan_brings_scales_and_layout_and_must_be_for_its_family(optimizer: Optimizer):
    families = {family.name: solve(MUP, family, FULL) for family in (*FAMILIES.values(), with_adam(MUON))}
    families.setdefault(optimizer.family.name, solve(MUP, optimizer.family, FULL))
    plans = {
        name: prescribe(PARAMS, exponents=exponents, width=16, base_width=8, rules=RULES)
        for name, exponents in families.items()
    }
    right = plans.pop(optimizer.family.name)
    by_plan, by_parts = (optimizer.build(0.1, *given) for given in ((right,), (right.scales, right.layout)))
    updates = [
        jax.jit(lambda p, g, t=t: t.update(g, t.init(p), p)[0])(PARAMS, at(0, GRADIENTS)) for t in (by_plan, by_parts)
    ]
    assert_close(*updates, rtol=0, atol=0)
    for name, plan in plans.items():
        with pytest.raises(ValueError, match=re.escape(f"the plan is for optimizers of the {name} family")):
            optimizer.build(0.1, plan)
    with pytest.raises(ValueError, match="plan is a dict: expected the result of prescribe"):
        optimizer.build(0.1, PARAMS)
    with pytest.raises(ValueError, match=r"learning_rate is a function: .* as schedule="):
        optimizer.build(optax.cosine_decay_schedule(0.1, 10), right)


@pytest.mark.parametrize("name", ["adam_ps", "adafactor"])
def test_optimizers_that_look_at_layers_need_to_know_them(name: str):
    with pytest.raises(ValueError, match="scales without their layout"):
        OPTIMIZERS[name].build(0.1, ones_like(PARAMS))
    other = {**PARAMS, "scale": np.ones(17, np.float32)}
    transformation = OPTIMIZERS[name].build(0.1, ones_like(other), LAYOUT)
    with pytest.raises(ValueError, match="the parameters are not those of the layout"):
        jax.eval_shape(transformation.update, other, jax.eval_shape(transformation.init, other), other)
