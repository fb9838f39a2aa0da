"""Roles come from one traced forward pass, of models as people write them, and nothing large is allocated."""

from fnmatch import fnmatchcase

import pytest
import torch
from torch import nn
from transformers.integrations import moe

import widthwise as ww
from tests.torch.cases import CASE, TOKENS, Case
from tests.torch.models import GPT, HEAD_DIM, VOCABULARY


@pytest.fixture(params=CASE)
def case(request: pytest.FixtureRequest) -> Case:
    return CASE[request.param]


def test_every_parameter_has_the_role_that_theory_gives_it(case: Case):
    plan = ww.torch.plan(case.build, width=128, base_width=64, example=case.example)
    names = [name for name, _ in case.build(64).named_parameters()]
    assert [parameter.path for parameter in plan.parameters] == names
    for parameter in plan.parameters:
        expected = next(role for pattern, role in case.roles.items() if fnmatchcase(parameter.path, pattern))
        assert parameter.part == expected, parameter
    for pattern, fan_in in case.inputs.items():
        found = {p.fan_in for p in plan.parameters if fnmatchcase(p.path, pattern)}
        assert found == {fan_in}, pattern


def test_experts_are_seen_in_the_product_that_hugging_face_has_for_older_versions(monkeypatch: pytest.MonkeyPatch):
    case = CASE["mixtral"]
    expected = ww.torch.plan(case.build, width=128, base_width=64, example=case.example)
    calls = []
    monkeypatch.setattr(moe, "_can_use_grouped_mm", lambda *_: calls.append(1) or False)
    plan = ww.torch.plan(case.build, width=128, base_width=64, example=case.example)
    assert calls
    assert plan.parameters == expected.parameters


def test_a_plan_for_a_model_larger_than_memory_takes_no_memory():
    """At this width every block has 1.6e11 parameters."""
    plan = ww.torch.plan(GPT, width=1 << 16, base_width=64, example=TOKENS)
    assert plan.factors["transformer.h.0.attn.c_attn.weight"].learning_rate == 2**-10


def test_the_factor_of_tied_logits_is_folded_into_the_final_norm_alone():
    plan = ww.torch.plan(lambda width: GPT(width, bias=True), width=256, base_width=64, example=TOKENS)
    gains = [parameter.path for parameter in plan.parameters if parameter.gain_of is not None]
    assert gains == ["transformer.ln_f.weight", "transformer.ln_f.bias"]
    assert "the factor of its logits is in transformer.ln_f.weight and transformer.ln_f.bias" in str(plan)


def test_numbers_that_change_with_width_are_noted():
    class Growing(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.embed, self.mix, self.head = nn.Embedding(9, width), nn.Linear(width, width), nn.Linear(width, 9)

        def forward(self, tokens):
            x = self.embed(tokens) * self.embed.embedding_dim**0.5
            q = self.mix(x)
            return self.head(nn.functional.scaled_dot_product_attention(q, q, x))

    notes = ww.torch.plan(Growing, width=64, base_width=16, example=TOKENS % 9).explain().notes
    assert len(notes) == 2
    assert "mul by 4 at width 16, 8 here" in notes[0]
    assert "test_roles.py" in notes[0]
    assert "scaled_dot_product_attention by 0.25 at width 16, 0.125 here" in notes[1]


def test_layers_print_as_one_row():
    table = ww.torch.plan(GPT, width=128, base_width=64, example=TOKENS).explain(learning_rate=0.01)
    row = next(row for row in table.rows if row.path == "transformer.h.*.attn.c_attn.weight")
    assert (row.count, row.learning_rate) == (2, 0.005)


def test_randomness_and_the_user_s_tensors_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ww.torch.plan(GPT, width=128, base_width=64, example=TOKENS)
    assert torch.equal(torch.rand(3), expected)


def test_rules_take_precedence_and_errors_name_the_parameter():
    def build(width: int):
        return nn.Sequential(nn.Embedding(VOCABULARY, width), nn.Linear(width, 4), nn.Linear(4, VOCABULARY))

    plan = ww.torch.plan(build, width=64, base_width=16, example=TOKENS, headless=True)
    assert [p.part for p in plan.parameters if p.path == "1.weight"] == ["inner readout"]
    rules = {"1.weight": ww.Rule(role=ww.Role.READOUT)}
    plan = ww.torch.plan(build, width=64, base_width=16, example=TOKENS, rules=rules)
    assert [p.part for p in plan.parameters if p.path == "1.weight"] == ["readout"]
    with pytest.raises(ValueError, match=r"rule '9.weight' applies to nothing"):
        ww.torch.plan(build, width=64, base_width=16, example=TOKENS, rules={"9.weight": ww.Rule()})
    with pytest.raises(ValueError, match=r"'1.weight' has inputs that grow and a fixed number of outputs"):
        ww.torch.plan(build, width=64, base_width=16, example=TOKENS, headless=True, optimizer="sgd")
    with pytest.raises(ValueError, match=r"build\(16\) returned int"):
        ww.torch.plan(lambda width: width, width=64, base_width=16, example=TOKENS)
    with pytest.raises(ValueError, match="no parameter changes with the width"):
        ww.torch.plan(lambda width: nn.Linear(3, 4), width=64, base_width=16, example=torch.ones(2, 3))
    with pytest.raises(ValueError, match="optimizer is 'adamm'"):
        ww.torch.plan(build, width=64, base_width=16, example=TOKENS, optimizer="adamm")
    with pytest.raises(ValueError, match=r"'0.weight' of shape .* the forward pass was not traced"):
        ww.torch.plan(build, width=64, base_width=16)


def test_a_model_may_read_numbers_while_it_is_built():
    """Rates of dropped paths from a tensor, and an initializer that draws again until no number is too large."""

    def build(width: int):
        rates = [rate.item() for rate in torch.linspace(0, 0.1, 2)]
        layers = nn.Embedding(VOCABULARY, width), nn.Linear(width, width), nn.Dropout(rates[1]), nn.Linear(width, 9)
        nn.init.trunc_normal_(layers[1].weight, std=0.02)
        return nn.Sequential(*layers)

    plan = ww.torch.plan(build, width=4096, base_width=64, example=TOKENS)
    assert [p.part for p in plan.parameters if p.path.endswith("weight")] == ["embedding", "hidden", "readout"]


def test_a_token_that_is_not_used_needs_no_rule_but_an_untraced_head_does():
    class Masked(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.mask = nn.Parameter(torch.zeros(1, width))
            self.embed, self.head = nn.Linear(3, width), nn.Linear(width, 1)

        def forward(self, x):
            return self.head(torch.relu(self.embed(x)))

    plan = ww.torch.plan(Masked, width=64, base_width=16, example=torch.ones(2, 3))
    assert [p.part for p in plan.parameters if p.path == "mask"] == ["embedding"]
    with pytest.raises(ValueError, match=r"'mask' of shape .* was not traced"):
        ww.torch.plan(Masked, width=64, base_width=16)


@pytest.mark.parametrize(
    "change",
    [lambda model: model.bfloat16(), lambda model: model.to("cpu", torch.float64), lambda model: model.eval()],
    ids=["bfloat16", "to", "eval"],
)
def test_a_model_may_be_converted_while_it_is_built(change):
    plan = ww.torch.plan(lambda width: change(GPT(width)), width=512, base_width=64, example=TOKENS)
    assert plan.factors == ww.torch.plan(GPT, width=512, base_width=64, example=TOKENS).factors


def test_a_compiled_model_can_be_planned():
    plan = ww.torch.plan(lambda w: torch.compile(GPT(w), backend="eager"), width=512, base_width=64, example=TOKENS)
    torch.compile(GPT(64), backend="eager", fullgraph=True)(TOKENS)  # raises if planning has kept it from compiling
    assert plan.factors == ww.torch.plan(GPT, width=512, base_width=64, example=TOKENS).factors


def test_learned_positions_that_a_layer_with_a_bias_acts_on_are_activations():
    """As in DeBERTa: relative positions make queries, which meet the keys of every head."""

    class Disentangled(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.heads = width // HEAD_DIM
            self.embed, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(5, width)
            self.key, self.position_query = nn.Linear(width, width), nn.Linear(width, width)
            self.out, self.head = nn.Linear(width, width), nn.Linear(width, VOCABULARY)

        def forward(self, tokens):
            x = self.embed(tokens)
            keys = self.key(x).unflatten(-1, (self.heads, HEAD_DIM)).transpose(1, 2)
            queries = self.position_query(self.positions.weight[None])
            queries = queries.unflatten(-1, (self.heads, HEAD_DIM)).transpose(1, 2)
            scores = torch.matmul(queries, keys.transpose(-1, -2)).softmax(-1)
            return self.head(self.out((scores @ keys).transpose(1, 2).flatten(2)))

    plan = ww.torch.plan(Disentangled, width=128, base_width=32, example=TOKENS)
    parts = {parameter.path: parameter.part for parameter in plan.parameters}
    assert (parts["positions.weight"], parts["position_query.weight"]) == ("embedding", "hidden")
    assert parts["position_query.bias"] == "embedding"


@pytest.mark.parametrize("width", [64, 1 << 16])
def test_numbers_that_come_from_examples_are_no_numbers_of_the_model(width: int):
    """A loss in the forward pass is a number that differs at every width. It neither is noted nor hides one that is."""

    class WithLoss(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.embed, self.mix, self.head = nn.Embedding(9, width), nn.Linear(width, 4), nn.Linear(4, 9)

        def forward(self, tokens):
            x = torch.relu(self.mix(self.embed(tokens) * self.embed.embedding_dim**0.5))
            loss = nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())
            return loss + 0.1 * x.square().mean()

    notes = ww.torch.plan(WithLoss, width=width, base_width=16, example=TOKENS % 9).explain().notes
    assert len(notes) == 1
    assert f"mul by 4 at width 16, {width**0.5:.0f} here" in notes[0]


def test_what_cannot_be_planned_is_an_error_that_says_what_to_do():
    def heads(width: int):
        return nn.Sequential(nn.Embedding(VOCABULARY, width), nn.TransformerEncoderLayer(width, 4), nn.Linear(width, 9))

    with pytest.raises(
        ValueError, match=r"build\(66\) failed \(AssertionError: embed_dim .* a width that the model can"
    ):
        ww.torch.plan(heads, width=66, base_width=16, example=TOKENS)
    with pytest.raises(ValueError, match=r"build is a model: expected a function"):
        ww.torch.plan(heads(16), width=64, base_width=16, example=TOKENS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RuntimeError, match="indices") as caught:
        ww.torch.plan(heads, width=64, base_width=16, example=TOKENS.float())
    assert caught.value.__notes__ == ["The model was called with the example, to see how it uses its parameters"]


class Blocks(nn.Module):
    """A weight with as many blocks as the width has, and codes that inputs are compared with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, 9)
        self.blocks, self.codes = nn.Parameter(torch.randn(width // 4, 4, 4)), nn.Embedding(5, width)

    def forward(self, tokens):
        x = torch.einsum("btgi,gij->btgj", self.embed(tokens).unflatten(-1, (-1, 4)), self.blocks).flatten(2)
        nearest = (self.codes.weight.square().sum(1) - 2 * x @ self.codes.weight.T).argmin(-1)
        return self.head(x + self.codes(nearest))


def test_the_rules_that_errors_propose_are_right():
    rules = {"blocks": ww.Rule(axes=ww.Axes(inputs=(1,), outputs=(0, 2)))}
    with pytest.raises(
        ValueError, match=r"'blocks' has .*\{'blocks': Rule\(axes=Axes\(inputs=\(1,\), outputs=\(0, 2\)\)\)"
    ):
        ww.torch.plan(Blocks, width=64, base_width=16, example=TOKENS)
    with pytest.raises(ValueError, match=r"\{'codes.weight': Rule\(role=Role.EMBEDDING\)\}"):
        ww.torch.plan(Blocks, width=64, base_width=16, example=TOKENS, rules=rules)
    rules["codes.weight"] = ww.Rule(role=ww.Role.EMBEDDING)
    plan = ww.torch.plan(Blocks, width=64, base_width=16, example=TOKENS, rules=rules)
    assert {p.path: p.part for p in plan.parameters if p.path in rules} == dict.fromkeys(rules, "embedding")


@pytest.mark.parametrize("scaled", [False, True])
def test_sums_of_products_of_activations_that_grow_are_noted(scaled: bool):
    """As in a recommender, where users and items meet in a dot product: no parameter is summed over, but sizes grow."""

    class Recommender(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.factor = 16 / width if scaled else 1.0
            self.users, self.items, self.top = nn.Embedding(9, width), nn.Linear(3, width), nn.Linear(width, 1)

        def forward(self, user, item):
            u, i = self.users(user), torch.relu(self.items(item))
            return (u[:, None] @ i[..., None])[:, 0] * self.factor + self.top(u)

    example = (torch.arange(4), torch.ones(4, 3))
    notes = ww.torch.plan(Recommender, width=64, base_width=16, example=example).explain().notes
    assert len(notes) == 1
    assert ("summed over 16 terms at width 16, 64 here" in notes[0]) == (not scaled)
    assert not ww.torch.plan(Recommender, width=16, base_width=16, example=example).sums


def test_a_model_may_differentiate_itself():
    """A network for a differential equation: derivatives use every weight the other way round."""

    class Solution(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
            )

        def forward(self, x):
            x = x.clone().requires_grad_()
            u = self.net(x)
            (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
            (curve,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
            return slope[:, 1] + u[:, 0] * slope[:, 0] - 0.01 * curve[:, 0]

    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    plan = ww.torch.plan(Solution, width=512, base_width=16, example=x)
    parts = {parameter.path: parameter.part for parameter in plan.parameters}
    assert [parts[f"net.{i}.weight"] for i in (0, 2, 4)] == ["embedding", "hidden", "readout"]
    result = plan.check(lambda model, x: (model(x) - 1).square().mean(), x, widths=(16, 32), steps=1, show=False)
    assert [layer.layer for layer in result.layers] == ["net.0.weight", "net.2.weight", "net.4.weight"]


@pytest.mark.parametrize("spectral", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_a_weight_with_spectral_norm_has_the_role_of_its_product(spectral):
    """The largest singular value is a product with the weight too, but one of the weight alone."""

    def build(width: int):
        layers = nn.Embedding(VOCABULARY, width), spectral(nn.Linear(width, width)), spectral(nn.Linear(width, 9))
        return nn.Sequential(*layers)

    plan = ww.torch.plan(build, width=512, base_width=16, example=TOKENS)
    weights = [parameter for parameter in plan.parameters if len(parameter.shape) == 2]
    assert [parameter.part for parameter in weights] == ["embedding", "hidden", "readout"]
    (note,) = plan.explain().notes
    assert note.startswith(f"{weights[2].path} is changed before it acts")
    assert "(fan-in / fan-in at the base width)^-1/2" in note
    standard = ww.torch.plan(build, width=512, base_width=16, example=TOKENS, parameterization="standard")
    assert not standard.explain().notes
