"""Groups carry rates, epsilons and decay; equal ones are merged, and a loop that erases them is warned of."""

import warnings

import pytest
import torch

import widthwise as ww
from tests.torch.cases import TOKENS, llama
from tests.torch.models import GPT


@pytest.fixture(scope="module")
def plan():
    return ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS)


def options(groups: list[dict]) -> list[tuple]:
    return [(g["lr"], g["eps"], g["weight_decay"], len(g["params"])) for g in groups]


def test_a_llama_has_four_groups():
    plan = ww.torch.plan(llama, width=256, base_width=64, example={"input_ids": TOKENS})
    model = llama(256)
    groups = plan.groups(model, lr=0.01, weight_decay=0.1)
    assert options(groups) == [
        (0.01, 2.5e-9, 0.1, 1),  # the embedding
        (0.0025, 2.5e-9, 0.4, 10),  # hidden layers
        (0.0025, 1e-8, 0.4, 5),  # keys, values and readout
        (0.01, 2.5e-9, 0.0, 5),  # norms
    ]
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))


def test_a_step_removes_the_same_part_of_every_weight_at_every_width(plan):
    model = plan.init_(GPT(128))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(plan.groups(model, lr=0.01, weight_decay=0.1))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        expected = before[name] * (1 if parameter.ndim == 1 else 1 - 0.001)
        torch.testing.assert_close(parameter, expected)


@pytest.mark.parametrize(
    ("rule", "embedding", "hidden"),
    [("independent", 1, 1), ("coupled", 1, 1 / 4), ("sqrt", 0, 1 / 2), ("inverse", 1 / 4, 1 / 4)],
)
def test_a_step_removes_what_the_rule_says(rule: str, embedding: float, hidden: float):
    """At four times the base width, where the rate of hidden layers is a quarter."""
    plan = ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS, decay_rule=rule)
    model = GPT(128)
    groups = plan.groups(model, lr=0.01, weight_decay=0.1)
    removed = {p: g["lr"] * g["weight_decay"] for g in groups for p in g["params"]}
    assert removed[model.get_parameter("transformer.wpe.weight")] == pytest.approx(0.001 * embedding)
    assert removed[model.get_parameter("transformer.h.0.mlp.c_fc.weight")] == pytest.approx(0.001 * hidden)
    assert plan.at(64).decay_rule.name == rule
    assert ("decay ×" in str(plan)) == (rule != "independent")


def test_a_rule_that_would_remove_too_much_is_refused():
    plan = ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS, optimizer="sgd", decay_rule="sqrt")
    with pytest.raises(ValueError, match=r"lr · weight_decay · 2 = 0\.06 of every weight"):
        plan.groups(GPT(128), lr=0.3, weight_decay=0.1)


def test_which_parameters_decay_can_be_chosen_and_frozen_ones_are_left_out(plan):
    model = GPT(128)
    model.get_parameter("transformer.wpe.weight").requires_grad_(False)
    groups = plan.groups(model, lr=0.01, weight_decay=0.1, decays=lambda name: "mlp" in name)
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters())) - 1
    assert sum(len(g["params"]) for g in groups if g["weight_decay"]) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": -1.0}, "lr is -1.0"),
        ({"lr": 1.0, "eps": -1.0}, "eps is -1.0"),
        ({"lr": 1.0, "weight_decay": 0.1}, "a step would remove lr · weight_decay = 0.1"),
    ],
)
def test_nonsense_is_refused(plan, given: dict, message: str):
    with pytest.raises(ValueError, match=message):
        plan.groups(GPT(128), **given)


def stepped(plan, change=lambda optimizer: lambda: None, kind=torch.optim.AdamW, **others) -> None:
    """Take three steps; `change(optimizer)` returns what to do after each."""
    model = GPT(128)
    optimizer = kind(plan.groups(model, lr=0.01, **others))
    after = change(optimizer)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        after()


def test_a_loop_that_sets_one_rate_is_warned_of(plan):
    def as_in_nanogpt(optimizer):
        def after():
            for group in optimizer.param_groups:
                group["lr"] = 0.001

        return after

    with pytest.warns(UserWarning, match="their ratios are no longer those of the plan") as found:
        stepped(plan, as_in_nanogpt)
    assert len(found) == 1


def test_a_scheduler_that_pulls_rates_together_is_warned_of(plan):
    def cosine(optimizer):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10, eta_min=1e-3).step

    with pytest.warns(UserWarning, match="a scheduler"):
        stepped(plan, cosine)


def test_loops_that_keep_the_ratios_are_not_warned_of(plan):
    def scaled(optimizer):
        def after():
            for group in optimizer.param_groups:
                group["lr"] = 0.001 * group["lr_factor"]

        return after

    def linear(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)).step

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(plan, scaled)
        stepped(plan, linear)
        stepped(plan, kind=torch.optim.NAdam)
        stepped(plan, kind=ww.torch.AdamAtan2, weight_decay=0.1)


def test_decay_inside_the_gradient_is_warned_of(plan):
    with pytest.warns(UserWarning, match="Adam adds weight decay to the gradient"):
        stepped(plan, kind=torch.optim.Adam, weight_decay=0.1)


def test_pytorch_s_adafactor_is_warned_of():
    plan = ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS, optimizer="adafactor")
    model = GPT(128)
    groups = [{**group, "eps": (None, 1e-3)} for group in plan.groups(model, lr=0.01)]
    optimizer = torch.optim.Adafactor(groups)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.warns(UserWarning, match="caps its learning rate at 1/√step"):
        optimizer.step()


def test_an_optimizer_of_another_family_is_warned_of(plan):
    with pytest.warns(UserWarning, match="SGD got groups of a plan for adam, .* plan with optimizer='sgd'"):
        stepped(plan, kind=torch.optim.SGD)
    other = ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS, optimizer="sgd")
    with pytest.warns(UserWarning, match="AdamW got groups of a plan for sgd, .* plan with optimizer='adam'"):
        stepped(other, kind=torch.optim.AdamW)


def test_a_model_of_another_width_is_refused(plan):
    with pytest.raises(ValueError, match=r"'transformer\.wte\.weight' has shape \(23, 64\): the plan is for width 128"):
        plan.groups(GPT(64), lr=0.01)
