# JAX leaves some of its own types open; everything else here is checked strictly.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""Scales: the parameterization as a tree of scalars, one set for every parameter.

This is the idea that everything else rests on. A network is linear in each weight, so n^-a (W x) = (n^-a W) x: the
multiplier acts on the parameter before the model is called, and no model needs to know. The scalars are arguments of
the compiled step and not constants in it, so that all parameterizations of a width share one program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from widthwise.parameterize.paths import PyTree


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Scales:
    """Scalars for every parameter, each field a tree of the parameters' structure.

    Attributes:
        init_std: The standard deviation of the stored parameter at initialization.
        multiplier: What the stored parameter is multiplied by when it acts.
        learning_rate: The factor on the base learning rate.
        epsilon: The factor on the base epsilon.
        floor: The factor on the least parameter RMS of parameter scaling.
    """

    init_std: PyTree
    multiplier: PyTree
    learning_rate: PyTree
    epsilon: PyTree
    floor: PyTree

    def effective(self, params: PyTree) -> PyTree:
        """Give the parameters as they act: call the model with these, and differentiate through this."""
        return jax.tree.map(_times, params, self.multiplier)

    def adopt(self, weights: PyTree) -> PyTree:
        """Store weights that are right as they are, such as pretrained ones, so that they act unchanged."""
        return jax.tree.map(lambda weight, multiplier: _times(weight, 1 / multiplier), weights, self.multiplier)

    def initial(self, unit: PyTree) -> PyTree:
        """Give initial parameters from ones drawn with standard deviation 1 (LayerNorm scales: ones)."""
        return jax.tree.map(_times, unit, self.init_std)

    def with_constant_epsilon(self) -> "Scales":
        """Give the same scales with one epsilon for all parameters."""
        return replace(
            self, epsilon=jax.tree.map(lambda x: 1.0 if isinstance(x, float) else jnp.ones_like(x), self.epsilon)
        )


def stack(scales: Sequence[Scales]) -> Scales:
    """Give the scales of several runs as those of one batch of lanes, for `jax.vmap`."""
    return jax.tree.map(lambda *values: np.stack([np.asarray(value) for value in values]), *scales)


def ones_like(params: PyTree) -> Scales:
    """Give the scales of a plain model: nothing is scaled."""
    ones = jax.tree.map(lambda _: 1.0, params)
    return Scales(init_std=ones, multiplier=ones, learning_rate=ones, epsilon=ones, floor=ones)


def _times(weight: jax.Array, scale: jax.Array | float) -> jax.Array:
    wide = jnp.promote_types(weight.dtype, jnp.float32)  # a scale is not to be rounded to bfloat16
    return (weight.astype(wide) * scale).astype(weight.dtype)
