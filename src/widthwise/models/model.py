"""What the built-in models share: a frozen configuration, pure functions, and declared roles."""

import functools
from typing import Protocol

import jax
import jax.numpy as jnp

from widthwise.parameterize import Constants, Layout, Prescription, PyTree, Rule, find_roles, prescribe_layout
from widthwise.parameterize.prescription import ONES
from widthwise.theory import Assessment, Parameterization


class Model(Protocol):
    """A model as a value: its configuration, which determines everything else."""

    @property
    def width(self) -> int:
        """The n of the theory."""
        ...

    def shapes(self) -> PyTree:
        """Return the shapes of its parameters, without allocating them."""
        ...

    def rules(self, parameterization: Parameterization) -> dict[str, Rule]:
        """Return the role of every parameter, and the constant in front of its initialization."""
        ...


def layout(model: Model, parameterization: Parameterization) -> Layout:
    """Return the roles that a model declares for its parameters."""
    return find_roles(model.shapes(), rules=model.rules(parameterization))


def prescribe(model: Model, exponents: Assessment, *, base_width: int, constants: Constants = ONES) -> Prescription:
    """Compute what exponents prescribe for a built-in model."""
    return prescribe_layout(
        layout(model, exponents.parameterization),
        exponents=exponents,
        width=model.width,
        base_width=base_width,
        constants=constants,
    )


def draw(model: Model, key: jax.Array) -> PyTree:
    """Draw parameters with standard deviation 1 and LayerNorm scales of 1, for `Scales.initial`.

    Each leaf has its own key, so the numbers do not depend on how many runs are drawn at once. Leaves of the same size
    are drawn together, because random numbers compile slowly: on a GPU, more slowly than the training step.
    """
    leaves, structure = jax.tree.flatten(model.shapes())
    drawn = [jnp.ones(leaf.shape, leaf.dtype) for leaf in leaves]
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(len(leaves)))
    for size in {leaf.size: None for leaf in leaves if len(leaf.shape) > 1}:
        alike = [index for index, leaf in enumerate(leaves) if leaf.size == size and len(leaf.shape) > 1]
        normal = functools.partial(jax.random.normal, shape=(size,), dtype=leaves[alike[0]].dtype)
        numbers = jax.lax.map(normal, keys[jnp.array(alike)])
        for index, number in zip(alike, numbers, strict=True):
            drawn[index] = number.reshape(leaves[index].shape)
    return structure.unflatten(drawn)
