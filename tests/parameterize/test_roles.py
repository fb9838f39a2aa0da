"""Roles are read off shapes at two widths, rules win, and what stays open is an error that says what to do."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from widthwise.parameterize import UNSCALED, Axes, Rule, equinox, find_roles, flax
from widthwise.theory import Role

MATRIX = Axes(inputs=(0,), outputs=(1,))


def roles(layout) -> dict[str, str]:
    return {leaf.path: leaf.role.value if leaf.role else "unscaled" for leaf in layout.leaves}


def mlp(n: int, outputs: int = 3) -> dict[str, Any]:
    """Both sides of `mid` grow, one of the others; the output's bias does not."""
    return {
        "in": {"kernel": jnp.zeros((5, n)), "bias": jnp.zeros(n)},
        "mid": {"kernel": jnp.zeros((n, 4 * n))},
        "out": {"kernel": jnp.zeros((4 * n, outputs)), "bias": jnp.zeros(outputs)},
        "temperature": jnp.zeros(()),
    }


class LinenModel(nn.Module):
    width: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, self.width)(tokens)
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.width // 4)(nn.LayerNorm()(x))
        return nn.Dense(7)(x)


class NnxModel(nnx.Module):
    def __init__(self, width: int, *, rngs: nnx.Rngs):
        self.embed = nnx.Embed(11, width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(width // 4, width, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, 7, rngs=rngs)


class EquinoxModel(eqx.Module):
    embed: eqx.nn.Embedding
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    convolution: eqx.nn.Conv1d
    head: eqx.nn.Linear

    def __init__(self, width: int):
        keys = jax.random.split(jax.random.key(0), 4)
        self.embed = eqx.nn.Embedding(11, width, key=keys[0])
        self.attention = eqx.nn.MultiheadAttention(width // 4, width, key=keys[1])
        self.norm = eqx.nn.LayerNorm(width)
        self.convolution = eqx.nn.Conv1d(width, width, 3, key=keys[2])
        self.head = eqx.nn.Linear(width, 7, key=keys[3])


def linen(width: int):
    return jax.eval_shape(LinenModel(width).init, jax.random.key(0), jnp.zeros((1, 2), int))


def nnx_params(width: int):
    return nnx.split(nnx.eval_shape(lambda: NnxModel(width, rngs=nnx.Rngs(0))))[1]


def equinox_params(width: int):
    return eqx.filter(eqx.filter_eval_shape(EquinoxModel, width), lambda x: hasattr(x, "shape"))


def test_roles_of_a_plain_tree():
    assert roles(find_roles(mlp(8), other=mlp(16), convention=flax)) == {
        "in/bias": "embedding",
        "in/kernel": "embedding",
        "mid/kernel": "hidden",
        "out/bias": "unscaled",
        "out/kernel": "readout",
        "temperature": "unscaled",
    }


def test_it_does_not_matter_which_width_is_larger():
    assert roles(find_roles(mlp(8), other=mlp(16), convention=flax)) == roles(
        find_roles(mlp(8), other=mlp(4), convention=flax)
    )


def test_roles_of_flax_linen_with_head_split_kernels():
    layout = find_roles(linen(8), other=linen(16), convention=flax)
    found = roles(layout)
    attention = {p.split("/", 2)[2]: role for p, role in found.items() if "Attention" in p and "kernel" in p}
    assert attention == dict.fromkeys(["key/kernel", "out/kernel", "query/kernel", "value/kernel"], "hidden")
    assert found["params/Embed_0/embedding"] == "embedding"
    assert found["params/LayerNorm_0/scale"] == "embedding"
    assert found["params/MultiHeadDotProductAttention_0/query/bias"] == "embedding"
    assert found["params/Dense_0/kernel"] == "readout"
    assert found["params/Dense_0/bias"] == "unscaled"
    fan_in = {leaf.path.split("/", 2)[2]: leaf.fan_in for leaf in layout.leaves if "Attention" in leaf.path}
    assert fan_in["query/kernel"] == fan_in["out/kernel"] == 8


def test_roles_of_flax_nnx_have_the_same_names_without_value():
    found = roles(find_roles(nnx_params(8), other=nnx_params(16), convention=flax))
    assert found["embed/embedding"] == "embedding"
    assert found["attention/query/kernel"] == found["attention/out/kernel"] == "hidden"
    assert found["norm/scale"] == "embedding"
    assert found["head/kernel"] == "readout"
    assert found["head/bias"] == "unscaled"


def test_roles_of_equinox_by_the_types_of_its_layers():
    layout = find_roles(equinox_params(8), other=equinox_params(16), convention=equinox)
    found = roles(layout)
    assert found["embed/weight"] == "embedding"
    assert found["attention/query_proj/weight"] == "hidden"
    assert found["norm/weight"] == found["norm/bias"] == "embedding"
    assert found["convolution/weight"] == "hidden"
    assert found["convolution/bias"] == "embedding"
    assert found["head/weight"] == "readout"
    assert found["head/bias"] == "unscaled"
    fan_in = {leaf.path: leaf.fan_in for leaf in layout.leaves}
    assert fan_in["head/weight"] == 8
    assert fan_in["convolution/weight"] == 24


def test_rules_win_over_inference():
    found = find_roles(mlp(8), other=mlp(16), convention=flax, rules={"in/*": Rule(role=UNSCALED)})
    assert roles(found)["in/kernel"] == "unscaled"


def test_the_first_rule_that_matches_holds():
    rules = {"out/bias": Rule(role=UNSCALED), "*t/*": Rule(role=Role.READOUT)}
    found = roles(find_roles(mlp(8), other=mlp(16), convention=flax, rules=rules))
    assert (found["out/bias"], found["out/kernel"]) == ("unscaled", "readout")


def test_rules_alone_suffice_without_a_second_width():
    rules = {
        "in/bias": Rule(role=Role.EMBEDDING),
        "in/*": Rule(role=Role.EMBEDDING, axes=MATRIX),
        "mid/*": Rule(role=Role.HIDDEN, axes=MATRIX),
        "out/kernel": Rule(role=Role.READOUT, axes=MATRIX),
        "*": Rule(role=UNSCALED),
    }
    inferred = find_roles(mlp(8), other=mlp(16), convention=flax)
    assert find_roles(mlp(8), rules=rules).leaves == inferred.leaves


def test_stacked_layers_are_no_part_of_the_fan_in():
    def stacked(n: int):
        return {"blocks": {"kernel": jnp.zeros((3, n, n)), "scale": jnp.zeros((3, n))}, "out": jnp.zeros((n, 2))}

    rules = {
        "*kernel": Rule(axes=Axes(stack=(0,), inputs=(1,), outputs=(2,))),
        "*scale": Rule(axes=Axes(stack=(0,), outputs=(1,))),
        "out": Rule(axes=MATRIX),
    }
    layout = find_roles(stacked(8), other=stacked(16), rules=rules)
    assert roles(layout) == {"blocks/kernel": "hidden", "blocks/scale": "embedding", "out": "readout"}
    assert layout.leaves[0].fan_in == 8
    deeper = {**stacked(16), "blocks": {"kernel": jnp.zeros((6, 16, 16)), "scale": jnp.zeros((6, 16))}}
    with pytest.raises(ValueError, match=r"'blocks/kernel' has \(3, 8, 8\) at one width .* number of layers differs"):
        find_roles(stacked(8), other=deeper, rules=rules)


def test_a_layout_holds_at_every_width():
    layout = find_roles(mlp(8), other=mlp(16), convention=flax)
    assert layout.resized(mlp(32)) == find_roles(mlp(32), other=mlp(16), convention=flax)


def refused(match: str, params, **options) -> None:
    with pytest.raises(ValueError, match=match):
        find_roles(params, **options)


def test_an_ambiguous_leaf_is_an_error_that_says_what_to_write():
    refused(
        r"'in/kernel' of shape \(5, 8\): cannot tell .* a rule such as \{'in/kernel': Rule\(axes=",
        mlp(8),
        other=mlp(16),
    )


def test_layers_stacked_by_scan_need_a_rule_whatever_they_are_called():
    """A stack of three dense layers called query, key, value and out is not head-split attention."""

    def scanned(n: int):
        layers = {name: {"kernel": jnp.zeros((3, n, n))} for name in ("query", "key", "value", "out")}
        return {"blocks": layers, **mlp(n)}

    refused(r"'blocks/key/kernel' of shape \(3, 8, 8\): cannot tell", scanned(8), other=scanned(16), convention=flax)
    rule = {"blocks/*": Rule(axes=Axes(stack=(0,), inputs=(1,), outputs=(2,)))}
    found = roles(find_roles(scanned(8), other=scanned(16), convention=flax, rules=rule))
    assert found["blocks/key/kernel"] == found["blocks/out/kernel"] == "hidden"


def test_stacked_scales_and_biases_need_a_rule():
    def scanned(n: int):
        return {"blocks": {"norm": {"scale": jnp.zeros((3, n))}}, **mlp(n)}

    refused(r"'blocks/norm/scale' of shape \(3, 8\): cannot tell", scanned(8), other=scanned(16), convention=flax)


def test_equinox_layers_stacked_by_vmap_need_a_rule():
    class Stacked(eqx.Module):
        layers: eqx.nn.Linear
        head: eqx.nn.Linear

        def __init__(self, width: int):
            make = eqx.filter_vmap(lambda key: eqx.nn.Linear(width, width, key=key))
            self.layers = make(jax.random.split(jax.random.key(0), 3))
            self.head = eqx.nn.Linear(width, 7, key=jax.random.key(1))

    def params(width: int):
        return eqx.filter_eval_shape(Stacked, width)

    refused(r"'layers/weight' of shape \(3, 8, 8\): cannot tell", params(8), other=params(16), convention=equinox)


def test_keys_and_values_with_a_fixed_number_of_heads_are_not_taken_for_readouts():
    def grouped(n: int):
        return {"key": {"kernel": jnp.zeros((n, 16))}, "value": {"kernel": jnp.zeros((n, 16))}, **mlp(n)}

    refused(
        "'key/kernel', 'out/kernel', 'value/kernel' all have inputs that grow and outputs that do not",
        grouped(8),
        other=grouped(32),
        convention=flax,
    )
    rules = {"key/*": Rule(role=Role.HIDDEN), "value/*": Rule(role=Role.HIDDEN)}
    found = roles(find_roles(grouped(8), other=grouped(32), convention=flax, rules=rules))
    assert (found["key/kernel"], found["out/kernel"]) == ("hidden", "readout")


def test_the_other_model_must_have_another_width():
    refused("`other` has the same shapes", mlp(8), other=mlp(8), convention=flax)


@pytest.mark.parametrize("leaf", [jnp.zeros(8, int), jax.random.key(0)], ids=["integers", "key"])
def test_what_cannot_be_trained_is_refused(leaf):
    refused("'state' has type .*, not one that can be trained: pass the trainable arrays only", {"state": leaf})


def test_rules_that_are_no_rules_are_refused():
    refused("the rule for 'in/\\*' is 'hidden': expected a Rule", mlp(8), other=mlp(16), rules={"in/*": "hidden"})
    with pytest.raises(ValueError, match=r"init is -1: expected 0 or more"):
        Rule(init=-1)


def test_an_explicit_role_may_grow_as_it_likes_but_needs_its_axes():
    other = {**mlp(16), "mid": {"kernel": jnp.zeros((16, 4 * 24))}}
    rule = {"mid/kernel": Rule(role=Role.HIDDEN, axes=MATRIX)}
    assert roles(find_roles(mlp(8), other=other, convention=flax, rules=rule))["mid/kernel"] == "hidden"
    refused("'w' of shape .* cannot tell", {"w": jnp.ones((2, 2))}, rules={"w": Rule(role=Role.HIDDEN)})


def test_two_leaves_of_one_name_are_refused():
    refused("two leaves of the parameter tree are both called 'a/b'", {"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)})


def test_a_leaf_that_is_called_value_keeps_its_name():
    layout = find_roles({"value": jnp.ones(3)}, rules={"value": Rule(role=UNSCALED)})
    assert [leaf.path for leaf in layout.leaves] == ["value"]


def test_a_kernel_of_three_axes_that_is_not_flaxs_attention_is_ambiguous():
    def general(n: int):
        return {"general": {"kernel": jnp.zeros((n, n, 4))}, **mlp(n)}

    refused(r"'general/kernel' of shape \(8, 8, 4\): cannot tell", general(8), other=general(16), convention=flax)
    rule = {"general/kernel": Rule(axes=Axes(inputs=(0,), outputs=(1, 2)))}
    assert roles(find_roles(general(8), other=general(16), convention=flax, rules=rule))["general/kernel"] == "hidden"


def test_a_leaf_without_a_role_is_named():
    refused("'in/bias' has no role: give `other`", mlp(8), convention=flax)


def test_a_rule_that_applies_to_nothing_is_named():
    refused("rule 'middle/' applies to nothing, no leaf", mlp(8), other=mlp(16), rules={"middle/": Rule()})
    shadowed = {"*": Rule(role=UNSCALED), "in/*": Rule(role=UNSCALED)}
    refused("rule 'in/\\*' applies to nothing, an earlier rule", mlp(8), rules=shadowed)


def test_trees_that_differ_are_named_by_what_differs():
    other = mlp(16)
    del other["mid"]
    refused("the model at the other width lacks 'mid/kernel'", mlp(8), other=other, convention=flax)
    refused("has 'mid/kernel' in addition", other, other=mlp(8), convention=flax)


def test_parts_that_grow_differently_are_named():
    other = {**mlp(16), "mid": {"kernel": jnp.zeros((16, 4 * 24))}}
    refused(r"'mid/kernel' goes from \(16, 96\) to \(8, 32\), by 1/3, but 'in/", mlp(8), other=other, convention=flax)
    flat = {**mlp(16), "mid": {"kernel": jnp.zeros((16 * 64,))}}
    refused("expected as many axes", mlp(8), other=flat, convention=flax)


def test_one_array_at_two_places_is_refused():
    shared = jnp.zeros((8, 8))
    refused("'b' and 'a' are the same array: tied", {"a": shared, "b": shared}, rules={"*": Rule(role=UNSCALED)})


def test_a_model_without_readout_is_taken_for_tied_unless_it_says_so():
    def tied(n: int):
        return {"tokens": {"embedding": jnp.zeros((11, n))}, "mid": {"kernel": jnp.zeros((n, n))}}

    refused("no leaf is a readout: if 'tokens/embedding' is tied", tied(8), other=tied(16), convention=flax)
    assert len(find_roles(tied(8), other=tied(16), convention=flax, headless=True).leaves) == 2


def test_wrong_rules_are_refused():
    with pytest.raises(ValueError, match="role is 'embeding': expected one of embedding, hidden, readout, unscaled"):
        Rule(role="embeding")
    wrong = {"in/kernel": Rule(axes=Axes(inputs=(0,)))}
    refused(r"axes of 'in/kernel' are inputs \(0,\), outputs \(\)", mlp(8), other=mlp(16), convention=flax, rules=wrong)
    no_inputs = {"*": Rule(role=Role.READOUT, axes=Axes(outputs=(0, 1)))}
    refused("'w' is to be readout but has no input axes", {"w": jnp.ones((2, 3))}, rules=no_inputs)
    readout = {"in/kernel": Rule(role=Role.READOUT)}
    refused(
        r"'in/kernel' is to be readout, but its inputs do not grow, from \(5, 16\) to \(5, 8\)",
        mlp(8),
        other=mlp(16),
        convention=flax,
        rules=readout,
    )


def test_a_model_that_is_all_hidden_has_no_readout_and_is_refused():
    def model(n: int):
        return {"a": {"kernel": jnp.ones((n, n))}}

    refused("no leaf is a readout: if the model has none", model(8), other=model(16), convention=flax)


def test_one_array_of_zeros_for_two_biases_is_not_tied():
    def model(n: int):
        zeros = jnp.zeros(n)
        return {**mlp(n), "a": {"bias": zeros}, "b": {"bias": zeros}}

    assert roles(find_roles(model(8), other=model(16), convention=flax))["a/bias"] == "embedding"


def test_hints_for_stacked_leaves_name_the_stack():
    def model(n: int):
        return {"blocks": jnp.ones((3, n, n))}

    refused(r"Axes\(stack=\(0,\), inputs=\(1,\), outputs=\(2,\)\)", model(8), other=model(16))


def test_what_is_not_an_array_is_refused():
    refused("'activation' is .*, not an array: pass the trainable arrays only", {"activation": jax.nn.relu})
