"""Attention as 1/d, folded into the parameters that make queries, trains as if the model had it."""

import math
from functools import partial

import pytest
import torch
import transformers
from torch import nn

import widthwise as ww
from tests.torch.models import CONTEXT, GPT, VOCABULARY, GrowingHeads

TOKENS = torch.randint(VOCABULARY, (8, CONTEXT), generator=torch.Generator().manual_seed(0))
BASE, WIDE = 32, 96
QUERIES = [f"attention.{i}.q_proj.{name}" for i in range(2) for name in ("weight", "bias")]
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "eps": 1e-5, "weight_decay": 0.1}),
    "sgd": (partial(torch.optim.SGD, momentum=0.9), {"lr": 0.3, "weight_decay": 0.01}),
    "adafactor": (ww.torch.Adafactor, {"lr": 1e-2}),
}


def losses(build, optimizer: str, **options) -> list[float]:
    """Train in float64 for 20 steps."""
    plan = ww.torch.plan(build, width=WIDE, base_width=BASE, example=TOKENS, optimizer=optimizer, **options)
    torch.manual_seed(1)
    model = plan.init_(build(WIDE).double())
    kind, settings = OPTIMIZERS[optimizer]
    steps = kind(plan.groups(model, **settings))
    found = []
    for _ in range(20):
        steps.zero_grad()
        loss = nn.functional.cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.roll(-1, 1).flatten())
        loss.backward()
        steps.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("fused_kernel", [True, False], ids=["sdpa", "matmul"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_folding_trains_as_the_explicit_factor_does(optimizer: str, fused_kernel: bool):
    """With a negative control: as 1/√d, training goes elsewhere."""
    build = partial(GrowingHeads, fused_kernel=fused_kernel)
    folded = losses(build, optimizer, attention="1/d")
    assert folded == pytest.approx(losses(partial(build, explicit=True), optimizer), rel=1e-9)
    assert folded != pytest.approx(losses(build, optimizer), rel=1e-4)
    assert folded[-1] < 0.8 * folded[0]


def test_queries_alone_take_the_factor_and_notes_say_so():
    options = {"width": 128, "base_width": BASE, "example": TOKENS}
    plain, folded = (ww.torch.plan(GrowingHeads, **options, attention=x) for x in (None, "1/d"))
    changed = [path for path, factors in folded.factors.items() if factors != plain.factors[path]]
    assert changed == QUERIES
    for path in QUERIES:
        before, after = plain.factors[path], folded.factors[path]
        assert (after.init, after.learning_rate, after.epsilon, after.multiplier) == (
            before.init / 2,
            before.learning_rate / 2,
            before.epsilon * 2,
            1,
        )
    assert plain.explain().notes[0].endswith("pass attention='1/d'")
    where, number = folded.explain().notes
    assert where == "attention falls as 1/d; the factor is in attention.*.q_proj.weight and attention.*.q_proj.bias"
    assert number.endswith("0.25 at width 32, 0.125 here. It is taken for the 1/√d of attention, as which it may stay")
    at_base = folded.at(BASE)
    assert at_base.factors == plain.at(BASE).factors
    assert folded.at(256).factors[QUERIES[0]].init == pytest.approx(8**-0.5 * 8**-0.5)


def test_a_model_that_does_not_divide_by_root_d_is_noted():
    class Fixed(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, width), nn.Linear(width, 9)
            self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, tokens):
            x = self.embed(tokens) * self.embed.embedding_dim**0.5
            scores = self.q(x) @ self.k(x).mT / 4
            return self.head(scores.softmax(-1) @ x)

    plan = ww.torch.plan(Fixed, width=64, base_width=16, example=TOKENS % 9, attention="1/d")
    _, missing, other = plan.explain().notes
    assert missing.startswith("no number in the model falls as 1/√d")
    assert "mul by 4 at width 16, 8 here. Plans assume fixed numbers" in other


def hugging_face(kind: str, width: int) -> nn.Module:
    """Models with two heads, or four, whose size grows."""
    same = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_hidden_layers": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    grouped = {**same, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 3 * width}
    match kind:
        case "llama":
            config = transformers.LlamaConfig(**grouped, head_dim=width // 4)
        case "llama-eager":
            config = transformers.LlamaConfig(**grouped, head_dim=width // 4, attn_implementation="eager")
        case "qwen3":
            config = transformers.Qwen3Config(**grouped, head_dim=width // 4)
        case "bert":
            config = transformers.BertConfig(
                **{**same, "num_attention_heads": 2}, intermediate_size=4 * width, max_position_embeddings=CONTEXT
            )
            return transformers.BertForMaskedLM(config)
        case _:
            config = transformers.GPT2Config(
                vocab_size=VOCABULARY, n_embd=width, n_head=2, n_layer=2, n_positions=CONTEXT
            )
    return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("kind", "queries"),
    [
        ("llama", ["model.layers.*.self_attn.q_proj.weight"]),
        ("llama-eager", ["model.layers.*.self_attn.q_proj.weight"]),
        ("qwen3", ["model.layers.*.self_attn.q_norm.weight"]),  # whatever normalizes them, sets their size
        ("bert", [f"bert.encoder.layer.*.attention.self.query.{name}" for name in ("weight", "bias")]),
    ],
)
def test_queries_are_found_in_models_of_hugging_face(kind: str, queries: list[str]):
    build = partial(hugging_face, kind)
    plan = ww.torch.plan(build, width=128, base_width=64, example=TOKENS, attention="1/d")
    assert plan.explain().notes[0] == f"attention falls as 1/d; the factor is in {' and '.join(queries)}"


@pytest.mark.parametrize("kind", ["gpt2", "multi-head"])
def test_fused_queries_and_keys_are_refused_by_name(kind: str):
    def build(width: int) -> nn.Module:
        if kind == "gpt2":
            return hugging_face("gpt2", width)
        layer = nn.TransformerEncoderLayer(width, 2, 4 * width, batch_first=True)
        return nn.Sequential(nn.Embedding(VOCABULARY, width), layer, nn.Linear(width, VOCABULARY))

    name = {"gpt2": r"transformer\.h\.0\.attn\.c_attn\.bias", "multi-head": r"1\.self_attn\.in_proj_bias"}[kind]
    with pytest.raises(ValueError, match=rf"since '{name}' makes queries, and .* multiply queries by \(head size"):
        ww.torch.plan(build, width=128, base_width=64, example=TOKENS, attention="1/d")
    ww.torch.plan(build, width=128, base_width=64, example=TOKENS)


class Reused(nn.Module):
    """Attention whose queries and keys may be used for something else."""

    def __init__(self, width: int, reuse) -> None:
        super().__init__()
        self.embed, self.head, self.reuse = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY), reuse
        self.q, self.k = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k = self.q(x), self.k(x)
        y = (q @ k.mT / math.sqrt(x.shape[-1])).softmax(-1) @ x
        reused = self.reuse(q, k)
        return (self.head(y), reused) if self.reuse is first else self.head(y + reused)


def first(q, k):
    return q


@pytest.mark.parametrize(
    "reuse", [first, lambda q, k: q, lambda q, k: q.tanh(), lambda q, k: 1 / q, lambda q, k: (q * q).detach()]
)
def test_keys_take_the_factor_where_queries_are_used_for_something_else(reuse):
    build = partial(Reused, reuse=reuse)
    plan = ww.torch.plan(build, width=64, base_width=16, example=TOKENS, attention="1/d")
    assert plan.explain().notes[0].endswith("the factor is in k.weight")
    both = partial(Reused, reuse=lambda q, k: q + k)
    with pytest.raises(ValueError, match=r"'q\.weight' makes queries, and .* something else too"):
        ww.torch.plan(both, width=64, base_width=16, example=TOKENS, attention="1/d")


def test_heads_that_do_not_grow_change_nothing_and_nonsense_is_refused():
    options = {"width": 128, "base_width": BASE, "example": TOKENS}
    assert ww.torch.plan(GPT, **options, attention="1/d").factors == ww.torch.plan(GPT, **options).factors
    with pytest.raises(ValueError, match=r"attention is '1/√d': expected '1/d'"):
        ww.torch.plan(GPT, **options, attention="1/√d")
    with pytest.raises(ValueError, match="needs the forward pass at both widths"):
        ww.torch.plan(
            lambda width: nn.Sequential(nn.Linear(width, width), nn.Linear(width, width)),
            width=128,
            base_width=BASE,
            headless=True,
            attention="1/d",
        )
