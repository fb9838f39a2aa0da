"""Plans over depth in PyTorch: which parameters end a branch, and training as with multipliers in the model."""

import math
from functools import partial

import pytest
import torch
import transformers
from torch import nn

import widthwise as ww
from tests.torch.models import CONTEXT, GPT, VOCABULARY, Experts
from widthwise.scaling import Factors
from widthwise.scaling.table import in_every_layer

TOKENS = torch.randint(VOCABULARY, (8, CONTEXT), generator=torch.Generator().manual_seed(0))
WIDTH, BASE_DEPTH = 32, 2


def nanogpt(width: int, depth: int) -> nn.Module:
    return GPT(width, tied=False, bias=True, layers=depth)


def gpt2(width: int, depth: int) -> nn.Module:
    sizes = {"n_embd": width, "n_layer": depth, "n_head": width // 16, "vocab_size": VOCABULARY, "n_positions": CONTEXT}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


LLAMA = {"vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "num_key_value_heads": 2}


def llama(width: int, depth: int) -> nn.Module:
    sizes = {"hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": depth}
    config = transformers.LlamaConfig(**LLAMA, **sizes, num_attention_heads=width // 16)
    return transformers.LlamaForCausalLM(config)


class Sequence(nn.Module):
    """Blocks between an embedding and a readout."""

    def __init__(self, width: int, depth: int, block) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
        self.blocks = nn.ModuleList(block(width) for _ in range(depth))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class RoutedBlock(Experts):
    """A block that sends tokens to experts, and adds what they return."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.embed, self.head = nn.Identity(), nn.Identity()


class Residual(nn.Module):
    """A residual block with the names of a ResNet; `finish` is applied behind the addition, `ends` to the branch."""

    def __init__(self, width: int, *, finish=torch.relu, ends=None, shared: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Linear(width, width), shared or nn.Linear(width, width, bias=False)
        self.bn2 = nn.LayerNorm(width) if ends is None else ends
        self.finish = finish

    def forward(self, x):
        return self.finish(x + self.bn2(self.conv2(torch.relu(self.conv1(x)))))


def ends_of(plan) -> set[str]:
    return {in_every_layer(p.path) for p in plan.parameters if p.ends_branch}


def outside(plan) -> set[str]:
    return {in_every_layer(p.path) for p in plan.parameters if p.deepens == 1}


def blocks(block):
    return lambda width, depth: Sequence(width, depth, block)


GOLDEN = {
    "nanogpt": (
        nanogpt,
        {f"transformer.h.*.{part}.c_proj.{name}" for part in ("attn", "mlp") for name in ("weight", "bias")},
        {"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"}
        | {"lm_head.weight"},
    ),
    "gpt2": (
        gpt2,
        {f"transformer.h.*.{part}.c_proj.{name}" for part in ("attn", "mlp") for name in ("weight", "bias")},
        {"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"},
    ),
    "llama": (
        llama,
        {"model.layers.*.self_attn.o_proj.weight", "model.layers.*.mlp.down_proj.weight"},
        {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"},
    ),
    "experts": (blocks(RoutedBlock), {"blocks.*.w_out"}, {"embed.weight", "head.weight", "head.bias"}),
    "resnet": (
        blocks(Residual),
        {"blocks.*.bn2.weight", "blocks.*.bn2.bias"},
        {"embed.weight"} | {"head.weight"} | {"head.bias"},
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_what_is_added_to_the_stream_ends_a_branch(name: str):
    build, ends, others = GOLDEN[name]
    plan = ww.torch.plan(build, width=64, base_width=WIDTH, depth=3, base_depth=BASE_DEPTH, example=TOKENS)
    assert ends_of(plan) == ends
    assert outside(plan) == others


def test_at_the_base_point_the_plan_is_the_plain_model():
    sizes = {"width": WIDTH, "depth": BASE_DEPTH, "batch": 32, "tokens": 1e6}
    base = {f"base_{name}": value for name, value in sizes.items()}
    plan = ww.torch.plan(nanogpt, **sizes, **base, batch_rule="sde", token_rule="horizon", example=TOKENS)
    assert set(plan.factors.values()) == {Factors()}
    torch.manual_seed(0)
    model = nanogpt(WIDTH, BASE_DEPTH)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    after = plan.init_(model).state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


class Explicit(nn.Module):
    """The model with every branch multiplied where it is added."""

    def __init__(self, model: GPT, multiplier: float) -> None:
        super().__init__()
        self.model = model
        for block in model.transformer["h"].children():
            for last in (block.attn.c_proj, block.mlp["c_proj"]):
                last.register_forward_hook(lambda module, inputs, output: output * multiplier)

    def forward(self, tokens):
        return self.model(tokens)


OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "eps": 1e-4, "weight_decay": 0.1}, 0),
    "sgd": (partial(torch.optim.SGD, momentum=0.9), {"lr": 0.1, "weight_decay": 0.01}, 1),
}


def losses(model, optimizer) -> list[float]:
    found = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(TOKENS)[0].flatten(0, 1), TOKENS.roll(-1, 1).flatten())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(("rule", "alpha"), [("completep", 1.0), ("sqrt", 0.5)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_folding_trains_as_explicit_multipliers_do(optimizer: str, rule: str, alpha: float):
    """In float64, with a negative control: without a rule, training goes elsewhere."""
    make, settings, gradient_power = OPTIMIZERS[optimizer]
    depth, m = 4, 2.0
    options = {"width": WIDTH, "base_width": WIDTH, "base_depth": BASE_DEPTH, "example": TOKENS, "optimizer": optimizer}
    plan = ww.torch.plan(nanogpt, depth=depth, **options, depth_rule=rule)

    def started(plan) -> nn.Module:
        torch.manual_seed(1)
        return plan.init_(nanogpt(WIDTH, depth).double())

    folded, explicit = started(plan), started(plan)
    groups = []
    with torch.no_grad():
        for name, parameter in explicit.named_parameters():
            inside, vector = ".h." in name, parameter.ndim == 1
            if ".c_proj." in name:
                parameter.mul_(m**alpha)
            rate = m ** (alpha - 1 + gradient_power * alpha) if inside else 1.0
            group = {"params": [parameter], "lr": settings["lr"] * rate}
            group["weight_decay"] = 0.0 if vector else settings["weight_decay"] / rate
            if "eps" in settings:
                group["eps"] = settings["eps"] * (m**-alpha if inside else 1.0)
            groups.append(group)
    expected = losses(Explicit(explicit, m**-alpha), make(groups))
    found = losses(folded, make(plan.groups(folded, **settings)))
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[-1] < 0.98 * found[0]
    if rule == "sqrt":
        return
    control = ww.torch.plan(nanogpt, depth=depth, **options, depth_rule="constant")
    model = started(control)
    assert losses(model, make(control.groups(model, **settings))) != pytest.approx(expected, rel=1e-4)


def test_initial_sizes_are_those_of_the_base_depth_however_the_model_initializes_deeper_ones():
    """Like GPT-2, which draws c_proj smaller the deeper it is."""

    def build(width: int, depth: int) -> nn.Module:
        model = nanogpt(width, depth)
        for name, parameter in model.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * depth))
        return model

    plan = ww.torch.plan(build, width=WIDTH, base_width=WIDTH, depth=8, base_depth=BASE_DEPTH, example=TOKENS)
    model = plan.init_(build(WIDTH, 8))
    for block in model.transformer["h"]:
        assert block.attn.c_proj.weight.std().item() == pytest.approx(0.02 / math.sqrt(4) / 4, rel=0.1)
        assert block.attn.c_attn.weight.std().item() == pytest.approx(0.02, rel=0.1)


class PreNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for linear in (self.up, self.down):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def test_block_outputs_and_the_stream_change_as_much_at_depth_64_as_at_depth_2():
    """And without the rule, what blocks add in total changes as L."""

    def loss(model, tokens):
        return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())

    def changes(rule: str) -> tuple[bool, dict[str, float]]:
        sizes = {"width": WIDTH, "base_width": WIDTH, "depth": 64, "base_depth": BASE_DEPTH}
        plan = ww.torch.plan(blocks(PreNorm), **sizes, depth_rule=rule, example=TOKENS)
        options = {"seeds": 1, "steps": 4, "learning_rate": 1e-2, "show": False}
        found = plan.check_depth(loss, TOKENS, depths=(2, 64), **options)
        return found.passed, {each.name: each.change.value for each in found.sizes}

    passed, slopes = changes("completep")
    assert passed
    assert max(map(abs, slopes.values())) < 0.15
    assert set(slopes) == {"embed.weight", "blocks.*.up.weight", "blocks.*.down.weight", "all branches", "logits"}
    passed, slopes = changes("constant")
    assert not passed
    assert slopes["all branches"] > 0.8


def in_one_list(width: int, depth: int) -> nn.Module:
    blocks = [Residual(width, finish=nn.Identity()) for _ in range(depth)]
    return nn.Sequential(nn.Embedding(VOCABULARY, width), *blocks, nn.LayerNorm(width), nn.Linear(width, VOCABULARY))


def test_blocks_are_counted_in_a_list_with_the_rest_of_the_model():
    plan = ww.torch.plan(in_one_list, width=2 * WIDTH, base_width=WIDTH, depth=8, base_depth=2, example=TOKENS)
    torch.manual_seed(0)
    model = plan.init_(in_one_list(2 * WIDTH, 8))
    base = plan.at(width=WIDTH, depth=2).init_(in_one_list(WIDTH, 2))
    ends = [float(block.bn2.weight.detach().mean()) for block in model[1:-2]]
    assert ends == pytest.approx([0.25] * 8)
    assert float(model[0].weight.detach().std()) == pytest.approx(float(base[0].weight.detach().std()), rel=0.1)
    assert float(model[-1].weight.detach().std()) == pytest.approx(float(base[-1].weight.detach().std()) / 2, rel=0.1)
    assert plan.check_depth(lambda model, tokens: model(tokens).square().mean(), TOKENS, depths=(2, 4, 8)) is not None


def test_errors_name_the_parameter():
    def refused(build, match: str, **options):
        sizes = {"width": 2 * WIDTH, "base_width": WIDTH, "depth": 4, "base_depth": BASE_DEPTH, **options}
        with pytest.raises(ValueError, match=match):
            ww.torch.plan(build, **sizes, example=TOKENS)

    class Normalized(nn.Module):
        def forward(self, x):
            return nn.functional.layer_norm(x, x.shape[-1:])

    refused(blocks(partial(Residual, finish=Normalized())), r"'blocks.0.bn2.bias' is added to a stream .*post-norm")
    refused(blocks(partial(Residual, ends=Normalized())), r"the branch of 'blocks.0.conv2.weight' is not proportional")
    refused(blocks(partial(Residual, ends=nn.Tanh())), r"the branch of 'blocks.0.conv2.weight' is not proportional")

    def tied(width: int, depth: int) -> nn.Module:
        shared = nn.Linear(width, width, bias=False)
        return Sequence(width, depth, partial(Residual, ends=nn.Identity(), shared=shared))

    refused(tied, r"'blocks.0.conv2.weight' is shared by several blocks")
    refused(lambda width, depth: nanogpt(width, 2), r"no parameter changes with the depth")
    refused(blocks(lambda width: nn.Linear(width, width)), r"'blocks.0.weight' is in no resid")
    refused(nanogpt, r"base_depth is missing", base_depth=None)
    refused(nanogpt, r"depth is 0: expected a whole number", depth=0)
    refused(nanogpt, r"depth_rule is 'deep': expected one of completep", depth_rule="deep")


def test_batch_and_tokens_change_every_group():
    options = {"width": WIDTH, "base_width": WIDTH, "example": TOKENS}
    plan = ww.torch.plan(nanogpt_flat, batch=256, base_batch=64, batch_rule="sde", **options)
    (group,) = plan.groups(nanogpt_flat(WIDTH), lr=1e-3, weight_decay=0.1, eps=1e-8, decays=lambda name: True)
    assert group["lr"] == pytest.approx(2e-3)
    assert group["eps"] == pytest.approx(5e-9)
    assert group["betas"] == pytest.approx((0.9, 0.996))
    assert group["weight_decay"] == pytest.approx(0.1)
    longer = ww.torch.plan(nanogpt_flat, tokens=16, base_tokens=1, token_rule="-1/4", **options)
    (group,) = longer.groups(nanogpt_flat(WIDTH), lr=1e-3)
    assert group["lr"] == pytest.approx(5e-4)
    assert "betas" not in group
    with pytest.raises(ValueError, match=r"β₂ = 0.9 becomes -0.2 at a batch size of 768"):
        plan.at(batch=768).groups(nanogpt_flat(WIDTH), lr=1e-3, betas=(0.9, 0.9))


def nanogpt_flat(width: int) -> nn.Module:
    return nanogpt(width, BASE_DEPTH)


def test_matrices_of_muon_take_the_multiplier_in_their_rate():
    options = {"width": WIDTH, "base_width": WIDTH, "depth": 8, "base_depth": BASE_DEPTH, "example": TOKENS}
    plan = ww.torch.plan(nanogpt, **options, optimizer="muon")
    last, inner = (plan.factors[f"transformer.h.7.mlp.{name}.weight"] for name in ("c_proj", "c_fc"))
    assert (last.init, last.learning_rate, last.epsilon) == (0.25, 0.25, 1)
    assert (inner.init, inner.learning_rate, inner.epsilon) == (1, 1, 0.25)


def test_a_check_over_depth_measures_what_can_be_compared():
    """Streams of other lengths, experts with other examples, and a table that is not trained."""

    class Decoder(nn.Module):
        def __init__(self, width: int, depth: int) -> None:
            super().__init__()
            self.read, self.write = (Sequence(width, count * depth, PreNorm) for count in (1, 2))
            self.read.head = nn.Identity()
            self.read.embed.weight.requires_grad_(False)

        def forward(self, tokens):
            x = self.write.embed(tokens[:, :5]) + self.read(tokens).mean(1, keepdim=True)
            for block in self.write.blocks:
                x = block(x)
            return self.write.head(x)

    def loss(model, tokens):
        found = model(tokens)
        return nn.functional.cross_entropy(found.flatten(0, 1), tokens[:, : found.shape[1]].flatten())

    options = {"width": WIDTH, "base_width": WIDTH, "depth": 4, "base_depth": 2, "example": TOKENS}
    check = {"depths": (2, 8), "seeds": 1, "steps": 3, "learning_rate": 1e-3, "show": False}
    found = ww.torch.plan(Decoder, **options).check_depth(loss, TOKENS, **check)
    names = {f"{part}.blocks.*.{layer}.weight" for part in ("read", "write") for layer in ("up", "down")}
    assert {each.name for each in found.sizes} == names | {"write.embed.weight", "all branches", "logits"}
    routed = ww.torch.plan(blocks(RoutedBlock), **options).check_depth(loss, TOKENS, **check)
    assert all(math.isfinite(each.change.value) for each in routed.sizes)
    wider = ww.torch.plan(partial(Decoder, depth=1), width=WIDTH, base_width=WIDTH, example=TOKENS)
    del check["depths"]
    layers = wider.check(loss, TOKENS, widths=(16, 32), **check).layers
    assert [each.layer for each in layers if "embed" in each.layer] == ["write.embed.weight"]


class Nested(nn.Module):
    """A branch with a stream of its own: what its inner layers add is no branch of the model."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, width, bias=False)
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(inner))

    def forward(self, x):
        state = self.norm(x)
        for layer in self.inner:
            state = state + layer(torch.relu(state))
        return x + self.last(state)


@pytest.mark.parametrize(("depth", "base_depth"), [(2, 1), (4, 2), (3, 2), (2, 4)])
@pytest.mark.parametrize("inner", [1, 2, 3])
def test_a_stream_inside_of_a_branch_stays_inside(inner: int, depth: int, base_depth: int):
    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": depth, "base_depth": base_depth}
    plan = ww.torch.plan(blocks(partial(Nested, inner=inner)), **sizes, example=TOKENS)
    assert ends_of(plan) == {"blocks.*.last.weight"}
    assert outside(plan) == {"embed.weight", "head.weight", "head.bias"}


@pytest.mark.parametrize(("config", "model"), [("MambaConfig", "MambaForCausalLM"), ("RwkvConfig", "RwkvForCausalLM")])
def test_recurrences_inside_of_blocks_are_no_blocks(config: str, model: str):
    def build(width: int, depth: int) -> nn.Module:
        sizes = {"vocab_size": VOCABULARY, "hidden_size": width, "num_hidden_layers": depth}
        return getattr(transformers, model)(getattr(transformers, config)(**sizes, use_cache=False))

    sizes = {"width": 2 * WIDTH, "base_width": WIDTH, "depth": 4, "base_depth": 2}
    ends = ends_of(ww.torch.plan(build, **sizes, example=TOKENS[:, :4]))
    mamba, rwkv = ("mixer.out_proj",), ("attention.output", "feed_forward.value")
    assert {end.split("*.")[1] for end in ends} == {f"{name}.weight" for name in (mamba if "Mamba" in model else rwkv)}


class Group(nn.Module):
    """Blocks with a residual connection around all of them."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks, self.last = nn.ModuleList(PreNorm(width) for _ in range(depth)), nn.Linear(width, width)

    def forward(self, x):
        y = self.last(x)
        for block in self.blocks:
            y = block(y)
        return x + y


def test_blocks_with_a_connection_around_them_are_still_the_blocks():
    class Groups(nn.Module):
        def __init__(self, width: int, depth: int) -> None:
            super().__init__()
            self.model = Sequence(width, 2, partial(Group, depth=depth))

        def forward(self, tokens):
            return self.model(tokens)

    plan = ww.torch.plan(Groups, width=WIDTH, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS)
    assert ends_of(plan) == {f"model.blocks.*.blocks.*.down.{name}" for name in ("weight", "bias")}


class TwoStreams(nn.Module):
    """Reversible blocks: each stream gets what is computed from the other."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(2 * width, VOCABULARY)
        self.f, self.g = (nn.ModuleList(nn.Linear(width, width) for _ in range(depth)) for _ in range(2))

    def forward(self, tokens):
        x = y = self.embed(tokens)
        for f, g in zip(self.f, self.g, strict=True):
            x = x + f(torch.relu(y))
            y = y + g(torch.relu(x))
        return self.head(torch.cat([x, y], -1))


class Fixed(nn.Module):
    """What grows is the encoder; the decoder reads it in all of its blocks."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.encoder, self.decoder = Sequence(width, depth, PreNorm), Sequence(width, 3, PreNorm)
        self.encoder.head = nn.Identity()
        self.read = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, tokens):
        read, x = self.encoder(tokens), self.decoder.embed(tokens)
        for block, layer in zip(self.decoder.blocks, self.read, strict=True):
            x = block(x + layer(torch.tanh(x) * read))
        return self.decoder.head(x)


@pytest.mark.parametrize(("depth", "base_depth"), [(4, 2), (3, 1)])
def test_streams_that_read_each_other_are_told_apart(depth: int, base_depth: int):
    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": depth, "base_depth": base_depth, "example": TOKENS}
    fixed = ww.torch.plan(Fixed, **sizes)
    assert ends_of(fixed) == {f"encoder.blocks.*.down.{name}" for name in ("weight", "bias")}
    assert {p.path.split(".")[0] for p in fixed.parameters if p.deepens != 1} == {"encoder"}
    both = ww.torch.plan(TwoStreams, **sizes)
    assert ends_of(both) == {f"{layer}.*.{name}" for layer in ("f", "g") for name in ("weight", "bias")}


def two_kinds(first: int, times: int):
    """Blocks of two widths in one list, with what changes the width in between."""

    class Kinds(nn.Module):
        def __init__(self, width: int, depth: int) -> None:
            super().__init__()
            self.embed, self.between = nn.Embedding(VOCABULARY, width), nn.Linear(width, 2 * width)
            self.first = first or depth
            layers = [PreNorm(width) for _ in range(self.first)], [PreNorm(2 * width) for _ in range(times * depth)]
            self.blocks, self.head = nn.ModuleList([*layers[0], *layers[1]]), nn.Linear(2 * width, VOCABULARY)

        def forward(self, tokens):
            x = self.embed(tokens)
            for number, block in enumerate(self.blocks):
                x = block(self.between(x) if number == self.first else x)
            return self.head(x)

    return Kinds


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("first", [0, 1, 6])
def test_blocks_of_several_widths_may_share_a_list(first: int, times: int):
    """A stage of `first` blocks stays as it is; with 0, both stages grow."""
    build = two_kinds(first, times)
    plan = ww.torch.plan(build, width=WIDTH, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS)
    ends = {int(p.path.split(".")[1]) for p in plan.parameters if p.ends_branch}
    assert ends == set(range(first, (first or 4) + 4 * times))
    model = plan.init_(build(WIDTH, 4))
    for number, block in enumerate(model.blocks):
        width = WIDTH * (1 if number < model.first else 2)
        factor = 0.5 if number in ends else 1.0
        assert block.down.weight.std().item() == pytest.approx(factor * (4 * width) ** -0.5, rel=0.1)


def test_what_grows_beside_the_blocks_is_noted():
    class Stem(Sequence):
        def __init__(self, width: int, depth: int) -> None:
            super().__init__(width, depth, PreNorm)
            self.stem = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in (*self.stem, *self.blocks, self.head):
                x = torch.relu(layer(x)) if layer in self.stem else layer(x)
            return x

    plan = ww.torch.plan(Stem, width=WIDTH, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS)
    assert "the deeper model has more of stem.*.weight and stem.*.bias, but in no residual block" in str(plan)


def test_blocks_without_numbers_are_refused_by_name():
    class Named(Sequence):
        def __init__(self, width: int, depth: int) -> None:
            super().__init__(width, depth, PreNorm)
            self.blocks = nn.ModuleDict(dict(zip("abcdef", self.blocks, strict=False)))

        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks.values():
                x = block(x)
            return self.head(x)

    with pytest.raises(
        ValueError, match=r"'blocks.c.down.bias', and no numbered list of layers grows: expected blocks"
    ):
        ww.torch.plan(Named, width=WIDTH, base_width=WIDTH, depth=4, base_depth=2, example=TOKENS)


def t5(width: int, depth: int) -> nn.Module:
    sizes = {"d_model": width, "d_kv": 16, "d_ff": 2 * width, "num_layers": depth, "num_heads": width // 16}
    return transformers.T5EncoderModel(transformers.T5Config(vocab_size=VOCABULARY, **sizes))


@pytest.mark.parametrize(("depth", "base_depth"), [(2, 1), (3, 1), (4, 2)])
def test_scores_that_are_added_to_a_shared_bias_are_no_branch(depth: int, base_depth: int):
    sizes = {"width": WIDTH, "base_width": WIDTH, "depth": depth, "base_depth": base_depth}
    plan = ww.torch.plan(t5, **sizes, example={"input_ids": TOKENS}, headless=True)
    layer = "encoder.block.*.layer.*"
    assert ends_of(plan) == {f"{layer}.SelfAttention.o.weight", f"{layer}.DenseReluDense.wo.weight"}
    assert outside(plan) == {
        *("shared.weight", "encoder.final_layer_norm.weight"),
        "encoder.block.*.layer.*.SelfAttention.relative_attention_bias.weight",
    }
