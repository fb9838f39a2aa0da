"""Roles and growth follow from the uses and shapes at two widths, whatever framework traced them."""

from dataclasses import replace
from fractions import Fraction

import pytest

from widthwise.scaling import Axes, Parameter, Part, Rule, Traced, Use, find_parameters
from widthwise.theory import Role

MATRIX = Axes(inputs=(0,), outputs=(1,))
VECTOR = Axes(outputs=(0,))


def product(path: str, fan_in: int, fan_out: int, *, inner: bool = False, axes: Axes = MATRIX, gains=()) -> Use:
    return Use(path=path, kind="product", axes=axes, fan_in=fan_in, fan_out=fan_out, inner=inner, gains=gains)


def lookup(path: str, fan_out: int) -> Use:
    return Use(path=path, kind="lookup", axes=MATRIX, fan_in=1, fan_out=fan_out)


def vector(path: str, size: int) -> Use:
    return Use(path=path, kind="elementwise", axes=VECTOR, fan_in=1, fan_out=size)


def found(base: dict[str, tuple[int, ...]], here: dict[str, tuple[int, ...]], uses, **options) -> dict[str, Parameter]:
    """Find parameters; `uses` maps a factor, 1 at the base width and 2 here, to uses."""
    at = [Traced(shapes=shapes, uses=uses(times), unseen={}) for shapes, times in ((base, 1), (here, 2))]
    return {parameter.path: parameter for parameter in find_parameters(at[1], at[0], **options)}


def one(uses, base: tuple[int, ...], here: tuple[int, ...], **options) -> Parameter:
    """Find one parameter beside a readout."""
    both = {"w": base, "out": (8, 3)}, {"w": here, "out": (16, 3)}
    return found(*both, lambda times: [*uses(times), product("out", 8 * times, 3)], **options)["w"]


@pytest.mark.parametrize(
    ("uses", "base", "here", "part"),
    [
        (lambda t: [product("w", 5, 8 * t, inner=True)], (5, 8), (5, 16), Part.EMBEDDING),
        (lambda t: [product("w", 8 * t, 8 * t, inner=True)], (8, 8), (16, 16), Part.HIDDEN),
        (lambda t: [product("w", 8 * t, 4)], (8, 4), (16, 4), Part.READOUT),
        (lambda t: [product("w", 8 * t, 4, inner=True)], (8, 4), (16, 4), Part.INNER_READOUT),
        (lambda t: [product("w", 5, 4)], (5, 4), (5, 4), Part.UNSCALED),
        (lambda t: [lookup("w", 8 * t)], (7, 8), (7, 16), Part.EMBEDDING),
        (lambda t: [vector("w", 8 * t)], (8,), (16,), Part.EMBEDDING),
        (lambda t: [vector("w", 3)], (3,), (3,), Part.UNSCALED),
        (lambda t: [lookup("w", 8 * t), product("w", 8 * t, 7, axes=Axes(inputs=(1,), outputs=(0,)))], (7, 8), (7, 16),
         Part.TIED),
        (lambda t: [product("w", 8 * t, 4), product("w", 8 * t, 4, inner=True)], (8, 4), (16, 4), Part.INNER_READOUT),
        (lambda t: [product("w", 8 * t, 8 * t), product("w", 8 * t, 8 * t, inner=True)], (8, 8), (16, 16), Part.HIDDEN),
    ],
)  # fmt: skip
def test_the_part_of_a_parameter_is_what_grows(uses, base: tuple[int, ...], here: tuple[int, ...], part: Part):
    assert one(uses, base, here, scaled_logits=True).part is part


def test_growth_is_that_of_the_terms_and_results_of_a_use():
    """Its outputs grow as the square of the width, and half of them are used."""
    parameter = one(lambda t: [product("w", 8 * t, 15 * t * t)], (8, 30), (16, 120))
    assert (parameter.grows_in, parameter.grows_out, parameter.fan_in) == (2, 4, 16)


def test_growth_need_not_be_a_whole_number():
    parameter = one(lambda t: [product("w", 4 + 2 * t, 8 * t, inner=True)], (6, 8), (8, 16))
    assert parameter.grows_in == Fraction(4, 3)


def test_the_number_of_uses_may_differ_between_widths():
    """A loop over heads uses a kernel more often in the wider model."""
    parameter = one(lambda t: [product("w", 8 * t, 8 * t, inner=True)] * t, (8, 8), (16, 16))
    assert (parameter.part, parameter.grows_in) == (Part.HIDDEN, 2)


def test_a_model_may_be_linear_in_a_parameter_or_not():
    use = product("w", 8, 8, inner=True)

    def uses(times: int) -> list[Use]:
        return [replace(use, fan_in=8 * times, fan_out=8 * times, linear=linear) for linear in (True, False)]

    assert not one(uses, (8, 8), (16, 16)).linear
    assert not one(
        lambda t: [product("w", 8 * t, 8 * t)], (8, 8), (16, 16), rules={"w": Rule(linear=False)}
    ).linear  # fmt: skip


def test_without_a_trace_shapes_say_what_they_can():
    base = {"in/bias": (8,), "stack": (3, 8, 8), "out": (8, 3), "scale": ()}
    here = {"in/bias": (16,), "stack": (3, 16, 16), "out": (16, 3), "scale": ()}
    parameters = find_parameters(
        Traced(shapes=here, unseen={}), Traced(shapes=base, unseen={}), rules={"out": Rule(axes=MATRIX)}
    )
    parts = {parameter.path: parameter.part for parameter in parameters}
    assert parts == {
        "in/bias": Part.EMBEDDING, "stack": Part.HIDDEN, "out": Part.READOUT, "scale": Part.UNSCALED
    }  # fmt: skip
    assert parameters[1].axes == Axes(inputs=(1,), outputs=(2,), stack=(0,))


def test_rules_take_precedence_over_the_trace():
    def uses(times: int) -> list[Use]:
        return [product("w", 8 * times, 4, inner=True)]

    assert one(uses, (8, 4), (16, 4), rules={"w": Rule(role=Role.READOUT)}).part is Part.READOUT
    assert one(uses, (8, 4), (16, 4), rules={"w": Rule(role="unscaled")}).part is Part.UNSCALED
    axes = Axes(inputs=(0, 1))
    assert one(uses, (8, 4), (16, 4), rules={"w": Rule(axes=axes)}).fan_in == 64


def test_the_first_rule_that_matches_applies():
    def uses(times: int) -> list[Use]:
        return [product("w", 8 * times, 4, inner=True)]

    rules = {"w*": Rule(role=Role.READOUT), "*": Rule(role=Role.HIDDEN)}
    assert one(uses, (8, 4), (16, 4), rules=rules).part is Part.READOUT
    with pytest.raises(ValueError, match="rule 'w' applies to nothing, an earlier rule matches all of its leaves"):
        one(uses, (8, 4), (16, 4), rules={"*": Rule(role=Role.READOUT), "w": Rule(role=Role.HIDDEN)})


TIED = lambda times: [  # noqa: E731
    lookup("embed", 8 * times),
    vector("norm", 8 * times),
    vector("final", 8 * times),
    product("embed", 8 * times, 7, axes=Axes(inputs=(1,), outputs=(0,)), gains=("final",)),
]
SHAPES = [{"embed": (7, n), "norm": (n,), "final": (n,)} for n in (8, 16)]


def test_the_vector_in_front_of_a_tied_readout_takes_the_factor_of_its_logits():
    gains = {path: parameter.gain_of for path, parameter in found(*SHAPES, TIED).items()}
    assert gains == {"embed": None, "norm": None, "final": "embed"}


def test_a_model_that_scales_its_logits_needs_no_vector_for_that():
    gains = {parameter.gain_of for parameter in found(*SHAPES, TIED, scaled_logits=True).values()}
    assert gains == {None}


def test_a_vector_that_is_used_elsewhere_too_cannot_take_the_factor():
    with pytest.raises(ValueError, match="'embed' is embedding and readout at once"):
        found(*SHAPES, lambda times: [*TIED(times), vector("final", 8 * times)])
