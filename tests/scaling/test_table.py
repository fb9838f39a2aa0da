"""The table of a plan shows layers that are alike in one row, as factors or as numbers."""

import json

import jax
import jax.numpy as jnp
import pytest

import widthwise as ww
from widthwise.scaling.table import _LAYER


def build(width, key):
    names = {"in": (5, width), "out": (width, 3), "bias": (3,)}
    names |= {f"blocks/{layer}": (width, width) for layer in range(3)}
    params = {name: jax.random.normal(key, shape) for name, shape in names.items()}
    blocks = [params.pop(f"blocks/{layer}") for layer in range(3)]
    return params | {"blocks": blocks}, apply


def apply(params, x):
    x = x @ params["in"]
    for block in params["blocks"]:
        x = jnp.tanh(x @ block)
    return x @ params["out"] + params["bias"]


@pytest.fixture(scope="module")
def plan() -> ww.Plan:
    return ww.plan(build, width=16, base_width=8, example=jnp.ones((2, 5)))


def test_layers_that_are_alike_are_one_row(plan: ww.Plan):
    assert str(plan) == "\n".join(
        [
            "path      layers  shape  role       fan-in  init ×  learning rate ×  epsilon ×",
            "──────────────────────────────────────────────────────────────────────────────",
            "bias           1  3      unscaled        –       1                1          1",
            "blocks/*       3  16×16  hidden         16  0.7071              0.5        0.5",
            "in             1  5×16   embedding       5       1                1        0.5",
            "out            1  16×3   readout        16     0.5              0.5          1",
        ]
    )


def test_numbers_instead_of_factors(plan: ww.Plan):
    table = plan.explain(learning_rate=3e-3, epsilon=1e-8)
    (hidden,) = (row for row in table.rows if row.role == "hidden")
    assert (hidden.learning_rate, hidden.epsilon) == (1.5e-3, 5e-9)
    assert str(table).splitlines()[0].endswith("init ×  learning rate  epsilon")


def test_multipliers_have_a_column_of_their_own():
    stored = ww.plan(build, width=16, base_width=8, example=jnp.ones((2, 5)), multipliers=True, parameterization="ntk")
    assert "multiplier ×" in str(stored)
    (hidden,) = (row for row in stored.explain().rows if row.role == "hidden")
    assert (hidden.init, hidden.multiplier) == pytest.approx((1, 0.5**0.5))


def test_a_table_can_be_written_as_json(plan: ww.Plan):
    found = json.loads(json.dumps(plan.explain().to_json()))
    assert found["parameters"][1] == {
        "path": "blocks/*",
        "count": 3,
        "shape": [16, 16],
        "role": "hidden",
        "optimizer": "adam",
        "fan_in": 16,
        "init": 0.5**0.5,
        "multiplier": 1,
        "learning_rate": 0.5,
        "epsilon": 0.5,
        "decay": 1,
    }
    assert found["notes"] == []


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("blocks/3/mlp/kernel", "blocks/*/mlp/kernel"),
        ("Block_12/Dense_0/kernel", "Block_*/Dense_*/kernel"),
        ("layers.3.attention.2.weight", "layers.*.attention.*.weight"),
        ("conv1/weight", "conv1/weight"),
        ("norm", "norm"),
    ],
)
def test_the_numbers_of_layers_are_left_out(path: str, row: str):
    assert _LAYER.sub("*", path) == row


def test_tied_embeddings_are_noted():
    def tied(width, key):
        params = {"embed": jax.random.normal(key, (7, width)), "scale": jnp.ones(width)}
        return params, lambda params, tokens: (params["scale"] * params["embed"][tokens]) @ params["embed"].T

    plan = ww.plan(tied, width=16, base_width=8, example=jnp.zeros((2, 3), int))
    assert str(plan).splitlines()[-1] == "note: embed is the readout too; the factor of its logits is in scale"
