"""A plan trains as microsoft/mup does, whose readout has a multiplier and whose epsilon does not scale."""

import mup
import pytest
import torch
from torch import nn

import widthwise as ww
from tests.torch.models import GPT, VOCABULARY

TOKENS = torch.randint(VOCABULARY, (8, 12), generator=torch.Generator().manual_seed(0))
BASE, WIDE = 32, 96


def build(width: int) -> GPT:
    return GPT(width, tied=False)


def build_mup(width: int) -> GPT:
    model = build(width)
    model.lm_head = mup.MuReadout(width, VOCABULARY, bias=False)
    nn.init.normal_(model.lm_head.weight, std=0.02)
    return model


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 50) -> list[float]:
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(TOKENS, TOKENS.roll(-1, 1))[1]
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_fifty_steps_of_adamw_with_decay_are_the_same():
    options = {"lr": 3e-3, "weight_decay": 0.1, "eps": 1e-16}
    there = build_mup(WIDE).double()
    mup.set_base_shapes(there, build_mup(BASE), delta=build_mup(2 * BASE), rescale_params=False)
    here = build(WIDE).double()
    here.load_state_dict(there.state_dict())
    with torch.no_grad():
        here.lm_head.weight.mul_(BASE / WIDE)  # as it acts there
    plan = ww.torch.plan(build, width=WIDE, base_width=BASE, example=TOKENS)
    groups = plan.groups(here, decays=lambda name: True, **options)
    expected = losses(there, mup.MuAdamW(there.parameters(), **options))
    assert losses(here, torch.optim.AdamW(groups)) == pytest.approx(expected, rel=1e-8)
    assert expected[-1] < 0.5 * expected[0]
