"""Coordinate checks pass under a plan and fail under one global rate, and nothing that was not seen passes."""

import math
from functools import partial

import pytest
import torch
from torch import nn

import widthwise as ww
from tests.torch.cases import TOKENS, gpt2, llama, mixtral
from tests.torch.models import CLASSES, GPT, IMAGES_SHAPE, VOCABULARY, Experts, Recurrent, ResNet
from widthwise.torch.capture import capture, measure
from widthwise.torch.model import ModuleBuilder

BATCH = (TOKENS, TOKENS.roll(-1, 1))
TIED_LLAMA = partial(llama, key_value_heads=0, tied=True)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    outputs = model(batch[0])
    logits = outputs[0] if isinstance(outputs, tuple) else getattr(outputs, "logits", outputs)
    return nn.functional.cross_entropy(logits.flatten(0, -2), batch[1].flatten())


def checked(build, optimizer=None, example=TOKENS, batch=BATCH, **options):
    plan = ww.torch.plan(build, width=256, base_width=64, example=example)
    options = {"seeds": 2, "steps": 4, "learning_rate": 3e-3, "tolerance": 0.2, "show": False} | options
    return plan.check(loss, batch, widths=(64, 256), optimizer=optimizer, **options)


def one_rate(plan, model) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)


@pytest.mark.parametrize("build", [GPT, gpt2, TIED_LLAMA], ids=["nanogpt", "gpt2", "tied-llama"])
def test_a_plan_passes_and_one_global_rate_does_not(build):
    planned = checked(build)
    assert planned.passed, planned
    assert planned.layers[-1].role is ww.Role.READOUT
    assert math.isnan(planned.layers[-1].expected.slope)  # of a tied readout, the theory expects nothing
    assert "nan" not in str(planned)
    plain = checked(build, one_rate)
    assert not plain.passed
    assert any(layer.change.low > 0.2 for layer in plain.failed), plain


@pytest.mark.parametrize("build", [mixtral, Experts, Recurrent])
def test_other_layers_are_measured_as_well(build):
    """Experts that tokens are routed to, and recurrent weights. A few steps at small widths say little about them."""
    result = checked(build, tolerance=0.4)
    assert result.passed, result
    weights = {
        p.path for p in ww.torch.plan(build, width=256, base_width=64, example=TOKENS).parameters if p.axes.inputs
    }
    assert {layer.layer for layer in result.layers} == weights


def test_convolutions_are_measured():
    images = torch.randn(16, *IMAGES_SHAPE, generator=torch.Generator().manual_seed(1))
    batch = images, torch.arange(16) % CLASSES
    result = checked(ResNet, example=images, batch=batch, tolerance=0.3, seeds=1)
    assert {"stem.weight", "blocks.1.conv2.weight", "blocks.1.shortcut.weight", "head.weight"} <= {
        layer.layer for layer in result.layers
    }
    assert result.passed, result


def test_terms_add_up_to_the_change_of_a_layer():
    model = GPT(64).double()
    builder = ModuleBuilder(build=GPT, example=BATCH, call=lambda model, *_: loss(model, BATCH))
    first = capture(model, builder)
    assert list(first)[:3] == ["transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.attn.c_attn.weight"]
    assert list(first)[-1] == "transformer.wte.weight#2"  # as the readout
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    last = capture(model, builder)
    found = measure(first, last)
    for i, path in enumerate(found.paths):
        before, after = first[path], last[path]
        if before.apply is not None and after.apply is not None:
            change = after.apply(after.inputs, after.weight) - before.apply(before.inputs, before.weight)
            assert found.values.output_change[i] == pytest.approx(change.square().mean().sqrt().item(), rel=1e-10)
            assert after.fan_in == (256 if path.endswith("mlp.c_proj.weight") else 64)


def test_ratios_are_half_at_random_and_one_when_aligned():
    model = nn.Sequential(nn.Linear(512, 256, bias=False), nn.Linear(256, 256, bias=False))
    with torch.no_grad():
        model[1].weight.fill_(1.0)
        model[0].weight.normal_()
    builder = ModuleBuilder(build=lambda width: model, example=torch.randn(64, 512))
    uses = capture(model, builder)
    uses["1.weight"] = type(uses["1.weight"])(
        apply=uses["1.weight"].apply, inputs=torch.ones(64, 256), weight=uses["1.weight"].weight, fan_in=256
    )
    assert measure(uses, uses).values.ratio == pytest.approx([0.5, 1.0], abs=0.02)


def test_a_layer_that_was_not_seen_does_not_pass():
    class ByHand(nn.Module):
        """A product written as a multiplication and a sum."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, width)
            self.mix = nn.Parameter(torch.randn(width, width) / width**0.5)
            self.head = nn.Linear(width, VOCABULARY)

        def forward(self, tokens):
            return self.head(torch.relu((self.embed(tokens)[..., None] * self.mix).sum(-2)))

    result = checked(ByHand, tolerance=1.0, seeds=1)
    assert result.unseen == ("mix",)
    assert not result.failed
    assert not result.passed
