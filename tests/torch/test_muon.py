"""Muon of PyTorch under a plan: groups for it and for AdamW beside it, or for one class that contains both."""

import itertools
import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import widthwise as ww
from tests.torch.cases import TOKENS, gpt2, llama
from tests.torch.models import GPT, VOCABULARY, Experts, ResNet
from widthwise.coordinates.result import advice
from widthwise.fit import Estimate

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")

TARGETS = TOKENS.roll(-1, 1)
UNTIED = partial(GPT, tied=False, bias=True)


def planned(build: Any = GPT, optimizer: str = "muon", width: int = 128, base_width: int = 32, **options: Any):
    options = {"example": TOKENS} | options
    return ww.torch.plan(build, width=width, base_width=base_width, optimizer=optimizer, **options)


def trained_by_muon(plan) -> set[str]:
    return {p.path for p in plan.parameters if plan.family_of(p).isometric}


def settings(groups: list[dict]) -> list[tuple]:
    return [(g["lr"], g["eps"], g["weight_decay"], g["use_muon"], len(g["params"])) for g in groups]


def test_a_llama_has_groups_for_both_optimizers():
    plan = planned(llama, width=256, base_width=64, example={"input_ids": TOKENS})
    model = llama(256)
    muon = plan.groups(model, of="muon", lr=0.02, weight_decay=0.1)
    adam = plan.groups(model, of="adam", lr=0.01, weight_decay=0.1)
    assert settings(muon) == [(0.02, 1e-7, 0.1, True, 10)]
    assert settings(adam) == [
        (0.01, 2.5e-9, 0.1, False, 1),  # the embedding
        (0.0025, 1e-8, 0.4, False, 5),  # keys, values and readout
        (0.01, 2.5e-9, 0.0, False, 5),  # norms
    ]
    every = [p for group in (*muon, *adam) for p in group["params"]]
    assert {id(p) for p in every} == {id(p) for p in model.parameters()}
    assert len(every) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("optimizer", "adjusted", "factor"), [("muon", "original", 1), ("muon_max", "match_rms_adamw", 0.5)]
)
def test_groups_name_the_factor_that_the_plan_is_for(optimizer: str, adjusted: str, factor: float):
    plan = planned(optimizer=optimizer)
    rule = torch.optim.Muon(plan.groups(GPT(128), of="muon", lr=0.02))
    (group,) = rule.param_groups
    assert (group["adjust_lr_fn"], group["lr"]) == (adjusted, 0.02 * factor)


@pytest.mark.parametrize(("optimizer", "adjusted"), [("muon", "original"), ("muon_max", "match_rms_adamw")])
def test_at_the_base_width_training_is_plain_bit_for_bit(optimizer: str, adjusted: str):
    plan = planned(UNTIED, optimizer, width=32)
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(UNTIED(32))
    plain, model = models[0], plan.init_(models[1])
    hidden = [p for name, p in plain.named_parameters() if ".h." in name and p.ndim == 2]
    others = [p for name, p in plain.named_parameters() if not (".h." in name and p.ndim == 2)]
    assert len(hidden) == 8
    losses = [
        train(plain, torch.optim.Muon(hidden, lr=0.02, weight_decay=0.1, adjust_lr_fn=adjusted),
              torch.optim.AdamW(others, lr=1e-3, weight_decay=0.0)),
        train(model, torch.optim.Muon(plan.groups(model, of="muon", lr=0.02, weight_decay=0.1)),
              torch.optim.AdamW(plan.groups(model, of="adam", lr=1e-3))),
    ]  # fmt: skip
    assert losses[0] == losses[1]
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), model.parameters(), strict=True))


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    outputs = model(batch[0])
    logits = outputs[0] if isinstance(outputs, tuple) else getattr(outputs, "logits", outputs)
    return nn.functional.cross_entropy(logits.flatten(0, -2), batch[1].flatten())


def train(model: nn.Module, *optimizers: torch.optim.Optimizer) -> list[float]:
    losses = []
    for _ in range(5):
        model.zero_grad()
        loss = loss_of(model, (TOKENS, TARGETS))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def checked(build: Any, optimizer: str, times: Any = None):
    """Check a plan, with the rates of hidden matrices times a function of the growth of the width."""

    def make(plan, model):
        muon = plan.groups(model, of="muon", lr=0.02 if optimizer == "muon" else 0.01)
        for group in muon:
            group["lr"] *= times(plan.width / plan.base_width)
            group["lr_factor"] *= times(plan.width / plan.base_width)
        return [torch.optim.Muon(muon), torch.optim.AdamW(plan.groups(model, of="adam", lr=1e-3))]

    plan = planned(build, optimizer, width=256, base_width=64)
    options = {"seeds": 2, "steps": 4, "tolerance": 0.2, "show": False}
    return plan.check(
        loss_of, (TOKENS, TARGETS), widths=(64, 256), optimizer=None if times is None else make, **options
    )


@pytest.mark.parametrize(
    ("build", "optimizer", "common"),
    [
        (GPT, "muon_max", lambda r: r**0.5),  # a constant rate, as for Adam's updates that it matches in size
        (gpt2, "muon", lambda r: r**-1.0),  # the rate that Adam needs, on top of Muon's own factor
    ],
    ids=["nanogpt-muon_max", "gpt2-muon"],
)
def test_every_factor_passes_with_its_own_exponent_and_fails_with_a_common_one(build: Any, optimizer: str, common: Any):
    """In GPT-2 of Hugging Face weights are stored with inputs first."""
    found = checked(build, optimizer)
    assert found.passed, found
    assert not checked(build, optimizer, common).passed


def test_a_check_expects_nothing_of_hidden_weights_beside_muon():
    """The exponents of the theory are those of Muon's updates; the rate of the others scales as Adam's."""

    def build(width: int) -> nn.Module:
        sizes = (5, width, width, 6, width, 3)
        return nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))

    found = planned(build, example=torch.ones(2, 5)).check(
        lambda model, x: model(x).square().mean(),
        torch.ones(2, 5),
        widths=(32, 64),
        steps=1,
        show=False,
    )
    layers = {layer.layer: layer for layer in found.layers}
    assert math.isnan(layers["2.weight"].expected.slope)
    assert not math.isnan(layers["1.weight"].expected.slope)
    assert "nan" not in str(found)
    flat, falling = (Estimate(value=slope, low=slope, high=slope) for slope in (0.0, -0.3))
    failed = replace(layers["2.weight"], initial=flat, size=flat, change=falling)
    assert (
        advice(failed, found.exponents)
        == "its change scales as n^-0.30: here the rate needs an exponent about 0.30 higher"
    )


class Uneven(nn.Module):
    """A network whose inside grows as the square of its width; one weight is stored with inputs first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inside = width**2 // 8
        self.embed = nn.Embedding(VOCABULARY, width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.up = nn.Linear(width, inside, bias=False)
        self.down = nn.Linear(inside, width, bias=False)
        self.turned = nn.Parameter(torch.randn(inside, width) / inside**0.5)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        self.seen = {"up": x, "down": torch.tanh(self.up(x))}
        return self.head(x + self.down(self.seen["down"]) + self.seen["down"] @ self.turned)


@pytest.mark.parametrize("optimizer", ["muon", "muon_max"])
def test_sides_that_grow_differently_change_activations_by_as_much(optimizer: str):
    changes = {}
    for width in (16, 64):
        plan = planned(Uneven, optimizer, width=width, base_width=16)
        torch.manual_seed(0)
        model = plan.init_(Uneven(width))
        before = [w.detach().clone() for w in (model.up.weight, model.down.weight, model.turned.T)]
        loss_of(model, (TOKENS, TARGETS)).backward()
        torch.optim.Muon(plan.groups(model, of="muon", lr=0.02)).step()
        after = (model.up.weight, model.down.weight, model.turned.T)
        inputs = (model.seen["up"], model.seen["down"], model.seen["down"])
        changes[width] = [(z @ (w - old).T).std().item() for z, w, old in zip(inputs, after, before, strict=True)]
    assert changes[64] == pytest.approx(changes[16], rel=0.25)
    rates = {p.path: plan.factors[p.path].learning_rate for p in plan.parameters if p.muon}
    assert (rates["turned"] == rates["down.weight"]) == (optimizer == "muon_max")  # although they are used alike


def test_a_step_removes_the_same_part_of_a_weight_at_every_width():
    plan = planned(optimizer="muon_max")
    model = plan.init_(GPT(128))
    groups = plan.groups(model, of="muon", lr=0.01, weight_decay=0.5)
    before = [p.detach().clone() for p in groups[0]["params"]]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.Muon(groups).step()
    for old, new in zip(before, groups[0]["params"], strict=True):
        torch.testing.assert_close(new, old * (1 - 0.005))


def test_rules_of_decay_hold_beside_muon_s_own_factor():
    plan = planned(optimizer="muon_max", decay_rule="coupled")
    (group,) = plan.groups(GPT(128), of="muon", lr=0.01, weight_decay=0.5)
    assert (group["lr"], group["weight_decay"]) == (0.005, 0.5)


@pytest.mark.parametrize(
    ("build", "example", "path"),
    [(Experts, TOKENS, "w_in"), (ResNet, torch.zeros(2, 3, 8, 8), None)],
    ids=["experts", "convolutions"],
)
def test_what_is_no_matrix_is_left_to_adam_unless_a_rule_says_otherwise(build: Any, example: Any, path: str | None):
    plan = planned(build, width=64, example=example)
    hidden = {p.path: p for p in plan.parameters if p.part == "hidden" and len(p.shape) > 2}
    assert hidden
    assert not trained_by_muon(plan) & set(hidden)
    adam = planned(build, "adam", width=64, example=example)
    for each in hidden:
        assert plan.factors[each] == adam.factors[each]
    if path is not None:
        ruled = planned(build, width=64, example=example, rules={path: ww.Rule(muon=True)})
        assert path in trained_by_muon(ruled)
        assert ruled.factors[path].learning_rate == 1


class BothInOne(torch.optim.Optimizer):
    """A class in the style of those that contain Muon and Adam. It does nothing."""

    def __init__(self, groups: list[dict]) -> None:
        for group in groups:
            options = {"momentum"} if group["use_muon"] else {"betas", "eps"}
            assert set(group) | options == {"params", "lr", "weight_decay", "use_muon", *options}
        super().__init__(groups, {})

    def step(self, closure: Any = None) -> Any:
        pass


class Trusting(BothInOne):
    """The same, without a look at the keys of groups."""

    def __init__(self, groups: list[dict]) -> None:
        torch.optim.Optimizer.__init__(self, groups, {})


def test_one_class_can_take_all_groups():
    plan, model = planned(), GPT(128)
    groups = [*plan.groups(model, of="muon", lr=0.02), *plan.groups(model, of="adam", lr=1e-3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keys = ("params", "lr", "weight_decay", "use_muon")
        BothInOne([{key: group[key] for key in keys} for group in groups]).step()
        Trusting(groups).step()


def stepped(kind: Any, groups: list[dict]) -> None:
    for group in groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    kind(groups).step()


def test_groups_for_the_other_optimizer_are_warned_of():
    plan = planned()
    with pytest.warns(UserWarning, match="AdamW got groups of a plan for muon, .*: take groups of='adam'"):
        stepped(torch.optim.AdamW, plan.groups(GPT(128), of="muon", lr=0.01))
    untied = planned(UNTIED)
    matrices = [
        {**group, "params": [p for p in group["params"] if p.ndim == 2]}
        for group in untied.groups(UNTIED(128), of="adam", lr=0.01)
    ]
    with pytest.warns(UserWarning, match="the updates of Muon change with width in another way"):
        stepped(torch.optim.Muon, matrices)
    with pytest.warns(UserWarning, match="Muon got groups of a plan that are for Adam: take groups of='muon'"):
        stepped(torch.optim.Muon, [*matrices, *untied.groups(UNTIED(128), of="muon", lr=0.01)])
    other = planned(optimizer="muon_out_in")
    with pytest.warns(UserWarning, match=r"Muon does not have the factor sqrt\(out/in\) that the plan is for"):
        stepped(torch.optim.Muon, other.groups(GPT(128), of="muon", lr=0.01))


def one_line(match: str) -> Any:
    return pytest.raises(ValueError, match=rf"^[^\n]*{match}[^\n]*$")


def test_a_factor_that_groups_overrule_is_warned_of():
    other = partial(torch.optim.Muon, adjust_lr_fn="match_rms_adamw")
    with pytest.warns(UserWarning, match="adjust_lr_fn='match_rms_adamw' has no effect"):
        stepped(other, planned().groups(GPT(128), of="muon", lr=0.01))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(other, planned(optimizer="muon_max").groups(GPT(128), of="muon", lr=0.01))


def test_a_large_decay_of_muon_s_matrices_is_not_held_against_adam():
    """Under this rule, only the decay of hidden matrices grows with width."""
    plan = planned(decay_rule="sqrt")
    with pytest.raises(ValueError, match=r"weight_decay · 2 = 0\.08 of every weight"):
        plan.groups(GPT(128), of="muon", lr=0.02, weight_decay=2.0)
    assert plan.groups(GPT(128), of="adam", lr=0.02, weight_decay=2.0)


def test_groups_are_asked_for_one_optimizer_at_a_time():
    model = GPT(128)
    with one_line(
        r"Muon trains 'transformer\.h\.0\.attn\.c_attn\.weight', and Adam what is no hidden matrix: expected of='muon'"
    ):
        planned().groups(model, lr=0.01)
    with one_line("of is 'muon', but the plan is for adam alone: plan with optimizer='muon'"):
        planned(optimizer="adam").groups(model, lr=0.01, of="muon")
    with one_line("of is 'adamw': expected 'muon' or 'adam'"):
        planned().groups(model, lr=0.01, of="adamw")
    with one_line("Muon and Adam are two optimizers: pass plan.groups"):
        planned().optimizer(model)


def test_a_model_without_hidden_matrices_is_refused():
    def build(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(5, width), nn.Linear(width, 3))

    with one_line("no parameter is a hidden matrix with two axes, which Muon could train: plan with optimizer='adamw'"):
        planned(build, example=torch.zeros(2, 5)).groups(build(128), lr=0.01, of="muon")


def test_a_check_without_a_fitting_muon_asks_for_one():
    with one_line(r"this PyTorch has no Muon with a factor of sqrt\(out/in\): pass optimizer="):
        checked(GPT, "muon_out_in")
