"""Every direction of the table has updates that change with width as those of its family do."""

from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import widthwise
from widthwise.parameterize import Axes, Layout, Leaf
from widthwise.parameterize.scales import ones_like
from widthwise.theory import DIRECTIONS, FULL, MUP, Direction, Role, solve, without_multipliers

WIDTHS = (32, 128)
INPUTS, OUTPUTS, STEPS = 16, 16, 8
BATCH = 256
"""Large enough for gradients of full rank, which is what orthogonalized updates assume."""
RATE = 1e-4
"""Small, so that the network stays as it was initialized."""
ROLES = tuple(Role)
STORED = without_multipliers(solve(MUP, widthwise.ADAM, FULL))
"""muP, because it tells all families apart: gradients n^-1, n^-1 and 1, weights 1, n^-1/2 and n^-1."""


def initial(width: int) -> dict[Role, np.ndarray]:
    draw = np.random.default_rng(width).standard_normal
    return {
        Role.EMBEDDING: draw((INPUTS, width)) / INPUTS**0.5,
        Role.HIDDEN: draw((width, width)) / width**0.5,
        Role.READOUT: draw((width, OUTPUTS)) / width,
    }


@cache
def batches() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs, and the derivatives of the loss by the logits: both random at every step."""
    draw = np.random.default_rng(0).standard_normal
    return draw((STEPS, BATCH, INPUTS)), draw((STEPS, BATCH, OUTPUTS))


def layout(params: Any) -> Layout:
    axes = Axes(inputs=(0,), outputs=(1,))
    leaves = [Leaf(path=str(i), shape=x.shape, role=None, axes=axes) for i, x in enumerate(jax.tree.leaves(params))]
    return Layout(leaves=tuple(leaves), structure=jax.tree.structure(params))


def updates_in_jax(call: str) -> list[dict[Role, float]]:
    """Return the size of the last update of each role at each width. One optimizer trains all widths at once."""
    start = [{role: jnp.asarray(x, jnp.float32) for role, x in initial(width).items()} for width in WIDTHS]
    names = {"optax": optax, "widthwise": widthwise, "lr": RATE, "scales": ones_like(start), "layout": layout(start)}
    optimizer = optax.with_extra_args_support(eval(call, names))

    def loss(networks, x, derivatives):
        def one(params):
            z = jnp.tanh(jnp.tanh(x @ params[Role.EMBEDDING]) @ params[Role.HIDDEN]) @ params[Role.READOUT]
            return jnp.mean(jnp.sum(z * derivatives, axis=-1))

        return sum(map(one, networks))

    def step(carried, batch):
        params, state = carried
        gradients = jax.grad(loss)(params, *batch)
        updates, state = optimizer.update(gradients, state, params, obj_fn=lambda params: loss(params, *batch))
        return (optax.apply_updates(params, updates), state), jax.tree.map(lambda x: jnp.sqrt(jnp.mean(x**2)), updates)

    data = tuple(jnp.asarray(x, jnp.float32) for x in batches())
    _, sizes = jax.jit(lambda params: jax.lax.scan(step, (params, optimizer.init(params)), data))(start)
    return [{role: float(size[-1]) for role, size in network.items()} for network in sizes]


def updates_in_torch(call: str) -> list[dict[Role, float]]:
    """Return the size of the last update of each role at each width."""
    inputs, derivatives = (torch.tensor(x) for x in batches())
    sizes = []
    for width in WIDTHS:
        params = {role: torch.nn.Parameter(torch.tensor(x.T.copy())) for role, x in initial(width).items()}
        names = {"torch": torch, "widthwise": widthwise, "lr": RATE, "params": list(params.values())}
        optimizer = eval(call, names)
        before = params
        for x, derivative in zip(inputs, derivatives, strict=True):
            before = {role: p.detach().clone() for role, p in params.items()}
            z = x
            for role in ROLES[:-1]:
                z = torch.tanh(z @ params[role].T)
            loss = torch.mean(torch.sum(z @ params[Role.READOUT].T * derivative, -1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        changes = {role: p.detach() - before[role] for role, p in params.items()}
        sizes.append({role: float(change.square().mean().sqrt()) for role, change in changes.items()})
    return sizes


CALLS = [
    pytest.param(direction, call, updates, id=f"{direction.name} in {library}")
    for direction in DIRECTIONS
    for library, call, updates in (
        ("jax", direction.jax, updates_in_jax),
        ("torch", direction.torch, updates_in_torch),
    )
    if call
]


@pytest.mark.parametrize(("direction", "call", "updates"), CALLS)
def test_updates_change_with_width_as_those_of_the_family(direction: Direction, call: str, updates: Any):
    found = updates(call)
    gradients = STORED.gradients
    assert gradients is not None
    for role, layer, g in zip(ROLES, STORED.parameterization.layers, gradients.at_init, strict=True):
        d = direction.family.at(role).update(b=layer.b, c=Fraction(0), g=g)
        slope = np.polyfit(np.log(WIDTHS), np.log([sizes[role] for sizes in found]), 1)[0]
        assert slope == pytest.approx(-float(d), abs=0.1), role


def test_the_first_steps_of_radam_are_not_normalized():
    optimizer, sizes = optax.radam(RATE), {}
    for gradient in (1.0, 2.0):
        state = optimizer.init(jnp.ones(()))
        for step in range(1, 7):
            update, state = optimizer.update(jnp.asarray(gradient), state)
            sizes[step, gradient] = float(update)
    assert [sizes[step, 2.0] / sizes[step, 1.0] for step in range(1, 7)] == pytest.approx([2, 2, 2, 2, 2, 1], rel=1e-3)


def test_the_page_shows_the_table():
    def row(direction: Direction) -> str:
        calls = [f"`{call}`" if call else "–" for call in (direction.jax, direction.torch)]
        return f"| {' | '.join([direction.name, f'`{direction.family.name}`', *calls, direction.note or '–'])} |"

    page = (Path(__file__).parents[1] / "docs" / "theory.md").read_text()
    expected = "\n".join(map(row, DIRECTIONS))
    assert expected in page, f"docs/theory.md lacks the table:\n{expected}"
