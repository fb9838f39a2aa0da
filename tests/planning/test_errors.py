"""What a plan cannot know is one line that names the parameter and says what to do; doing so works."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import widthwise as ww
from widthwise import Axes, Role, Rule

KEY = jax.random.key(0)
X = jnp.ones((4, 5))
TOKENS = jnp.zeros((4, 3), int)


def normal(shapes: dict[str, tuple[int, ...]], key: jax.Array) -> dict[str, jax.Array]:
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)}


def mlp(width, key):
    return normal({"in": (5, width), "mid": (width, width), "out": (width, 3)}, key), apply


def apply(params, x):
    return jnp.tanh(jnp.tanh(x @ params["in"]) @ params["mid"]) @ params["out"]


def plan(build: Any, *, example: Any = X, width: int = 16, base_width: int = 8, **options: Any) -> ww.Plan:
    return ww.plan(build, width=width, base_width=base_width, example=example, **options)


def part(plan: ww.Plan, path: str) -> str:
    (found,) = (parameter for parameter in plan.parameters if parameter.path == path)
    return found.part.value


def refuses(match: str):
    """Return a context that expects an error of one line."""
    return pytest.raises(ValueError, match=rf"^[^\n]*{match}[^\n]*$")


def test_a_build_that_ignores_the_width():
    with refuses("no parameter changes with the width: expected build.width. to use its argument"):
        plan(lambda width, key: mlp(8, key))


def test_a_model_with_more_parameters_at_another_width():
    def build(width, key):
        params, apply = mlp(width, key)
        return params | ({"extra": jnp.ones(3)} if width > 8 else {}), apply

    with refuses("the model has 'extra' in addition, compared with the base width"):
        plan(build)
    with refuses("the model lacks 'extra', compared with the base width"):
        plan(build, width=8, base_width=16)


def test_a_parameter_with_more_axes_at_another_width():
    def build(width, key):
        params, apply = mlp(width, key)
        return params | {"extra": jnp.ones((3,) * (1 if width > 8 else 2))}, apply

    with refuses(r"'extra' has shape \(3,\) at one width and \(3, 3\) at the other: expected as many axes"):
        plan(build)


def out_of_sight(width, key):
    """A callback in Python multiplies by `out`."""

    def apply(params, x):
        shape = jax.ShapeDtypeStruct((4, 3), x.dtype)
        return jax.pure_callback(lambda x, w: x @ w, shape, jnp.tanh(x @ params["in"]), params["out"])

    return normal({"in": (5, width), "out": (width, 3)}, key), apply


def test_a_use_that_cannot_be_seen():
    with refuses(
        r"'out' of shape \(16, 3\): cannot tell inputs from outputs, since it enters 'pure_callback', which cannot be "
        r"looked into; add a rule such as {'out': Rule\(axes=Axes\(inputs=\(0,\), outputs=\(1,\)\)\)}"
    ):
        plan(out_of_sight)
    ruled = plan(out_of_sight, rules={"out": Rule(axes=Axes(inputs=(0,), outputs=(1,)))})
    assert part(ruled, "out") == "readout"
    assert ruled.factors["out"].learning_rate == 0.5


def test_a_use_that_cannot_be_seen_does_not_matter_where_both_axes_grow():
    def build(width, key):
        def apply(params, x):
            x = jnp.tanh(x @ params["in"])
            x = jax.pure_callback(lambda x, w: x @ w, jax.ShapeDtypeStruct(x.shape, x.dtype), x, params["mid"])
            return x @ params["out"]

        return mlp(width, key)[0], apply

    assert part(plan(build), "mid") == "hidden"


def test_a_parameter_that_is_not_used():
    def build(width, key):
        params, apply = mlp(width, key)
        return params | {"spare": jnp.ones((width, 3))}, apply

    with refuses("'spare' of shape .*, since the forward pass does not use it"):
        plan(build)
    ruled = plan(build, rules={"spare": Rule(role=ww.UNSCALED)})
    assert part(ruled, "spare") == "unscaled"


def test_no_example_and_a_shape_that_does_not_say_enough():
    with refuses("'in' of shape .*, since the forward pass was not traced"):
        plan(mlp, example=())


def test_keys_of_fixed_size_cannot_be_trained_with_sgd():
    def build(width, key):
        def apply(params, x):
            return jnp.tanh(jnp.tanh(x @ params["in"]) @ params["down"]) @ params["up"] @ params["out"]

        return normal({"in": (5, width), "down": (width, 2), "up": (2, width), "out": (width, 3)}, key), apply

    assert part(plan(build), "down") == "inner readout"
    with refuses("'down' has inputs that grow and a fixed number of outputs that later layers use"):
        plan(build, optimizer="sgd")


def tied(width, key):
    def apply(params, tokens):
        return jnp.tanh(params["embed"][tokens] @ params["mid"]) @ params["embed"].T

    return normal({"embed": (7, width), "mid": (width, width)}, key), apply


def test_a_tied_embedding_without_a_norm_in_front_of_the_readout():
    with refuses("'embed' is embedding and readout at once, .* pass scaled_logits=True"):
        plan(tied, example=TOKENS)
    scaled = plan(tied, example=TOKENS, scaled_logits=True)
    assert part(scaled, "embed") == "tied"
    assert (scaled.factors["embed"].init, scaled.factors["embed"].learning_rate) == (1, 1)


def test_a_norm_that_feeds_more_than_the_tied_readout():
    def build(width, key):
        def apply(params, tokens):
            x = params["scale"] * params["embed"][tokens]
            return (x @ params["mid"] + x) @ params["embed"].T

        return tied(width, key)[0] | {"scale": jnp.ones(width)}, apply

    with refuses("'embed' is embedding and readout at once, and no norm scale in front of the readout feeds it alone"):
        plan(build, example=TOKENS)


def test_a_model_without_a_readout():
    def headless(width, key):
        return normal({"in": (5, width), "mid": (width, width)}, key), lambda p, x: x @ p["in"] @ p["mid"]

    with refuses("no parameter is a readout, .* pass headless=True"):
        plan(headless)
    assert part(plan(headless, headless=True), "mid") == "hidden"


def test_a_rule_that_makes_a_readout_of_a_parameter_whose_inputs_do_not_grow():
    with refuses(r"'in' is to be readout, but goes from \(5, 8\) to \(5, 16\), and its inputs do not grow"):
        plan(mlp, rules={"in": Rule(role=Role.READOUT)})


def test_a_rule_that_makes_an_embedding_of_a_parameter_whose_inputs_grow():
    with refuses("'out' is to be an embedding, but sums over inputs that grow"):
        plan(mlp, rules={"out": Rule(role=Role.EMBEDDING)})


def test_a_rule_for_nothing():
    with refuses("rule 'outt' applies to nothing, no leaf has such a path; the paths are in, mid, out"):
        plan(mlp, rules={"outt": Rule(role=Role.READOUT)})


def test_a_rule_whose_axes_do_not_fit():
    with refuses("axes of 'out' are .*: expected each axis of shape .* exactly once"):
        plan(mlp, rules={"out": Rule(axes=Axes(inputs=(0,)))})


def test_parameters_of_another_width():
    with refuses(r"\['in'\] has shape \(5, 8\): the plan is for width 16, where it has \(5, 16\)"):
        plan(mlp).rescale(mlp(8, KEY)[0])


def test_parameters_of_another_model():
    with refuses("'other' is not a parameter of the plan: expected the planned model's, in, mid, out"):
        plan(mlp).rescale({"other": jnp.ones(3)})


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [
        ("parameterization", "mupp", "standard, ntk, mup, mean_field"),
        ("optimizer", "moun", "sgd, momentum, nesterov, adam, adamw"),
        ("alignment", "half", "full, none, tensor_programs"),
    ],
)
def test_a_name_that_is_not_known(option: str, value: str, known: str):
    with refuses(f"{option} is '{value}': expected one of {known}"):
        plan(mlp, **{option: value})


@pytest.mark.parametrize("width", [0, 16.0, "16"])
def test_a_width_that_is_not_a_number_of_units(width: Any):
    with refuses(f"width is {width!r}: expected a whole number from 1 up"):
        plan(mlp, width=width)
    with refuses(f"base_width is {width!r}: expected a whole number from 1 up"):
        plan(mlp, base_width=width)


def test_a_parameterization_that_is_unstable_from_the_start():
    unstable = ww.Parameterization.of(name="own", embedding=(0, 0), hidden=(0, 0), readout=(0, 0))
    with refuses("'own' is unstable at initialization: stable_at_init"):
        plan(mlp, parameterization=unstable)


def test_a_build_without_a_key_cannot_draw():
    keyless = plan(lambda width: mlp(width, KEY))
    with refuses("build takes a width only, so it cannot be given a key: .* plan.rescale"):
        keyless.init(KEY)
    assert keyless.rescale(mlp(16, KEY)[0])["in"].shape == (5, 16)


def test_a_number_of_experts_that_grows():
    def build(width, key):
        def apply(params, x, chosen):
            x = jnp.einsum("bn,bnm->bm", jnp.tanh(x @ params["in"]), params["experts"][chosen])
            return x @ params["out"]

        return normal({"in": (5, 8), "experts": (width, 8, 8), "out": (8, 3)}, key), apply

    shapes = r"\(8, 8, 8\) at the base width and \(16, 8, 8\) here"
    with refuses(f"'experts' has shape {shapes}: its number of layers or experts changes, not its width"):
        plan(build, example=(X, jnp.zeros(4, int)))


def test_a_parameter_used_as_hidden_and_as_embedding():
    def build(width, key):
        def apply(params, x, rows):
            return jnp.tanh(x @ params["in"] @ params["both"] + params["both"][rows]) @ params["out"]

        return normal({"in": (5, width), "both": (width, width), "out": (width, 3)}, key), apply

    example = (X, jnp.zeros(4, int))
    with refuses(
        r"'both' is used as embedding and as hidden, which scale differently: .* state the role to use with Rule\(role="
    ):
        plan(build, example=example)
    assert part(plan(build, example=example, rules={"both": Rule(role=Role.HIDDEN)}), "both") == "hidden"


def test_stored_parameters_are_expected_where_there_are_multipliers():
    with refuses("expected the stored parameters that plan.init or plan.rescale returned"):
        plan(mlp, multipliers=True).effective(mlp(16, KEY)[0])
