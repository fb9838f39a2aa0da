"""Both front doors plan the same model alike."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import widthwise as ww
from tests.torch.models import CONTEXT, HEAD_DIM, VOCABULARY, RawParameters

TOKENS = torch.randint(VOCABULARY, (4, CONTEXT), generator=torch.Generator().manual_seed(1))


def build(width: int, key: jax.Array):
    """`RawParameters` in JAX."""
    heads = width // HEAD_DIM
    shapes = {
        "embed": (VOCABULARY, width),
        "positions": (CONTEXT, width),
        "scale": (width,),
        "qkv": (3, width, heads, HEAD_DIM),
        "out": (heads, HEAD_DIM, width),
        "temperature": (),
        "up": (width, 4 * width),
        "up_bias": (4 * width,),
        "down": (4 * width, width),
        "unembed": (width, VOCABULARY),
    }
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, s) for k, (name, s) in zip(keys, shapes.items(), strict=True)}, apply


def apply(params, tokens):
    x = params["embed"][tokens] + params["positions"][: tokens.shape[1]]
    normed = x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * params["scale"]
    q, k, v = jnp.einsum("btm,cmhd->cbthd", normed, params["qkv"])
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * jnp.exp(params["temperature"]) / jnp.sqrt(HEAD_DIM)
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    x = x + jnp.einsum("bqhd,hdm->bqm", y, params["out"])
    x = x + jax.nn.relu(x @ params["up"] + params["up_bias"]) @ params["down"]
    return x @ params["unembed"]


@pytest.mark.parametrize("parameterization", ["standard", "mup"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adafactor"])
@pytest.mark.parametrize("alignment", ["full", "none"])
def test_roles_and_factors_are_the_same(optimizer: str, parameterization: str, alignment: str):
    options = {"optimizer": optimizer, "parameterization": parameterization, "alignment": alignment}
    there = ww.plan(build, width=96, base_width=32, example=jnp.asarray(TOKENS.numpy()), **options)
    here = ww.torch.plan(RawParameters, width=96, base_width=32, example=TOKENS, **options)
    assert here.factors == dict(there.factors)
    by_path = {parameter.path: parameter for parameter in there.parameters}
    for parameter in here.parameters:
        other = by_path[parameter.path]
        assert (parameter.part, parameter.axes, parameter.fan_in) == (other.part, other.axes, other.fan_in)


STEPS = {
    "adamw": (lambda plan: plan.adamw(3e-3, weight_decay=0.1), lambda groups: torch.optim.AdamW(groups)),
    "adam_atan2": (lambda plan: plan.adam_atan2(3e-3, weight_decay=0.1), lambda groups: ww.torch.AdamAtan2(groups)),
    "sgd": (lambda plan: plan.sgd(3e-3, 0.9), lambda groups: torch.optim.SGD(groups, momentum=0.9)),
    "adafactor": (lambda plan: plan.adafactor(3e-3, weight_decay=0.1), lambda groups: ww.torch.Adafactor(groups)),
}


@pytest.mark.parametrize("optimizer", STEPS)
def test_optimizers_take_the_same_steps(optimizer: str):
    """SGD without decay, since momentum accumulates decay in PyTorch and not in JAX."""
    make_there, make_here = STEPS[optimizer]
    there = ww.plan(build, width=96, base_width=32, example=jnp.asarray(TOKENS.numpy()), optimizer=optimizer)
    here = ww.torch.plan(RawParameters, width=96, base_width=32, example=TOKENS, optimizer=optimizer)
    decay = 0.0 if optimizer == "sgd" else 0.1
    transformation = make_there(there)
    model = here.init_(RawParameters(96))
    steps = make_here(here.groups(model, lr=3e-3, weight_decay=decay))
    params = {name: jnp.asarray(p.detach().numpy()) for name, p in model.named_parameters()}
    state, update = transformation.init(params), jax.jit(transformation.update)
    rng = np.random.default_rng(0)
    for _ in range(4):
        gradients = {name: rng.normal(size=p.shape).astype(np.float32) for name, p in params.items()}
        updates, state = update({k: jnp.asarray(v) for k, v in gradients.items()}, state, params)
        params = optax.apply_updates(params, updates)
        for name, parameter in model.named_parameters():
            parameter.grad = torch.tensor(gradients[name])
        steps.step()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), params[name], rtol=2e-4, atol=1e-6, err_msg=name)
