"""A trace shows what each parameter does, however the forward pass is written."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from widthwise.scaling import Axes, Use
from widthwise.trace import trace

N = 8
X = jnp.ones((5, N))
MATRIX = Axes(inputs=(0,), outputs=(1,))


def shapes(**shapes: Any) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}


def one(forward: Any, params: Any, path: str, *example: Any) -> Use:
    """Return the only use of a parameter."""
    (use,) = trace(forward, params, *(example or (X,))).of(path)
    return use


@pytest.mark.parametrize(
    ("forward", "shape", "axes"),
    [
        (lambda w, x: x @ w, (N, 3), Axes(inputs=(0,), outputs=(1,))),
        (lambda w, x: x @ w.T, (3, N), Axes(inputs=(1,), outputs=(0,))),
        (lambda w, x: w @ x.T, (3, N), Axes(inputs=(1,), outputs=(0,))),
        (lambda w, x: jnp.einsum("bn,nhd->bhd", x, w), (N, 3, 2), Axes(inputs=(0,), outputs=(1, 2))),
        (lambda w, x: jnp.einsum("bhd,hdn->bn", x.reshape(5, 4, 2), w), (4, 2, 3), Axes(inputs=(0, 1), outputs=(2,))),
        (lambda w, x: x @ w.reshape(N, 3), (4, 2, 3), Axes(inputs=(0, 1), outputs=(2,))),
        (lambda w, x: jnp.einsum("bn,nhd->bhd", x, w.reshape(N, 3, 2)), (N, 6), MATRIX),
        (lambda w, x: x @ w.reshape(2, 3, N).transpose(2, 0, 1).reshape(N, 6), (6, N), Axes(inputs=(1,), outputs=(0,))),
        (lambda w, x: x @ w.astype(jnp.bfloat16).astype(jnp.float32) * 3, (N, 3), MATRIX),
        (lambda w, x: jnp.einsum("lnm,bn->lbm", w, x), (2, N, 3), Axes(inputs=(1,), outputs=(0, 2))),
        (lambda w, x: jnp.einsum("lnm,lbn->lbm", w, jnp.stack([x, x])), (2, N, 3),
         Axes(inputs=(1,), outputs=(2,), stack=(0,))),
        (lambda w, x: x[:, :4] @ w[:4] + x[:, 4:] @ w[4:], (N, 3), MATRIX),
        (lambda w, x: sum(x @ w[layer] for layer in range(2)), (2, N, 3),
         Axes(inputs=(1,), outputs=(2,), stack=(0,))),
    ],
)  # fmt: skip
def test_the_axis_that_is_summed_over_is_the_input(forward: Any, shape: tuple[int, ...], axes: Axes):
    uses = trace(lambda params, x: forward(params["w"], x), shapes(w=shape), X).of("w")
    assert {(use.kind, use.axes) for use in uses} == {("product", axes)}


def test_the_number_of_terms_and_of_results_are_counted():
    use = one(lambda p, x: jnp.einsum("bn,nhd->bhd", x, p["w"]), shapes(w=(N, 3, 2)), "w")
    assert (use.fan_in, use.fan_out) == (N, 6)


def test_parameters_joined_along_their_outputs_count_their_own():
    def forward(params, x):
        return x @ jnp.concatenate([params["q"], params["k"]], axis=1)

    found = trace(forward, shapes(q=(N, 6), k=(N, 2)), X)
    for path, fan_out in {"q": 6, "k": 2}.items():
        (use,) = found.of(path)
        assert (use.axes, use.fan_in, use.fan_out) == (MATRIX, N, fan_out)


def test_parameters_joined_along_their_inputs_count_their_own():
    def forward(params, x):
        return x @ jnp.concatenate([params["left"], params["right"]])

    found = trace(forward, shapes(left=(6, 3), right=(2, 3)), X)
    for path, fan_in in {"left": 6, "right": 2}.items():
        (use,) = found.of(path)
        assert (use.axes, use.fan_in) == (MATRIX, fan_in)


def test_a_parameter_that_is_split_is_used_by_all_its_parts():
    def forward(params, x):
        q, k = jnp.split(params["qk"], 2, axis=1)
        return jnp.sum((x @ q) * (x @ k))

    uses = trace(forward, shapes(qk=(N, 6)), X).of("qk")
    assert [(use.axes, use.fan_in, use.fan_out) for use in uses] == [(MATRIX, N, 3)] * 2


def test_a_lookup_selects_rows():
    use = one(lambda p, i: p["table"][i], shapes(table=(7, N)), "table", jnp.zeros(5, int))
    assert (use.kind, use.axes, use.fan_in, use.fan_out) == ("lookup", MATRIX, 1, N)


@pytest.mark.parametrize(
    "lookup",
    [
        lambda table, i: jnp.take(table, i, axis=0),
        lambda table, i: jax.nn.one_hot(i, 7) @ table,
        lambda table, i: jax.vmap(lambda j: table[j])(i),
        lambda table, i: table.astype(jnp.bfloat16)[i] * 2,
    ],
)
def test_a_lookup_may_be_written_in_other_ways(lookup: Any):
    use = one(lambda p, i: lookup(p["table"], i), shapes(table=(7, N)), "table", jnp.zeros(5, int))
    assert (use.axes.inputs, use.axes.outputs, use.fan_out) == ((0,), (1,), N)


def test_positions_that_are_the_same_for_every_example_are_looked_up_too():
    def forward(params, tokens):
        return params["table"][tokens] + params["positions"][jnp.arange(tokens.shape[-1])]

    use = one(forward, shapes(table=(7, N), positions=(6, N)), "positions", jnp.zeros((2, 5), int))
    assert (use.kind, use.axes, use.fan_in, use.fan_out) == ("lookup", MATRIX, 1, N)


def test_positions_that_are_cut_to_the_length_of_the_example_are_added():
    use = one(lambda params, x: x + params["positions"][:5], shapes(positions=(6, N)), "positions")
    assert (use.kind, use.axes, use.fan_in) == ("elementwise", Axes(outputs=(0, 1)), 1)


def test_biases_and_scales_act_on_every_element():
    def forward(params, x):
        return params["scale"] * x + params["bias"]

    found = trace(forward, shapes(scale=(N,), bias=(N,)), X)
    assert {(use.path, use.kind, use.axes, use.fan_in, use.fan_out) for use in found.uses} == {
        ("scale", "elementwise", Axes(outputs=(0,)), 1, N),
        ("bias", "elementwise", Axes(outputs=(0,)), 1, N),
    }


STACKED = Axes(inputs=(1,), outputs=(2,), stack=(0,))


def scanned(params, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["w"])[0]


def counted(params, x):
    """A scan over layer numbers."""
    return jax.lax.scan(lambda x, i: (jnp.tanh(x @ params["w"][i]), None), x, jnp.arange(3))[0]


def fori(params, x):
    return jax.lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ params["w"][i]), x)


def while_loop(params, x):
    def step(state):
        i, x = state
        return i + 1, jnp.tanh(x @ jax.lax.dynamic_index_in_dim(params["w"], i, keepdims=False))

    return jax.lax.while_loop(lambda state: (state[0] < 3) & (state[1].sum() < 100), step, (0, x))[1]


def mapped_over_layers(params, x):
    return jax.vmap(lambda w, x: x @ w)(params["w"], jnp.stack([x] * 3))


@pytest.mark.parametrize("forward", [scanned, counted, fori, while_loop, mapped_over_layers])
def test_an_axis_that_enumerates_layers_is_a_stack(forward: Any):
    use = one(forward, shapes(w=(3, N, N)), "w")
    assert (use.kind, use.axes, use.fan_in, use.fan_out) == ("product", STACKED, N, N)


@jax.custom_jvp
def custom_jvp(w, x):
    return x @ w


custom_jvp.defjvp(lambda primals, tangents: (custom_jvp(*primals), tangents[1] @ primals[0]))


@jax.custom_vjp
def custom_vjp(w, x):
    return x @ w


custom_vjp.defvjp(lambda w, x: (x @ w, (w, x)), lambda saved, g: (saved[1].T @ g, g @ saved[0].T))


def sharded(w, x, *, spec):
    mesh = Mesh(np.array(jax.devices()[:1]), ("model",))
    multiply = jax.shard_map(lambda w, x: x @ w, mesh=mesh, in_specs=(spec, P()), out_specs=P(None, *spec[1:]))
    return multiply(w, x)


@pytest.mark.parametrize(
    "multiply",
    [
        jax.jit(lambda w, x: x @ w),
        jax.checkpoint(lambda w, x: x @ w),
        jax.checkpoint(lambda w, x: x @ w, policy=jax.checkpoint_policies.nothing_saveable),
        custom_jvp,
        custom_vjp,
        partial(sharded, spec=P()),
        partial(sharded, spec=P(None, "model")),
        lambda w, x: jax.vmap(lambda row: row @ w)(x),
        lambda w, x: jax.vmap(lambda column: x @ column, in_axes=1, out_axes=1)(w),
        lambda w, x: jax.lax.cond(x.sum() > 0, lambda: x @ w, lambda: -(x @ w)),
        lambda w, x: jax.lax.map(lambda row: row @ w, x),
        lambda w, x: jax.lax.dot_general(x, w, (((1,), (0,)), ((), ()))),
        lambda w, x: (x[:, :, None] * w).sum(axis=1),
        lambda w, x: (x[:, None, :] * w.T).sum(-1),
        lambda w, x: jax.lax.with_sharding_constraint(x @ w, jax.sharding.SingleDeviceSharding(jax.devices()[0])),
        lambda w, x: jax.lax.optimization_barrier(w).T.T.__rmatmul__(x),
    ],
)
def test_a_product_is_found_inside_of_anything(multiply: Any):
    uses = trace(lambda params, x: multiply(params["w"], x), shapes(w=(N, 3)), X).of("w")
    assert {(use.kind, use.axes, use.fan_in, use.fan_out) for use in uses} == {("product", MATRIX, N, 3)}


def test_a_choice_between_two_parameters_uses_both():
    def forward(params, x):
        return jax.lax.cond(x.sum() > 0, lambda: x @ params["one"], lambda: x @ params["other"].T)

    found = trace(forward, shapes(one=(N, 3), other=(3, N)), X)
    assert {(use.path, use.axes.inputs) for use in found.uses} == {("one", (0,)), ("other", (1,))}


def test_a_convolution_sums_over_channels_and_places():
    def forward(params, x):
        return jax.lax.conv_general_dilated(x, params["kernel"], (1, 1), "SAME")

    use = one(forward, shapes(kernel=(6, N, 3, 3)), "kernel", jnp.ones((2, N, 9, 9)))
    assert (use.axes, use.fan_in, use.fan_out) == (Axes(inputs=(1, 2, 3), outputs=(0,)), N * 9, 6)


def test_a_depthwise_convolution_sums_over_places_only():
    def forward(params, x):
        numbers = ("NWC", "WIO", "NWC")
        return jax.lax.conv_general_dilated(
            x, params["kernel"], (1,), "SAME", dimension_numbers=numbers, feature_group_count=N
        )

    use = one(forward, shapes(kernel=(4, 1, N)), "kernel", jnp.ones((2, 9, N)))
    assert (use.fan_in, use.fan_out) == (4, N)
    assert 2 in use.axes.outputs


@pytest.mark.parametrize(
    "multiply",
    [
        lambda experts, x, chosen: jnp.einsum("bn,bnm->bm", x, experts[chosen]),
        lambda experts, x, chosen: jax.vmap(lambda row, i: row @ experts[i])(x, chosen),
        lambda experts, x, chosen: jnp.einsum("bn,bnm->bm", x, jnp.take(experts, chosen, axis=0)),
        lambda experts, x, chosen: jax.lax.map(lambda pair: pair[0] @ experts[pair[1]], (x, chosen)),
    ],
)
def test_experts_that_are_chosen_by_the_example_are_a_stack(multiply: Any):
    def forward(params, x, chosen):
        return multiply(params["experts"], x, chosen)

    use = one(forward, shapes(experts=(4, N, 6)), "experts", X, jnp.zeros(5, int))
    assert (use.kind, use.axes, use.fan_in, use.fan_out) == ("product", STACKED, N, 6)


def test_experts_that_take_groups_of_rows_are_a_stack():
    def forward(params, x, sizes):
        return jax.lax.ragged_dot(x, params["experts"], sizes)

    use = one(forward, shapes(experts=(4, N, 6)), "experts", X, jnp.array([1, 2, 1, 1]))
    assert (use.kind, use.axes, use.fan_in, use.fan_out) == ("product", STACKED, N, 6)


def test_experts_that_all_act_on_every_example_are_a_stack():
    def forward(params, x, gates):
        return jnp.einsum("be,ebm->bm", gates, jnp.einsum("bn,enm->ebm", x, params["experts"]))

    use = one(forward, shapes(experts=(4, N, 6)), "experts", X, jnp.ones((5, 4)))
    assert (use.axes.inputs, use.fan_in) == ((1,), N)


def low_rank(params, x):
    return x @ (params["w"] + params["down"] @ params["up"])


def test_the_factors_of_a_low_rank_addition_sum_over_inputs_and_over_the_rank():
    found = trace(low_rank, shapes(w=(N, 6), down=(N, 2), up=(2, 6)), X)
    assert {use.path: (use.axes, use.fan_in, use.fan_out) for use in found.uses} == {
        "w": (MATRIX, N, 6),
        "down": (MATRIX, N, 2),
        "up": (MATRIX, 2, 6),
    }


def test_a_normalized_weight_is_not_linear():
    def forward(params, x):
        return x @ (params["g"] * params["v"] / jnp.linalg.norm(params["v"], axis=0))

    found = trace(forward, shapes(v=(N, 6), g=(6,)), X)
    (v,), (g,) = found.of("v"), found.of("g")
    assert (v.axes, v.fan_in, v.linear) == (MATRIX, N, False)
    assert (g.axes.inputs, g.fan_out, g.linear) == ((), 6, True)


@pytest.mark.parametrize(
    ("forward", "linear"),
    [
        (lambda w, x: x * w, True),
        (lambda w, x: x * (2 * w), True),
        (lambda w, x: x * -w.astype(jnp.bfloat16), True),
        (lambda w, x: x * jnp.exp(w), False),
        (lambda w, x: x * (1 + w), False),
        (lambda w, x: x * w * w, True),
        (lambda w, x: x * (w * w), False),
        (lambda w, x: x / w, True),
    ],
)
def test_functions_of_a_parameter_are_linear_or_not(forward: Any, linear: bool):
    uses = trace(lambda params, x: forward(params["w"], x), shapes(w=(N,)), X).of("w")
    assert all(use.linear for use in uses) == linear


def test_a_first_state_that_is_learned_acts_on_every_element():
    def forward(params, x):
        def step(state, row):
            return jnp.tanh(state @ params["w"] + row), None

        return jax.lax.scan(step, params["start"], x)[0]

    found = trace(forward, shapes(start=(N,), w=(N, N)), X)
    (start,), (w,) = found.of("start"), found.of("w")
    assert (start.kind, start.axes, start.fan_out) == ("elementwise", Axes(outputs=(0,)), N)
    assert (w.kind, w.axes, w.inner) == ("product", MATRIX, True)


def test_a_product_whose_result_reaches_another_is_inner():
    def forward(params, x):
        keys, values = x @ params["k"], x @ params["v"]
        return jax.nn.softmax(keys) * values @ params["o"] @ params["out"]

    found = trace(forward, shapes(k=(N, 3), v=(N, 3), o=(3, N), out=(N, 2)), X)
    assert {use.path: use.inner for use in found.uses} == {"k": True, "v": True, "o": True, "out": False}


def test_a_gate_on_logits_is_not_inner():
    def forward(params, x):
        return jax.nn.softmax(x @ params["gate"]) * (x @ params["out"])

    found = trace(forward, shapes(gate=(N, 3), out=(N, 3)), X)
    assert {use.path: use.inner for use in found.uses} == {"gate": False, "out": False}


def test_products_of_activations_are_no_uses():
    found = trace(lambda params, x: jax.nn.softmax(x @ x.T) @ x @ params["w"], shapes(w=(N, 3)), X)
    assert [use.path for use in found.uses] == ["w"]


def norm(params, x):
    return params["scale"] * x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True)) + params["bias"]


NORM = shapes(scale=(N,), bias=(N,), out=(N, 3))


def gains(forward: Any) -> tuple[str, ...]:
    return trace(forward, NORM, X).of("out")[-1].gains


def test_the_norm_in_front_of_a_product_sets_the_size_of_its_result():
    assert gains(lambda params, x: norm(params, x) @ params["out"]) == ("bias", "scale")
    assert gains(lambda params, x: norm(params, x).astype(jnp.bfloat16).reshape(5, N) @ params["out"]) != ()


@pytest.mark.parametrize(
    "forward",
    [
        lambda params, x: jnp.tanh(norm(params, x)) @ params["out"],
        lambda params, x: (norm(params, x) + x) @ params["out"],
        lambda params, x: (norm(params, x) + norm(params, x) * 2) @ params["out"],
        lambda params, x: (norm(params, x) + 1) @ params["out"],
        lambda params, x: (jnp.exp(params["scale"]) * x) @ params["out"] + params["bias"][:3],
    ],
)
def test_what_is_not_proportional_to_a_norm_does_not_count(forward: Any):
    assert gains(forward) == ()


def test_what_cannot_be_looked_into_is_named():
    def forward(params, x):
        return jax.pure_callback(lambda x, w: x @ w, jax.ShapeDtypeStruct((5, 3), x.dtype), x, params["w"])

    found = trace(forward, shapes(w=(N, 3)), X)
    assert found.uses == ()
    assert found.found.unseen == {"w": "pure_callback"}


def test_tokens_that_the_model_closes_over_are_examples_too():
    tokens = jnp.zeros(5, int)
    (use,) = trace(lambda params: params["table"][tokens], shapes(table=(7, N))).of("table")
    assert use.kind == "lookup"


def test_nothing_is_computed():
    """A model of any size can be traced."""
    big = 2**20
    found = trace(
        lambda params, x: x @ params["w"], shapes(w=(big, big)), jax.ShapeDtypeStruct((big, big), jnp.float32)
    )
    assert found.uses[0].fan_in == big
