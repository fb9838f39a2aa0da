"""Plans train as they should: plainly at the base width, and as multipliers would at all others."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import widthwise as ww
from tests.torch.models import CONTEXT, GPT, VOCABULARY, OffsetTied
from widthwise.scaling import Factors, find_factors

GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randint(VOCABULARY, (8, CONTEXT), generator=GENERATOR)
TARGETS = TOKENS.roll(-1, 1)
UNTIED = partial(GPT, tied=False, bias=True)
BASE, WIDE = 32, 96
"""A ratio of three: powers of two would be exact however wrong the rounding."""


def train(forward: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer, steps: int = 10) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(TOKENS).flatten(0, 1), TARGETS.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def built(build: Callable[[int], nn.Module], width: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(1)
    return build(width).to(dtype)


def test_at_the_base_width_a_plan_trains_like_the_plain_model_bit_for_bit():
    plan = ww.torch.plan(GPT, width=BASE, base_width=BASE, example=TOKENS)
    plain, planned = built(GPT, BASE), plan.init_(built(GPT, BASE))
    decayed = [p for p in plain.parameters() if p.ndim > 1]
    others = [p for p in plain.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    expected = train(lambda x: plain(x)[0], torch.optim.AdamW(groups, lr=3e-3))
    found = plan.groups(planned, lr=3e-3, weight_decay=0.1)
    assert len(found) == 2
    assert train(lambda x: planned(x)[0], torch.optim.AdamW(found)) == expected
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), planned.parameters(), strict=True))


OPTIMIZERS = {
    "sgd": (partial(torch.optim.SGD), 0.5),
    "adam": (partial(torch.optim.AdamW), 3e-3),
    "adafactor": (ww.torch.Adafactor, 1e-2),
}


@pytest.mark.parametrize("parameterization", ["standard", "ntk", "mup", "mean_field"])
@pytest.mark.parametrize("family", OPTIMIZERS)
@pytest.mark.parametrize("build", [UNTIED, partial(GPT, bias=True)], ids=["untied", "tied"])
def test_a_plan_without_multipliers_trains_as_one_with_them(build, family: str, parameterization: str):
    """In float64, with a negative control: the plain rates and sizes lead elsewhere."""
    kind, lr = OPTIMIZERS[family]
    plan = ww.torch.plan(
        build, width=WIDE, base_width=BASE, example=TOKENS, optimizer=family, parameterization=parameterization
    )
    model = plan.init_(built(build, WIDE, torch.float64))
    eps = 1e-30 if family == "adafactor" else 1e-5
    with_multipliers = find_factors(plan.parameters, plan.exponents, multipliers=True)
    stored = {
        name: nn.Parameter(p.detach().clone() / with_multipliers[name].multiplier)
        for name, p in model.named_parameters()
    }

    def multiplied(tokens: torch.Tensor) -> torch.Tensor:
        acting = {name: p * with_multipliers[name].multiplier for name, p in stored.items()}
        return torch.func.functional_call(model, acting, (tokens,), tie_weights=True)[0]

    reference = kind(reference_groups(stored, plan, with_multipliers, lr, eps))
    expected = train(multiplied, reference)
    plain = built(build, WIDE, torch.float64)
    control = train(lambda x: plain(x)[0], kind(plain.parameters(), lr=lr))
    found = train(lambda x: model(x)[0], kind(plan.groups(model, lr=lr, eps=eps, weight_decay=0.1)))
    assert found == pytest.approx(expected, rel=1e-10)
    assert found != pytest.approx(control, rel=1e-4)


def reference_groups(stored, plan, factors: dict[str, Factors], lr: float, eps: float) -> list[dict]:
    """One group per parameter, with the exponents of a parameterization with multipliers."""
    groups = []
    for about in plan.parameters:
        found = factors[about.path]
        group = {"params": [stored[about.path]], "lr": lr * found.learning_rate}
        group["weight_decay"] = 0.0 if about.is_vector else 0.1 / found.learning_rate
        if plan.exponents.family == ww.ADAM:
            group["eps"] = eps * found.epsilon
        if plan.exponents.family == ww.ADAFACTOR:
            group |= {"eps": eps * found.epsilon**2, "floor": 1e-3 * found.floor}
            group["axes"] = [(about.axes.inputs, about.axes.outputs)]
        groups.append(group)
    return groups


def test_initial_sizes_are_those_of_the_base_width_times_a_factor():
    plan = ww.torch.plan(UNTIED, width=128, base_width=32, example=TOKENS)
    model, base = plan.init_(UNTIED(128)), UNTIED(32)
    for name, parameter in model.named_parameters():
        size = base.get_parameter(name).square().mean().sqrt() * plan.factors[name].init
        assert parameter.square().mean().sqrt().item() == pytest.approx(size.item(), rel=0.15), name
    assert plan.factors["lm_head.weight"].init == 0.25
    assert plan.factors["transformer.h.0.attn.c_attn.weight"].init == 0.5
    assert model.get_parameter("transformer.ln_f.weight").eq(1).all()


def test_initializing_twice_is_initializing_once():
    plan = ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS)
    model = plan.init_(GPT(128))
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    plan.init_(model)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_experts_that_are_stacked_keep_their_own_sizes():
    class Stacked(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, width)
            sizes = torch.tensor([1.0, 2.0, 4.0])[:, None, None]
            self.experts = nn.Parameter(sizes * torch.randn(3, width, width) / width**0.5)
            self.head = nn.Linear(width, VOCABULARY)

        def forward(self, tokens):
            x = self.embed(tokens).flatten(0, 1)
            return self.head(torch.bmm(x.expand(3, *x.shape), self.experts).sum(0))

    plan = ww.torch.plan(Stacked, width=64, base_width=16, example=TOKENS)
    experts = plan.init_(Stacked(64)).experts
    expected = plan.base_sizes["experts"] * 0.5
    torch.testing.assert_close(experts.square().mean((1, 2), keepdim=True).sqrt().double(), expected)


def test_the_wrong_model_is_refused_by_name():
    plan = ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS)
    with pytest.raises(ValueError, match=r"'transformer\.wte.weight' has shape \(23, 64\): the plan is for width 128"):
        plan.init_(GPT(64))
    with pytest.raises(ValueError, match="bias' is not a parameter of the plan"):
        plan.groups(UNTIED(128), lr=1e-3)
    with torch.device("meta"):
        model = GPT(128)
    with pytest.raises(ValueError, match="is on the meta device"):
        plan.init_(model)


def test_a_tied_head_that_no_norm_can_scale_gets_a_hook_and_a_warning():
    plan = ww.torch.plan(OffsetTied, width=128, base_width=32, example=TOKENS)
    assert "head is tied to the embedding; a hook multiplies its inputs by 0.25" in str(plan)
    model = OffsetTied(128)
    before = {name: p.clone() for name, p in model.named_parameters()}
    with pytest.warns(UserWarning, match="'head' shares its weight with the embedding"):
        plan.init_(model)
    plan.init_(model)  # no second hook, and no second warning
    sized = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert not torch.equal(sized["mix.weight"], before["mix.weight"])
    plain = OffsetTied(128)
    plain.load_state_dict(sized, strict=False)
    torch.testing.assert_close(model(TOKENS), 0.25 * plain(TOKENS))


def test_a_compiled_model_and_its_optimizer_s_state_are_ordinary(tmp_path):
    plan = ww.torch.plan(GPT, width=64, base_width=32, example=TOKENS)
    model = plan.init_(torch.compile(GPT(64), backend="eager", fullgraph=True))
    optimizer = torch.optim.AdamW(plan.groups(model, lr=1e-3, weight_decay=0.1))
    train(lambda x: model(x)[0], optimizer, 2)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "saved.pt")
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    resumed: Any = torch.compile(GPT(64), backend="eager", fullgraph=True)
    resumed.load_state_dict(saved["model"])
    again = torch.optim.AdamW(plan.groups(resumed, lr=1e-3, weight_decay=0.1))
    again.load_state_dict(saved["optimizer"])
    assert train(lambda x: resumed(x)[0], again, 2) == train(lambda x: model(x)[0], optimizer, 2)
