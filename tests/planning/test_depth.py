"""Plans over depth in JAX: which parameters end a branch, and training as with multipliers in the model."""

from fractions import Fraction
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import widthwise as ww
from tests.zoo import cases, llama_nnx, mamba_dict, moe_dict, scanned_dict
from widthwise.scaling import Factors
from widthwise.scaling.lists import counterparts
from widthwise.scaling.table import in_every_layer
from widthwise.theory import DepthRule
from widthwise.trace.paths import named_leaves

VOCABULARY, WIDTH, BASE_DEPTH = 11, 32, 2
TOKENS = jax.random.randint(jax.random.key(1), (8, 12), 0, VOCABULARY)


def normed(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)


def branch(block, x):
    return jax.nn.relu(normed(x) * block["norm"] @ block["up"]) @ block["down"] + block["bias"]


def init_block(width, key):
    up, down = jax.random.split(key)
    return {
        "norm": jnp.ones(width),
        "up": jax.random.normal(up, (width, 4 * width)) / width**0.5,
        "down": jax.random.normal(down, (4 * width, width)) / (4 * width) ** 0.5,
        "bias": jnp.full(width, 0.1),
    }


def scanned(width, depth, key, multiplier=1.0):
    embed, blocks, head = jax.random.split(key, 3)
    params = {
        "embed": jax.random.normal(embed, (VOCABULARY, width)),
        "blocks": jax.vmap(lambda key: init_block(width, key))(jax.random.split(blocks, depth)),
        "head": jax.random.normal(head, (width, VOCABULARY)) / width**0.5,
    }

    def apply(params, tokens):
        def step(x, block):
            return x + multiplier * branch(block, x), None

        return normed(jax.lax.scan(step, params["embed"][tokens], params["blocks"])[0]) @ params["head"]

    return params, apply


def unrolled(width, depth, key):
    params, _ = scanned(width, depth, key)
    blocks = [jax.tree.map(lambda x, i=i: x[i], params["blocks"]) for i in range(depth)]

    def apply(params, tokens):
        x = params["embed"][tokens]
        for block in params["blocks"]:
            # In this order, the bias is added to the stream by itself.
            x = x + jax.nn.relu(normed(x) * block["norm"] @ block["up"]) @ block["down"] + block["bias"]
        return normed(x) @ params["head"]

    return {**params, "blocks": blocks}, apply


def loss(model, tokens):
    return optax.softmax_cross_entropy_with_integer_labels(model(tokens), jnp.roll(tokens, -1, 1)).mean()


def ends_of(plan) -> set[str]:
    return {in_every_layer(p.path) for p in plan.parameters if p.ends_branch}


def outside(plan) -> set[str]:
    return {in_every_layer(p.path) for p in plan.parameters if p.deepens == 1}


GOLDEN = {
    "llama-nnx-looped": (
        llama_nnx,
        {"blocks/*/attention/o_proj/kernel", "blocks/*/mlp/down_proj/kernel"},
        {"embed/embedding", "norm/scale", "lm_head/kernel"},
    ),
    "llama-nnx-scanned": (
        llama_nnx,
        {"blocks/attention/o_proj/kernel", "blocks/mlp/down_proj/kernel"},
        {"embed/embedding", "norm/scale", "lm_head/kernel"},
    ),
    "moe-dict": (moe_dict, {"layers/*/attention/wo", "layers/*/moe/w_down"}, {"embed", "norm", "head"}),
    "mamba-dict": (mamba_dict, {"layers/*/out_proj"}, {"embed", "norm_f"}),
    "scanned-dict": (
        scanned_dict,
        {"blocks/attention/out", "blocks/mlp/wo"},
        {"embedder", "final_norm", "logits/kernel", "logits/bias"},
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_what_is_added_to_the_stream_ends_a_branch(name: str, monkeypatch: pytest.MonkeyPatch):
    module, ends, others = GOLDEN[name]
    assert isinstance(module, ModuleType)
    case = next(case for case in cases.CASES if case.name == name)

    def build(width, key, *, depth):
        monkeypatch.setattr(module, "LAYERS", depth)
        return case.build(width, key)

    sizes = {"width": 64, "base_width": 32, "depth": 6, "base_depth": 2}
    plan = ww.plan(build, **sizes, example=case.example, call=case.call)
    assert ends_of(plan) == ends
    assert outside(plan) == others


def test_at_the_base_point_the_plan_is_the_plain_model():
    sizes = {"width": WIDTH, "depth": BASE_DEPTH, "batch": 32, "tokens": 1e6}
    base = {f"base_{name}": value for name, value in sizes.items()}
    plan = ww.plan(scanned, **sizes, **base, batch_rule="sde", token_rule="horizon", example=TOKENS)
    assert set(plan.factors.values()) == {Factors()}
    params, plain = plan.init(jax.random.key(3)), scanned(WIDTH, BASE_DEPTH, jax.random.key(3))[0]
    assert all(map(np.array_equal, jax.tree.leaves(params), jax.tree.leaves(plain)))
    assert plan.b2(0.99) == 0.99


def test_scanned_and_unrolled_models_have_the_same_plan():
    options = {"width": 64, "base_width": WIDTH, "depth": 3, "base_depth": BASE_DEPTH, "example": TOKENS}
    stacked, single = ww.plan(scanned, **options), ww.plan(unrolled, **options)
    for path, found in single.factors.items():
        assert found == stacked.factors["/".join(part for part in path.split("/") if not part.isdigit())]
    one, other = (named_leaves(plan.init(jax.random.key(0))) for plan in (stacked, single))
    for path, leaf in other.items():
        number = [int(part) for part in path.split("/") if part.isdigit()]
        whole = one["/".join(part for part in path.split("/") if not part.isdigit())]
        assert np.allclose(whole[number[0]] if number else whole, leaf, rtol=1e-5)


MATRICES = ("embed", "head", "up", "down")
OPTIMIZERS = {"adamw": (0, {"weight_decay": 0.1, "eps": 1e-4}, 1e-2), "sgd": (1, {"weight_decay": 0.01}, 0.1)}


@pytest.mark.parametrize(("rule", "alpha"), [("completep", 1.0), ("sqrt", 0.5)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_folding_trains_as_explicit_multipliers_do(name: str, rule: str, alpha: float):
    """In float64, with a negative control: without a rule, training goes elsewhere."""
    gradient_power, options, rate = OPTIMIZERS[name]
    depth, m = 6, 3.0
    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": depth, "base_depth": BASE_DEPTH}

    def planned(rule: str):
        return ww.plan(scanned, **sizes, example=TOKENS, optimizer=name, depth_rule=rule)

    def train(params, optimizer, apply) -> list[float]:
        state, found = optimizer.init(params), []

        @jax.jit
        def step(params, state):
            value, gradients = jax.value_and_grad(lambda p: loss(lambda tokens: apply(p, tokens), TOKENS))(params)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state, value

        for _ in range(6):
            params, state, value = step(params, state)
            found.append(float(value))
        return found

    def factors(inside: float, end: float, params):
        return {
            **jax.tree.map(lambda _: 1.0, params),
            "blocks": {"norm": inside, "up": inside, "down": end, "bias": end},
        }

    def scaled(by):
        return optax.stateless(lambda updates, _: jax.tree.map(lambda x, f: x * f, updates, by))

    plan = planned(rule)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda x: x.astype(jnp.float64), plan.init(jax.random.key(0)))
        folded = train(params, getattr(plan, name)(rate, **options), scanned(WIDTH, depth, jax.random.key(0))[1])
        apply = scanned(WIDTH, depth, jax.random.key(0), multiplier=m**-alpha)[1]
        explicit = jax.tree.map(lambda x, f: x * f, params, factors(1.0, m**alpha, params))
        of_rates, of_gradients = m ** (alpha - 1 + gradient_power * alpha), m**alpha
        direction = optax.identity()
        if name == "adamw":  # a smaller epsilon is a larger gradient
            gradients = scaled(factors(of_gradients, of_gradients, params))
            direction = optax.chain(gradients, optax.scale_by_adam(eps=options["eps"]))
        decay = optax.add_decayed_weights(
            options["weight_decay"], jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key in MATRICES, params)
        )
        by_hand = optax.chain(direction, scaled(factors(of_rates, of_rates, params)), decay, optax.scale(-rate))
        expected = train(explicit, by_hand, apply)
        assert folded == pytest.approx(expected, rel=1e-9)
        assert folded[-1] < 0.98 * folded[0]
        if rule == "sqrt":
            return
        control = planned("constant")
        start = jax.tree.map(lambda x: x.astype(jnp.float64), control.init(jax.random.key(0)))
        plain = train(start, getattr(control, name)(rate, **options), scanned(WIDTH, depth, jax.random.key(0))[1])
        assert plain != pytest.approx(expected, rel=1e-4)


def test_a_multiplier_can_be_kept_instead():
    options = {"width": WIDTH, "base_width": WIDTH, "depth": 8, "base_depth": BASE_DEPTH, "example": TOKENS}
    kept = ww.plan(scanned, **options, multipliers=True).factors["blocks/down"]
    assert (kept.multiplier, kept.init, kept.learning_rate, kept.epsilon) == (0.25, 1, 1, 0.25)


def test_block_outputs_and_the_stream_change_as_much_at_every_depth():
    plan = ww.plan(scanned, width=WIDTH, base_width=WIDTH, depth=4, base_depth=BASE_DEPTH, example=TOKENS)
    found = plan.check_depth(loss, TOKENS, depths=(2, 32), seeds=1, steps=4, learning_rate=1e-2, show=False)
    assert found.passed
    assert {each.name for each in found.sizes} == {"embed", "blocks/up", "blocks/down", "all branches", "logits"}
    with pytest.raises(ValueError, match=r"the plan has no depth"):
        ww.plan(scanned_two, width=WIDTH, base_width=WIDTH, example=TOKENS).at(depth=4)


def scanned_two(width, key):
    return scanned(width, BASE_DEPTH, key)


@pytest.mark.parametrize(("branch", "advice"), [(0, "as the depth rules completep and sqrt do"), ("1/4", "already")])
def test_a_check_advises_a_multiplier_only_where_there_is_none(branch: str | int, advice: str):
    rule = DepthRule(name="own", branch=branch, matrix_rate=0, vector_rate=0)
    plan = ww.plan(scanned, width=16, base_width=16, depth=2, base_depth=2, depth_rule=rule, example=TOKENS)
    result = plan.check_depth(loss, TOKENS, depths=(2, 16), learning_rate=1e-2, seeds=1, steps=2, show=False)
    assert not result.passed
    assert advice in str(result)


def test_a_norm_behind_the_addition_is_refused_in_a_scan_too():
    def build(width, depth, key):
        params, _ = scanned(width, depth, key)

        def apply(params, tokens):
            def step(x, block):
                return normed(x + branch(block, x)), None

            return jax.lax.scan(step, params["embed"][tokens], params["blocks"])[0] @ params["head"]

        return params, apply

    with pytest.raises(ValueError, match=r"the branch of 'blocks/bias' is added to a stream .* \(post-norm\)"):
        ww.plan(build, width=64, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS)


def test_dropout_at_the_end_of_a_branch_is_looked_through():
    def build(width, depth, key):
        params, _ = scanned(width, depth, key)

        def apply(params, tokens):
            def step(x, block):
                kept = jax.random.bernoulli(jax.random.key(0), 0.9, x.shape)
                return x + jnp.where(kept, branch(block, x) / 0.9, 0.0), None

            return jax.lax.scan(step, params["embed"][tokens], params["blocks"])[0] @ params["head"]

        return params, apply

    plan = ww.plan(build, width=64, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS)
    assert ends_of(plan) == {"blocks/down", "blocks/bias"}


def test_batch_and_tokens_are_factors_on_every_parameter():
    options = {"width": WIDTH, "base_width": WIDTH, "example": TOKENS}
    plan = ww.plan(scanned_two, **options, batch=256, base_batch=64, batch_rule="sde")
    assert set(plan.factors.values()) == {Factors(learning_rate=2.0, epsilon=0.5, decay=2.0)}
    assert plan.b2(0.999) == pytest.approx(0.996)
    assert "1 - β₂ is multiplied by 4" in plan.explain().notes
    longer = plan.at(batch=64)
    assert set(longer.factors.values()) == {Factors()}
    with pytest.raises(ValueError, match=r"base_batch is missing"):
        ww.plan(scanned_two, **options, batch=256)
    with pytest.raises(ValueError, match=r"tokens is -1: expected a number above 0"):
        ww.plan(scanned_two, **options, tokens=-1, base_tokens=1)


@pytest.mark.parametrize(
    "build",
    [
        lambda width, depth, rng: scanned(width, depth, rng),
        lambda width, depth, *, key: scanned(width, depth, key),
        lambda width, key, depth=2: scanned(width, depth, key),
        lambda width, key, **sizes: scanned(width, sizes["depth"], key),
    ],
)
def test_a_depth_is_passed_by_its_name_and_a_key_in_any_way(build):
    options = {"width": 2 * WIDTH, "base_width": WIDTH, "depth": 4, "base_depth": BASE_DEPTH, "example": TOKENS}
    assert ww.plan(build, **options).factors == ww.plan(scanned, **options).factors


def test_a_build_without_a_depth_is_refused_and_so_is_a_depth_that_is_not_given():
    with pytest.raises(ValueError, match=r"build\(width, layers, key\) takes no argument called depth: expected one"):
        ww.plan(lambda width, layers, key: ..., width=32, base_width=16, depth=4, base_depth=2, example=TOKENS)
    with pytest.raises(ValueError, match="build takes a depth: expected depth= and base_depth="):
        ww.plan(lambda width, depth, key: ..., width=32, base_width=16, example=TOKENS)


@pytest.mark.parametrize("rule", [0.75, "3/4", Fraction(3, 4)])
def test_a_rule_is_a_number_too(rule):
    options = {"width": WIDTH, "base_width": WIDTH, "depth": 4, "base_depth": BASE_DEPTH, "example": TOKENS}
    plan = ww.plan(scanned, **options, depth_rule=rule)
    assert plan.grown.depth_rule.branch == Fraction(3, 4)
    with pytest.raises(ValueError, match="depth_rule is None: expected one of completep, sqrt, constant"):
        ww.plan(scanned, **options, depth_rule=None)


def test_depths_that_make_no_sense_are_refused():
    plan = ww.plan(scanned, width=WIDTH, base_width=WIDTH, depth=4, base_depth=BASE_DEPTH, example=TOKENS)
    with pytest.raises(ValueError, match="depth is 0: expected a whole number from 1 up"):
        plan.at(depth=0)
    with pytest.raises(ValueError, match=r"depths are \[2\]: expected two or more different ones"):
        plan.check_depth(loss, TOKENS, depths=(2,))


def test_clipping_counts_all_blocks_as_those_of_the_base_depth():
    plan = ww.plan(scanned, width=WIDTH, base_width=WIDTH, depth=8, base_depth=BASE_DEPTH, example=TOKENS)
    # A gradient inside blocks falls as 1/4, and there are four times as many.
    shapes = jax.eval_shape(lambda key: scanned(WIDTH, 8, key)[0], jax.random.key(0))
    gradients = jax.tree.map(lambda x: jnp.zeros(x.shape), shapes)
    up = gradients["blocks"]["up"].at[0, 0, 0].set(1.0)
    clip = plan.clip_by_global_norm(1.0)
    clipped, _ = clip.update({**gradients, "blocks": {**gradients["blocks"], "up": up}}, clip.init(gradients))
    assert clipped["blocks"]["up"][0, 0, 0] == pytest.approx(0.25 * 4**0.5)


def alike(paths) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(paths, (8, 8))


def test_parameters_of_blocks_that_the_base_model_lacks_take_turns():
    base = ["h/0/w", "h/1/w", "h/1/only_odd", "out"]
    deep = ["h/0/w", "h/1/w", "h/2/w", "h/5/only_odd", "h/10/w", "out"]
    inside = [frozenset(path for path in paths if path != "out") for paths in (deep, base)]
    assert counterparts(alike(deep), alike(base), *inside) == {
        "h/0/w": "h/0/w",
        "h/1/w": "h/1/w",
        "h/2/w": "h/0/w",
        "h/5/only_odd": "h/1/only_odd",
        "h/10/w": "h/1/w",
        "out": "out",
    }
    stages = [[f"stages/{stage}/layers/{layer}" for stage in (0, 1) for layer in range(depth)] for depth in (3, 2)]
    found = counterparts(*map(alike, stages), *map(frozenset, stages))
    assert [found[path][-1] for path in stages[0]] == ["0", "1", "0"] * 2
    assert all(path[:8] == other[:8] for path, other in found.items())
    haiku = [["linear", *(f"linear_{number}" for number in range(1, depth + 2))] for depth in (11, 2)]
    found = counterparts(*map(alike, haiku), *(frozenset(names[1:-1]) for names in haiku))
    assert [found[f"linear_{number}"] for number in (1, 2, 3, 10, 11, 12)] == [
        *("linear_1", "linear_2", "linear_1", "linear_2", "linear_1", "linear_3")
    ]
    with pytest.raises(ValueError, match=r"'h/5/new' has no counterpart at the base depth"):
        counterparts(alike(["h/5/new"]), alike(base), *inside)


class Dense(nn.Module):
    """Flax numbers the layers of this model itself: Dense_0 is the embedding, and the last one the head."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(self.depth):
            x = x + nn.Dense(self.width)(jax.nn.relu(x))
        return nn.Dense(3, kernel_init=nn.initializers.normal(7.0))(x)


def in_a_list(width: int, depth: int, key):
    keys = jax.random.split(key, depth + 2)
    shapes = [(4, width), *[(width, width)] * depth, (width, 3)]
    sizes = [1.0, *[width**-0.5] * depth, 7.0]
    params = [jax.random.normal(*one) * size for one, size in zip(zip(keys, shapes, strict=True), sizes, strict=True)]

    def apply(params, x):
        x = x @ params[0]
        for block in params[1:-1]:
            x = x + jax.nn.relu(x) @ block
        return x @ params[-1]

    return params, apply


def numbered(width: int, depth: int, key):
    params, apply = in_a_list(width, depth, key)
    names = ["begin", *(f"block{number}" for number in range(depth)), "end"]

    def in_order(params):
        return [params[name] for name in names]

    return dict(zip(names, params, strict=True)), lambda params, x: apply(in_order(params), x)


def as_haiku_names(width: int, depth: int, key):
    params, apply = in_a_list(width, depth, key)
    names = ["linear", *(f"linear_{number}" for number in range(1, depth + 2))]
    return dict(zip(names, params, strict=True)), lambda params, x: apply([params[name] for name in names], x)


@pytest.mark.parametrize("build", [in_a_list, numbered, as_haiku_names, lambda width, depth: Dense(width, depth)])
def test_blocks_are_counted_whatever_they_are_called(build):
    """In a list with its blocks, the head of the base model has the number of a block of the deeper one."""
    width, depth = 128, 11
    plan = ww.plan(build, width=width, base_width=width, depth=depth, base_depth=2, example=jnp.ones((2, 4)))
    matrices = [p for p in plan.parameters if p.base_shape == (width, width)]
    assert len(matrices) == depth
    assert all(p.ends_branch for p in matrices)
    built = named_leaves(plan.init(jax.random.key(0)))
    for path, leaf in built.items():
        if leaf.ndim == 2:
            block, head = leaf.shape == (width, width), leaf.shape[-1] == 3
            expected = 2 / depth * width**-0.5 if block else 7 if head else None
            assert expected is None or float(jnp.std(leaf)) == pytest.approx(expected, rel=0.1), path


@pytest.mark.parametrize("build", [in_a_list, numbered, lambda width, depth: Dense(width, depth)])
def test_blocks_are_measured_apart_from_the_rest_of_a_list(build):
    plan = ww.plan(build, width=64, base_width=64, depth=3, base_depth=2, example=jnp.ones((2, 4)))
    data = jax.random.normal(jax.random.key(1), (32, 4))
    found = plan.check_depth(
        lambda model, x: (model(x) ** 2).mean(),
        data,
        depths=(1, 2, 16),
        seeds=1,
        steps=2,
        learning_rate=1e-3,
        show=False,
    )
    names = {in_a_list: ("0", "*"), numbered: ("begin", "block*")}
    embed, block = names.get(build, ("Dense_0/kernel", "Dense_*/kernel"))
    assert {each.name for each in found.sizes} >= {embed, block, "all branches", "logits"}
    (embedding,) = (each for each in found.sizes if each.name == embed)
    assert embedding.initial.value == pytest.approx(0, abs=0.01)


def stack(width: int, blocks, key):
    """A model of lists of blocks, as pairs of a name and an initial size; between lists, something else acts."""
    keys = iter(jax.random.split(key, 100))

    def matrix(size: float):
        return jax.random.normal(next(keys), (width, width)) * size * width**-0.5

    params = {
        "embed": jax.random.normal(next(keys), (4, width)),
        "stages": [{"blocks": [{name: matrix(size)} for name, size in each]} for each in blocks],
        "between": [matrix(1.0) for _ in blocks],
        "head": jax.random.normal(next(keys), (width, 3)) * width**-0.5,
    }

    def apply(params, x):
        x = x @ params["embed"]
        for stage, between in zip(params["stages"], params["between"], strict=True):
            for block in stage["blocks"]:
                (weight,) = block.values()
                x = x + jax.nn.relu(x) @ weight
            x = jnp.tanh(x) @ between
        return x @ params["head"]

    return params, apply


def alternating(width: int, depth: int, key):
    return stack(width, [[("even", 1.0), ("odd", 3.0)] * (depth // 2) + [("even", 1.0)] * (depth % 2)], key)


@pytest.mark.parametrize(("depth", "base_depth"), [(4, 3), (5, 4), (2, 3), (6, 2)])
def test_every_block_of_a_list_counts_whatever_its_kind(depth: int, base_depth: int):
    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": depth, "base_depth": base_depth}
    plan = ww.plan(alternating, **sizes, example=jnp.ones((2, 4)))
    assert outside(plan) == {"embed", "between/*", "head"}
    for path, leaf in named_leaves(plan.init(jax.random.key(0))).items():
        if path.startswith("stages"):
            expected = (3.0 if "odd" in path else 1.0) * base_depth / depth * WIDTH**-0.5
            assert float(jnp.std(leaf)) == pytest.approx(expected, rel=0.1), path


def in_stages(lengths):
    def build(width: int, depth: int, key):
        return stack(width, [[("w", stage + 1.0)] * length for stage, length in enumerate(lengths(depth))], key)

    return build


def test_stages_of_different_length_keep_their_sizes():
    build = in_stages(lambda depth: (depth, depth, 3 * depth, depth))
    plan = ww.plan(build, width=WIDTH, base_width=WIDTH, depth=2, base_depth=1, example=jnp.ones((2, 4)))
    for path, leaf in named_leaves(plan.init(jax.random.key(0))).items():
        if path.startswith("stages"):
            expected = (int(path.split("/")[1]) + 1) / 2 * WIDTH**-0.5
            assert float(jnp.std(leaf)) == pytest.approx(expected, rel=0.1), path


def test_only_the_stage_that_deepens_is_scaled():
    build = in_stages(lambda depth: (2, depth, 2))
    plan = ww.plan(build, width=WIDTH, base_width=WIDTH, depth=6, base_depth=2, example=jnp.ones((2, 4)))
    assert {p.path.split("/")[1] for p in plan.parameters if p.deepens != 1} == {"1"}
    assert sum(p.ends_branch for p in plan.parameters) == 6


@pytest.mark.parametrize(("depth", "base_depth"), [(4, 2), (2, 1)])
def test_blocks_behind_joined_streams_are_refused(depth: int, base_depth: int):
    """The upper half of a U-shape: what blocks add does not add up."""

    def build(width: int, depth: int, key):
        params, _ = stack(width, [[("w", 1.0)] * depth] * 2, key)
        params["join"] = [jnp.ones((2 * width, width))] * depth

        def apply(params, x):
            x, skips = x @ params["embed"], []
            down, up = params["stages"]
            for block in down["blocks"]:
                x = x + jax.nn.relu(x) @ block["w"]
                skips.append(x)
            for block, join in zip(up["blocks"], params["join"], strict=True):
                x = jnp.concatenate([x, skips.pop()], -1) @ join
                x = x + jax.nn.relu(x) @ block["w"]
            return x @ params["head"]

        return params, apply

    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": depth, "base_depth": base_depth}
    with pytest.raises(ValueError, match=r"'stages/1/blocks/0/w' is added to a stream that the next block does not"):
        ww.plan(build, **sizes, example=jnp.ones((2, 4)))


def test_a_bias_may_be_added_to_the_stream_first():
    """In a loop, it is added first of all; the bias of an embedding is, too, but only once."""

    def build(width: int, depth: int, key):
        params, _ = scanned(width, depth, key)
        params["shift"] = jnp.ones(width)

        def apply(params, tokens):
            def step(x, block):
                return x + block["bias"] + jax.nn.relu(normed(x) * block["norm"] @ block["up"]) @ block["down"], None

            x = params["embed"][tokens] * 1.0 + params["shift"]
            return normed(jax.lax.scan(step, x, params["blocks"])[0]) @ params["head"]

        return params, apply

    plan = ww.plan(build, width=WIDTH, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS)
    assert ends_of(plan) == {"blocks/down", "blocks/bias"}


@pytest.mark.parametrize("in_scan", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_the_state_of_a_recurrence_inside_of_a_block_is_no_stream_of_blocks(in_scan: bool, residual: bool):
    def recurrent(block, x):
        def step(state, row):
            new = jax.nn.sigmoid(block["bias"]) * state + row
            new = state + jnp.tanh(new) if residual else new
            return new, new

        rows = (normed(x) * block["norm"] @ block["up"][:, : x.shape[-1]]).swapaxes(0, 1)
        return jax.lax.scan(step, jnp.zeros_like(rows[0]), rows)[1].swapaxes(0, 1) @ block["down"][: x.shape[-1]]

    def build(width: int, depth: int, key):
        params, _ = (scanned if in_scan else unrolled)(width, depth, key)

        def apply(params, tokens):
            x = params["embed"][tokens]
            if in_scan:
                x, _ = jax.lax.scan(lambda x, block: (x + recurrent(block, x), None), x, params["blocks"])
            else:
                for block in params["blocks"]:
                    x = x + recurrent(block, x)
            return normed(x) @ params["head"]

        return params, apply

    plan = ww.plan(build, width=WIDTH, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS, headless=True)
    assert ends_of(plan) == {"blocks/down" if in_scan else "blocks/*/down"}
    assert outside(plan) == {"embed", "head"}


def in_loops(blocks: int, apply):
    def build(width: int, depth: int, key):
        shape = (depth, blocks, width, width)
        params = {
            "embed": jax.random.normal(key, (4, width)),
            "blocks": jax.random.normal(key, shape) * width**-0.5,
            "head": jax.random.normal(key, (width, 3)),
        }
        return params, lambda params, x: apply(params["blocks"], x @ params["embed"]) @ params["head"]

    return build


def add(x, weight):
    return x + jax.nn.relu(x) @ weight, None


@pytest.mark.parametrize(("depth", "base_depth"), [(6, 2), (3, 1), (1, 2)])
def test_loops_in_loops_add_to_one_stream(depth: int, base_depth: int):
    def apply(blocks, x):
        return jax.lax.scan(lambda x, group: (jax.lax.scan(add, x, group)[0], None), x, blocks)[0]

    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": depth, "base_depth": base_depth}
    plan = ww.plan(in_loops(2, apply), **sizes, example=jnp.ones((2, 4)))
    assert ends_of(plan) == {"blocks"}
    assert plan.factors["blocks"].init == pytest.approx(base_depth / depth)


def test_a_stack_that_is_indexed_is_refused_as_one():
    def apply(blocks, x):
        for number in range(len(blocks)):
            x, _ = add(x, blocks[number, 0])
        return x

    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": 4, "base_depth": 2}
    with pytest.raises(ValueError, match=r"'blocks' is a stack of which every block takes its own layer by index"):
        ww.plan(in_loops(1, apply), **sizes, example=jnp.ones((2, 4)))


class Conditioned(nn.Module):
    """All blocks read what Dense_0 computes, and have two layers each."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        def dense(x, size, width=self.width):
            return nn.Dense(width, kernel_init=nn.initializers.normal(size))(x)

        condition = dense(x[:, :2], 3.0)
        x = dense(x, 1.0)
        for _ in range(self.depth):
            x = x + dense(jax.nn.relu(dense(x, 0.5) + condition), 0.2)
        return dense(x, 7.0, width=3)


@pytest.mark.parametrize("base_depth", [1, 2])
def test_what_all_blocks_read_belongs_to_none(base_depth: int):
    sizes = {"width": 128, "base_width": 128, "depth": 4, "base_depth": base_depth}
    plan = ww.plan(lambda width, depth: Conditioned(width, depth), **sizes, example=jnp.ones((2, 4)))
    outer = [f"Dense_{number}/{name}" for number in (0, 1, 10) for name in ("bias", "kernel")]
    assert [p.path for p in plan.parameters if p.deepens == 1] == outer
    built = named_leaves(plan.init(jax.random.key(0)))
    found = [float(jnp.std(built[f"Dense_{number}/kernel"])) for number in range(11)]
    assert found == pytest.approx([3.0, 1.0, *[0.5, 0.2 * base_depth / 4] * 4, 7.0], rel=0.15)
