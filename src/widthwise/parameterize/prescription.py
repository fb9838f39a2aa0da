# JAX leaves some of its own types open; everything else here is checked strictly.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
"""Prescriptions: exponents × parameter tree → scales (§3 and "Parameterization Details" of the paper's appendix).

Let n be the fan-in of a hidden or readout leaf, and the model's width for an embedding. The multiplier of a leaf is
n^-a and its initial standard deviation n^-b. These are absolute powers, so standard and NTK start as exactly the same
function. Learning rate and epsilon scale with the ratio of the model's width to the base width, as (n/b)^-c and
(n/b)^-g, so at the base width they are the tuned values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from widthwise.parameterize.axes import Convention, no_convention
from widthwise.parameterize.roles import Layout, Leaf, find_roles
from widthwise.parameterize.scales import Scales, ones_like
from widthwise.scaling import NO_RULES, Rules
from widthwise.theory import Assessment, Exact, OptimizerFamily, Role, exact, move_case
from widthwise.trace.paths import PyTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """γ, the width-independent factors on the learning rates of the roles (§4.2)."""

    embedding: float = 1.0
    hidden: float = 1.0
    readout: float = 1.0

    def __post_init__(self) -> None:
        for role in Role:
            if not self.of(role) > 0:
                raise ValueError(f"the constant of {role} is {self.of(role)}: expected a number above 0")

    def of(self, role: Role) -> float:
        """Return the constant of a role."""
        return getattr(self, role.value)


ONES = Constants()


@dataclass(frozen=True, kw_only=True)
class Prescription:
    """What a parameterization prescribes for one model at one width.

    Attributes:
        layout: The roles of the parameters.
        exponents: The exponents.
        width: The model's width.
        base_width: The width at which learning rate and epsilon are tuned.
        scales: The scalars for every parameter.
        measured: Whether initial sizes were measured on a base model.
    """

    layout: Layout
    exponents: Assessment
    width: int
    base_width: int
    scales: Scales
    measured: bool

    def effective(self, params: PyTree) -> PyTree:
        """Return the effective parameters; see `Scales.effective`."""
        return self.scales.effective(params)

    def adopt(self, weights: PyTree) -> PyTree:
        """Return the stored form of weights that should act unchanged; see `Scales.adopt`."""
        return self.scales.adopt(weights)

    def rescale(self, params: PyTree) -> PyTree:
        """Rescale freshly initialized parameters to their prescribed size, keeping their directions.

        Every leaf is multiplied so that its root mean square is its `init_std`, layer by layer if layers are stacked.
        Zeros stay zeros, unscaled leaves do not change, and rescaling twice is the same as rescaling once.
        """
        stds = jax.tree.leaves(self.scales.init_std)
        pairs = list(zip(self.layout.leaves, self.layout.of(params), stds, strict=True))
        for leaf, x, std in pairs:
            if tuple(x.shape) != leaf.shape:
                raise ValueError(f"{leaf.path!r} has shape {tuple(x.shape)}: the plan is for a model with {leaf.shape}")
            if not self.measured:
                _refuse_unknown_vector(leaf, x, std)
        return self.layout.tree([x if leaf.role is None else _with_rms(x, std, leaf) for leaf, x, std in pairs])

    def move(self, theta: Mapping[Role, Exact]) -> "Prescription":
        """Move the leaves of each role by θ: the same network, stored differently.

        With m for the n of a leaf: multiplier · m^-θ, init · m^θ, rate · m^(correction · θ), epsilon · m^-θ,
        floor · m^θ. In exact arithmetic, the network trains as before with every optimizer of the family. Leaves that
        are not used linearly have no multiplier and do not move.
        """
        if unknown := [role for role in theta if role not in list(Role)]:
            raise ValueError(f"{unknown[0]!r} is not a role: expected {', '.join(Role)}")
        thetas = {Role(role): exact(value) for role, value in theta.items()}
        moved = [
            _move(scalars, leaf.n(self.width), thetas[leaf.role], self.exponents.family.at(leaf.role))
            if leaf.role is not None and leaf.role in thetas and leaf.linear
            else scalars
            for leaf, scalars in zip(self.layout.leaves, self.scales.by_leaf(), strict=True)
        ]
        hidden = [thetas.get(Role.HIDDEN, 0)] * len(self.exponents.parameterization.hidden)
        by_layer = [thetas.get(Role.EMBEDDING, 0), *hidden, thetas.get(Role.READOUT, 0)]
        return replace(self, scales=_to_scales(self.layout, moved), exponents=move_case(self.exponents, by_layer))


def prescribe(
    params: PyTree,
    *,
    exponents: Assessment,
    width: int,
    base_width: int,
    other: PyTree | None = None,
    convention: Convention = no_convention,
    rules: Rules = NO_RULES,
    headless: bool = False,
    base: PyTree | None = None,
    constants: Constants = ONES,
) -> Prescription:
    """Compute what exponents prescribe for your model.

    Args:
        params: The model's parameters, or only their shapes.
        exponents: The exponents: `solve(MUP, ADAM, FULL)`, or `check(...)` for your own rates.
        width: The model's width.
        base_width: The width at which learning rate and epsilon are tuned.
        other: The same model's parameters, or their shapes, at any other width; used to find the roles.
        convention: Which axes are inputs and which are outputs: `flax`, `equinox`, or your own.
        rules: Roles, axes and constants of particular leaves, by path. Rules take precedence.
        headless: Whether the model has no readout on purpose.
        base: The model's freshly initialized parameters at the base width. With these, the model starts at the base
            width exactly as you initialized it, and at other widths as the exponents prescribe. Without them, the
            initial standard deviation is n^-b times the `init` of the rules.
        constants: γ for each role.

    Returns:
        The prescription. Call the model with `effective(params)` and pass the prescription to an optimizer.

    >>> import jax.numpy as jnp
    >>> from widthwise.parameterize import flax, prescribe
    >>> from widthwise.theory import ADAM, FULL, MUP, solve
    >>> def model(n): return {"in": {"kernel": jnp.ones((3, n))}, "out": {"kernel": jnp.ones((n, 2))}}
    >>> exponents = solve(MUP, ADAM, FULL)
    >>> plan = prescribe(model(64), exponents=exponents, width=64, base_width=16, other=model(16), convention=flax)
    >>> plan.scales.learning_rate
    {'in': {'kernel': 0.5}, 'out': {'kernel': 0.5}}
    """
    layout = find_roles(params, other=other, convention=convention, rules=rules, headless=headless)
    return prescribe_layout(
        layout, exponents=exponents, width=width, base_width=base_width, base=base, constants=constants
    )


def prescribe_layout(
    layout: Layout,
    *,
    exponents: Assessment,
    width: int,
    base_width: int,
    base: PyTree | None = None,
    constants: Constants = ONES,
) -> Prescription:
    """Compute what exponents prescribe for a model whose roles are known; see `prescribe`."""
    for name, value in (("width", width), ("base_width", base_width)):
        if not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{name} is {value!r}: expected a whole number from 1 up")
    if not isinstance(exponents, Assessment):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"exponents is {exponents!r}: expected the result of solve(...) or check(...)")
    if exponents.rates is None:
        broken = "; ".join(str(constraint) for constraint in exponents.broken)
        raise ValueError(
            f"{exponents.parameterization.name!r} is unstable at initialization, nothing to prescribe: {broken}"
        )
    by_role = {role: _role_exponents(exponents, role) for role in {leaf.role for leaf in layout.leaves} if role}
    sizes = [None] * len(layout.leaves) if base is None else _sizes_at_base(layout, base, width, base_width)
    scalars = [
        _UNSCALED
        if leaf.role is None
        else _prescribed(
            leaf,
            by_role[leaf.role],
            exponents.family.at(leaf.role),
            width,
            Fraction(width, base_width),
            size,
            constants.of(leaf.role),
        )
        for leaf, size in zip(layout.leaves, sizes, strict=True)
    ]
    return Prescription(
        layout=layout,
        exponents=exponents,
        width=width,
        base_width=base_width,
        scales=_to_scales(layout, scalars),
        measured=base is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exponents:
    a: Fraction
    b: Fraction
    c: Fraction
    g: Fraction


_UNSCALED = ones_like(1.0)


def _role_exponents(exponents: Assessment, role: Role) -> _Exponents:
    gradients = exponents.gradients
    assert exponents.rates is not None
    assert gradients is not None
    indices = {
        Role.EMBEDDING: [0],
        Role.HIDDEN: range(1, len(exponents.rates) - 1),
        Role.READOUT: [len(exponents.rates) - 1],
    }[role]
    layers = exponents.parameterization.layers
    found = {_Exponents(a=layers[i].a, b=layers[i].b, c=exponents.rates[i], g=gradients.at_init[i]) for i in indices}
    if len(found) != 1:
        raise ValueError(
            f"the exponents are for {len(indices)} hidden layers that {'differ' if found else 'do not exist'}, "
            "but the model has hidden parameters: expected one set of exponents for all of them"
        )
    return found.pop()


def _sizes_at_base(layout: Layout, base: PyTree, width: int, base_width: int) -> list[tuple[Any, int]]:
    """Return the root mean square of each leaf of the base model, layer by layer, and its n."""
    sizes: list[tuple[Any, int]] = []
    for leaf, array in zip(layout.leaves, layout.of(base), strict=True):
        if isinstance(array, jax.ShapeDtypeStruct | Tracer):
            raise ValueError(
                f"{leaf.path!r} of `base` is only a shape: pass the parameters, since their initial size is needed"
            )
        _refuse_wrong_width(leaf, tuple(array.shape), Fraction(width, base_width))
        at_base = replace(leaf, shape=tuple(array.shape))
        squares = np.square(np.asarray(array, np.float64))
        over = (*leaf.axes.inputs, *leaf.axes.outputs)
        rms = np.sqrt(np.mean(squares, axis=over, keepdims=True)) if leaf.axes.stack else float(np.sqrt(squares.mean()))
        sizes.append((rms, at_base.n(base_width)))
    return sizes


def _refuse_wrong_width(leaf: Leaf, base: tuple[int, ...], ratio: Fraction) -> None:
    """Raise if the shapes of the base model do not match the given widths."""
    grown = [Fraction(x, y) for x, y in zip(leaf.shape, base, strict=False) if x != y]
    fits = len(base) == len(leaf.shape) and all(factor == ratio for factor in grown)
    if not fits or (leaf.role is not None and ratio != 1 and not grown):
        raise ValueError(
            f"{leaf.path!r} has shape {leaf.shape}, and {base} in `base`: "
            f"expected a factor of width / base_width = {ratio}"
        )


def _refuse_unknown_vector(leaf: Leaf, x: Any, std: Any) -> None:
    """Raise for vectors that are not constant at 0 or at their `init`: without a base model, their size is unknown."""
    if leaf.role is None or leaf.axes.inputs or isinstance(x, Tracer):
        return
    values = np.asarray(x, np.float64)
    if values.size and (values != values.flat[0]).any():
        raise ValueError(f"{leaf.path!r} is not constant, and its correct size is unknown: give `base` to prescribe")
    if values.size and not any(np.isclose(abs(values.flat[0]), size, rtol=0.01) for size in (0, leaf.init, std)):
        raise ValueError(
            f"{leaf.path!r} is {values.flat[0]:g}, and would be made {leaf.init:g}: give `base` to prescribe, or a "
            f"rule with init={abs(values.flat[0]):g}"
        )


def _prescribed(
    leaf: Leaf,
    e: _Exponents,
    family: OptimizerFamily,
    width: int,
    ratio: Fraction,
    size: tuple[Any, int] | None,
    constant: float,
) -> Scales:
    n = leaf.n(width)
    multiplier = n ** float(-e.a)
    if size is None:
        init_std = leaf.init * n ** float(-e.b)
    else:
        base_rms, base_n = size
        init_std = base_rms * (n / base_n) ** float(-e.a - e.b) / multiplier
    scalars = Scales(
        init_std=init_std,
        multiplier=multiplier,
        learning_rate=constant * float(ratio) ** float(-e.c),
        epsilon=float(ratio) ** float(-e.g),
        floor=1.0,
    )
    return scalars if leaf.linear else _move(scalars, n, -e.a, family)


def _move(scalars: Scales, m: int, theta: Fraction, family: OptimizerFamily) -> Scales:
    if theta == 0:
        return scalars
    factor = m ** float(theta)
    return Scales(
        init_std=scalars.init_std * factor,
        multiplier=scalars.multiplier / factor,
        learning_rate=scalars.learning_rate * m ** float(family.rate_correction * theta),
        epsilon=scalars.epsilon / factor,
        floor=scalars.floor * factor,
    )


def _to_scales(layout: Layout, scalars: list[Scales]) -> Scales:
    return jax.tree.transpose(layout.structure, jax.tree.structure(_UNSCALED), layout.tree(scalars))


def _with_rms(x: jax.Array, std: Any, leaf: Leaf) -> jax.Array:
    axes = (*leaf.axes.inputs, *leaf.axes.outputs)
    rms = jnp.sqrt(jnp.mean(jnp.square(x.astype(jnp.promote_types(x.dtype, jnp.float32))), axis=axes, keepdims=True))
    factor = jnp.where(rms > 0, std / jnp.where(rms > 0, rms, 1), 1)
    # A leaf whose size is correct up to rounding does not change, so that rescaling twice is rescaling once.
    settled = jnp.abs(factor - 1) < jnp.finfo(x.dtype).eps
    return (x * jnp.where(settled, 1, factor)).astype(x.dtype)
