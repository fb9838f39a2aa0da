"""What the built-in models share: a frozen configuration with pure functions, and roles that it states itself."""

from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp

from widthwise.parameterize import Constants, Layout, Prescription, Rule, find_roles, prescribe_layout
from widthwise.parameterize.prescription import ONES
from widthwise.theory import Assessment, Parameterization

PyTree: TypeAlias = Any


class Model(Protocol):
    """A model as a value: its configuration, from which everything else follows."""

    @property
    def width(self) -> int:
        """The n of the theory."""
        ...

    def shapes(self) -> PyTree:
        """Give the shapes of its parameters, without allocating any."""
        ...

    def rules(self, parameterization: Parameterization) -> dict[str, Rule]:
        """State the role of every parameter, and the constants in front of their initialization."""
        ...


def layout(model: Model, parameterization: Parameterization) -> Layout:
    """Give the roles that a model states for its parameters."""
    return find_roles(model.shapes(), rules=model.rules(parameterization))


def prescribe(model: Model, exponents: Assessment, *, base_width: int, constants: Constants = ONES) -> Prescription:
    """Work out what exponents mean for a built-in model."""
    return prescribe_layout(
        layout(model, exponents.parameterization),
        exponents=exponents,
        width=model.width,
        base_width=base_width,
        constants=constants,
    )


def draw(model: Model, key: jax.Array) -> PyTree:
    """Draw parameters of standard deviation 1, with ones for LayerNorm scales: what `Scales.initial` takes.

    Each leaf has a key of its own, so that the numbers do not depend on how many runs are drawn at once. Leaves of the
    same shape are drawn together: random numbers compile slowly, on a GPU longer than the training step does otherwise.
    """
    leaves, structure = jax.tree.flatten(model.shapes())
    drawn = [jnp.ones(leaf.shape, leaf.dtype) for leaf in leaves]
    for shape in {leaf.shape: None for leaf in leaves if len(leaf.shape) > 1}:
        alike = [index for index, leaf in enumerate(leaves) if leaf.shape == shape]
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.array(alike))
        numbers = jax.lax.map(lambda key, like=leaves[alike[0]]: jax.random.normal(key, like.shape, like.dtype), keys)
        for index, number in zip(alike, numbers, strict=True):
            drawn[index] = number
    return structure.unflatten(drawn)
