# JAX leaves some of its own types open; everything else here is checked strictly.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""Scales: the parameterization as a tree of scalars, one set for every parameter.

Everything else builds on this idea. A network is linear in each weight, so n^-a (W x) = (n^-a W) x: the multiplier can
be applied to the parameter before the model is called, and the model need not know about it. The scalars are arguments
of the compiled step, not constants in it, so all parameterizations of a width share one program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from widthwise.trace.paths import PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Scales:
    """Scalars for every parameter; each field is a tree with the structure of the parameters.

    Attributes:
        init_std: The standard deviation of the stored parameter at initialization.
        multiplier: The factor on the stored parameter when it acts.
        learning_rate: The factor on the base learning rate.
        epsilon: The factor on the base epsilon.
        floor: The factor on the smallest parameter RMS used by parameter scaling.
    """

    init_std: PyTree
    multiplier: PyTree
    learning_rate: PyTree
    epsilon: PyTree
    floor: PyTree

    def effective(self, params: PyTree) -> PyTree:
        """Return the parameters as they act. Call the model with these, and differentiate through this function."""
        return jax.tree.map(_times, params, self.multiplier)

    def adopt(self, weights: PyTree) -> PyTree:
        """Return the stored form of weights that should act unchanged, such as pretrained ones."""
        return jax.tree.map(lambda weight, multiplier: _times(weight, 1 / multiplier), weights, self.multiplier)

    def initial(self, unit: PyTree) -> PyTree:
        """Return initial parameters, given parameters with standard deviation 1 (LayerNorm scales: ones)."""
        return jax.tree.map(_times, unit, self.init_std)

    def by_leaf(self) -> list["Scales"]:
        """Return the scalars of each parameter, in the order in which JAX flattens the parameters."""
        params = jax.tree.structure(self.multiplier)
        return params.flatten_up_to(jax.tree.transpose(jax.tree.structure(ones_like(1.0)), params, self))

    def with_constant_epsilon(self) -> "Scales":
        """Return the same scales with one epsilon for all parameters."""
        return replace(
            self, epsilon=jax.tree.map(lambda x: 1.0 if isinstance(x, float) else jnp.ones_like(x), self.epsilon)
        )


def stack(scales: Sequence[Scales]) -> Scales:
    """Stack the scales of several runs into those of one batch of lanes, for `jax.vmap`."""
    return jax.tree.map(lambda *values: np.stack([np.asarray(value) for value in values]), *scales)


def ones_like(params: PyTree) -> Scales:
    """Return the scales of a plain model: nothing is scaled."""
    ones = jax.tree.map(lambda _: 1.0, params)
    return Scales(init_std=ones, multiplier=ones, learning_rate=ones, epsilon=ones, floor=ones)


def _times(weight: jax.Array, scale: jax.Array | float) -> jax.Array:
    wide = jnp.promote_types(weight.dtype, jnp.float32)  # scales must not be rounded to bfloat16
    return (weight.astype(wide) * scale).astype(weight.dtype)
