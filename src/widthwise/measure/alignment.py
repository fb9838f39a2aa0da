"""Measured alignment: the log alignment ratio, and α, ω and u themselves (§3.4 and the definitions in the appendix).

The log alignment ratio of a weight and its input is log_fan-in of rms(W z) / (rms(W) rms(z)): 1/2 for independent
factors, 1 for factors that point the same way. During training, the output of a layer is a sum of four terms,
W⁰z⁰ + ΔW z⁰ + W⁰Δz + ΔW Δz. The same ratio for the last three terms is α, ω and u. Here z⁰ is the input under the
initial parameters for the same examples (α is defined by ΔW z⁰, not ΔW z).

Ratios do not depend on multipliers, so effective weights can be used instead of stored ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from widthwise.measure.capture import Captured, Product, capture, weights_of
from widthwise.parameterize import Layout, PyTree
from widthwise.theory import Role

Scalar: TypeAlias = Float[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LayerMeasurement:
    """The measurements of a layer at one step. For lookups only the output sizes are measured; the rest is NaN.

    Attributes:
        ratio: The log alignment ratio of the current weight and input.
        alpha: The log alignment ratio of ΔW and z⁰.
        omega: The log alignment ratio of W⁰ and Δz.
        u: The log alignment ratio of ΔW and Δz.
        output: The root mean square (RMS) of the output.
        output_change: The RMS of the change of the output since the start of training.
        input_change: The RMS of the change of the input.
        updated: The RMS of the term ΔW z⁰.
        inherited: The RMS of the term W⁰Δz.
        joint: The RMS of the term ΔW Δz.
        fan_in: The number of terms in its sum, which is the base of the logarithms; 0 for a lookup.
    """

    ratio: Scalar
    alpha: Scalar
    omega: Scalar
    u: Scalar
    output: Scalar
    output_change: Scalar
    input_change: Scalar
    updated: Scalar
    inherited: Scalar
    joint: Scalar
    fan_in: Scalar


FIELDS = tuple(field.name for field in fields(LayerMeasurement))


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["paths"])
@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The measurements of all layers at one step.

    Attributes:
        paths: The paths of the weights, in the order of the forward pass.
        values: The measurements; every field is an array over layers, or over lanes and layers under `vmap`.
    """

    paths: tuple[str, ...]
    values: LayerMeasurement

    def __getitem__(self, path: str) -> LayerMeasurement:
        """Return the measurements of one layer."""
        index = self.paths.index(path)
        return jax.tree.map(lambda x: x[..., index], self.values)

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return plain numbers by layer and field; NaN if there is nothing to measure."""
        columns = {name: np.asarray(getattr(self.values, name)).tolist() for name in FIELDS}
        return {path: {name: columns[name][i] for name in FIELDS} for i, path in enumerate(self.paths)}


def log_alignment_ratio(weight: Float[Array, "fan_in fan_out"], inputs: Float[Array, "rows fan_in"]) -> Scalar:
    """Return log_fan-in of rms(inputs · weight) / (rms(weight) · rms(inputs)): 1/2 by chance, 1 at most.

    NaN if one of the factors is zero, such as a change before the first step, or if the fan-in is 1.

    >>> import jax.numpy as jnp
    >>> float(log_alignment_ratio(jnp.ones((64, 4)), jnp.ones((3, 64))))
    1.0
    """
    return _log_ratio(weight, inputs, jnp.matmul(_wide(inputs), _wide(weight)))


def measure(
    model: Callable[..., PyTree], initial: PyTree, params: PyTree, *arguments: Any, layers: Sequence[str] | None = None
) -> Measurement:
    """Measure every dense layer of a model on a batch of examples.

    Works for any model that is a function of its parameters, because `capture` finds the layers. Works under `jit`,
    `vmap` and on sharded parameters. The model should compute in float32: early changes of weights are too small for
    bfloat16.

    Args:
        model: The forward pass: a function of effective parameters and `arguments`.
        initial: The effective parameters before training.
        params: The current effective parameters.
        arguments: The examples, and any other arguments of the model. Use the same ones at every step of a curve.
        layers: Paths of the weights to measure, or patterns such as `blocks/*/kernel`; None for all.

    Returns:
        The measurements of each layer.

    >>> import jax, jax.numpy as jnp
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> params = {"in": jax.random.normal(keys[0], (256, 512)), "out": jax.random.normal(keys[1], (512, 256))}
    >>> def model(params, x): return jnp.tanh(x @ params["in"]) @ params["out"]
    >>> found = measure(model, params, params, jax.random.normal(keys[2], (64, 256)))
    >>> {path: round(float(found[path].ratio), 2) for path in found.paths}
    {'in': 0.5, 'out': 0.5}
    """
    _, before = capture(model, initial, *arguments, layers=layers)
    _, after = capture(model, params, *arguments, layers=layers)
    if not after:
        raise ValueError("no matrix product or lookup in the forward pass has a parameter in it: nothing to measure")
    measured = [_layer(before[path], use) for path, use in after.items()]
    return Measurement(paths=tuple(after), values=jax.tree.map(lambda *x: jnp.stack(x), *measured))


def by_role(measurement: Measurement, layout: Layout) -> Float[Array, "2 3"]:
    """Return the mean α, ω and u (columns) of hidden layers and of the readout (rows), for `follow_alignment`.

    Layers with nothing to measure are ignored; NaN if there are no others.
    """
    roles = {leaf.path: leaf.role for leaf in layout.leaves}
    found = [roles[weights_of(path)[0]] for path in measurement.paths]
    values = jnp.stack([measurement.values.alpha, measurement.values.omega, measurement.values.u], axis=-1)
    rows = []
    for wanted in (Role.HIDDEN, Role.READOUT):
        if wanted not in found:
            raise ValueError(f"no {wanted} layer was measured, only {', '.join(measurement.paths)}")
        mine = values[np.array([role is wanted for role in found])]
        rows.append(jnp.mean(mine, axis=0, where=jnp.isfinite(mine)))
    return jnp.stack(rows)


def expansion(before: Product, after: Product) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the four terms W⁰z⁰, ΔW z⁰, W⁰Δz and ΔW Δz, whose sum is the current output of the layer."""
    w, z, dw, dz = _factors(before, after)
    return z @ w, z @ dw, dz @ w, dz @ dw


def _factors(before: Product, after: Product) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    w, z = _wide(before.weight), _wide(before.inputs)
    dw = _wide(after.weight) - w
    # The compiler may fuse a product into the subtraction and keep a digit that the other operand lost: not a change.
    rounding = jnp.finfo(w.dtype).eps / 2 * jnp.abs(w)
    return w, z, jnp.where(jnp.abs(dw) <= rounding, 0, dw), _wide(after.inputs) - z


def _layer(before: Captured, after: Captured) -> LayerMeasurement:
    sizes = {"output": _rms(after.outputs), "output_change": _rms(_wide(after.outputs) - _wide(before.outputs))}
    if not isinstance(before, Product) or not isinstance(after, Product):
        missing = dict.fromkeys(set(FIELDS) - set(sizes), jnp.full((), jnp.nan))
        return LayerMeasurement(**{**missing, **sizes, "fan_in": jnp.zeros(())})
    w, z, dw, dz = _factors(before, after)
    _, updated, inherited, joint = expansion(before, after)
    return LayerMeasurement(
        ratio=_log_ratio(after.weight, after.inputs, after.outputs),
        alpha=_log_ratio(dw, z, updated),
        omega=_log_ratio(w, dz, inherited),
        u=_log_ratio(dw, dz, joint),
        **sizes,
        input_change=_rms(dz),
        updated=_rms(updated),
        inherited=_rms(inherited),
        joint=_rms(joint),
        fan_in=jnp.full((), float(dw.shape[-2])),
    )


def _log_ratio(weight: jax.Array, inputs: jax.Array, product: jax.Array) -> Scalar:
    sizes = _rms(weight) * _rms(inputs)
    ratio = _rms(product) / jnp.where(sizes > 0, sizes, 1)
    fan_in = weight.shape[-2]
    known = (sizes > 0) & (ratio > 0) & (fan_in > 1)
    return jnp.where(known, jnp.log(jnp.where(known, ratio, 1)) / jnp.log(float(max(fan_in, 2))), jnp.nan)


def _rms(x: jax.Array) -> Scalar:
    return jnp.sqrt(jnp.mean(jnp.square(_wide(x))))


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
