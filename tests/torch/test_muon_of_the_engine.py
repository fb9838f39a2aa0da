"""The engine's Muon is PyTorch's, up to half precision, in which PyTorch orthogonalizes."""

import jax
import numpy as np
import optax
import pytest
import torch

from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Axes, Rule, find_roles, ones_like
from widthwise.theory import Role

HIDDEN = Rule(role=Role.HIDDEN, axes=Axes(inputs=(0,), outputs=(1,)))


@pytest.mark.parametrize(
    ("optimizer", "adjust", "rate"), [("muon", "original", 1.0), ("muon_max", "match_rms_adamw", 0.2)]
)
@pytest.mark.parametrize("shape", [(16, 48), (48, 16)])
def test_after_several_steps_parameters_are_pytorchs(optimizer: str, adjust: str, rate: float, shape: tuple[int, int]):
    """Another kind of momentum would show: with Optax's the distance is 0.05."""
    start, *gradients = np.random.default_rng(0).standard_normal((6, *shape)).astype(np.float32)
    weight = torch.nn.Parameter(torch.tensor(start.T.copy()))  # PyTorch stores weights as (out, in)
    theirs = torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, adjust_lr_fn=adjust)
    params = {"w": start}
    layout = find_roles(params, rules={"w": HIDDEN})
    ours = OPTIMIZERS[optimizer].build(rate, ones_like(params), layout)
    state, update = ours.init(params), jax.jit(ours.update)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient.T.copy())
        theirs.step()
        updates, state = update({"w": gradient}, state, params)
        params = optax.apply_updates(params, updates)
    moved, expected = np.asarray(params["w"]) - start, weight.detach().numpy().T - start
    assert np.linalg.norm(moved - expected) < 0.02 * np.linalg.norm(expected)
