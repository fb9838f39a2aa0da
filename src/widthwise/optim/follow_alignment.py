"""Learning rates whose exponents follow the alignment measured during training. Experimental.

The paper finds that alignment is neither full nor none and changes during training, and leaves learning rates that
follow it to future work. This is the simplest such rule. A prescription fixes the rate of each role at (n/b)^-c. Here c
is solved again every `every` steps from the latest measurement, and updates are multiplied by
(n/b)^(c_prescribed - c_now). At the base width nothing changes, so what was tuned there stays tuned.

An Optax transformation does not see activations, so the measurement is passed to `update` as an extra argument. The
exponents are solved on the host by the solver in `theory`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from widthwise.parameterize import Prescription, PyTree
from widthwise.theory import FULL, NONE, Alignment, Assessment, Role, solve_by_role

ROLES = (Role.EMBEDDING, Role.HIDDEN, Role.READOUT)


class FollowAlignmentState(NamedTuple):
    """The state of `follow_alignment`.

    Attributes:
        step: The number of steps taken.
        exponents: The current c of embedding, hidden layers and readout.
    """

    step: jax.Array
    exponents: jax.Array


def follow_alignment(
    plan: Prescription,
    *,
    every: int = 100,
    smoothing: float = 0.9,
    slowest: Alignment = FULL,
    fastest: Alignment = NONE,
    chain: int = 2,
) -> optax.GradientTransformationExtraArgs:
    """Let the learning rate of each role follow the measured alignment. Experimental; chain it after an optimizer.

    `update` takes `alignment`: an array of α, ω and u (columns) of hidden layers and readout (rows), for example from
    `widthwise.measure.by_role`. If it contains a number that is not finite, the exponents do not change. If the
    optimizer applies weight decay, the decay is scaled too.

    Args:
        plan: The prescription, which defines the initial exponents.
        every: The number of steps between solutions.
        smoothing: The fraction of the old exponents to keep at each solution, at least 0 and below 1.
        slowest: The alignment whose exponents are the lower bound.
        fastest: The alignment whose exponents are the upper bound.
        chain: The number of consecutive hidden layers without a normalization between them.

    >>> import jax.numpy as jnp, optax
    >>> import widthwise as ww
    >>> def model(n): return {"in": {"kernel": jnp.ones((3, n))}, "out": {"kernel": jnp.ones((n, 2))}}
    >>> exponents = ww.solve(ww.STANDARD, ww.ADAM, ww.FULL)
    >>> widths = {"width": 64, "base_width": 16}
    >>> plan = ww.prescribe(model(64), exponents=exponents, **widths, other=model(16), convention=ww.flax)
    >>> optimizer = optax.chain(ww.optim.adam(1e-3, plan), ww.optim.follow_alignment(plan, every=10))
    >>> state = optimizer.init(model(64))
    >>> measured = jnp.array([[0.8, 0.5, 0.7], [0.9, 0.5, 0.7]])  # α, ω, u of hidden layers, and of the readout
    >>> updates, state = optimizer.update(model(64), state, model(64), alignment=measured)
    """
    if every < 1:
        raise ValueError(f"every is {every}: expected 1 or more")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}: expected a number from 0 to below 1")
    prescribed = _rates(plan.exponents)
    bounds = [_rates(_solve(plan.exponents, alignment, chain)) for alignment in (slowest, fastest)]
    low, high = np.minimum(*bounds), np.maximum(*bounds)
    ratio = plan.width / plan.base_width
    role_of = plan.layout.tree([-1 if leaf.role is None else ROLES.index(leaf.role) for leaf in plan.layout.leaves])

    def solved(alignment: np.ndarray) -> np.ndarray:
        measured = np.round(np.clip(np.asarray(alignment, float), 0, 1), 2)
        hidden, readout = measured.tolist()
        pairs = dict(zip(("alpha", "omega", "u"), zip(hidden, readout, strict=True), strict=True))
        return _rates(_solve(plan.exponents, Alignment.of(**pairs), chain)).astype(np.float32)

    def follow(exponents: jax.Array, alignment: jax.Array) -> jax.Array:
        known = jnp.all(jnp.isfinite(alignment))
        shape = jax.ShapeDtypeStruct((len(ROLES),), jnp.float32)
        found = jax.pure_callback(solved, shape, jnp.where(known, alignment, 0.5), vmap_method="sequential")
        smoothed = smoothing * exponents + (1 - smoothing) * jnp.clip(found, low, high)
        return jnp.where(known, smoothed, exponents).astype(exponents.dtype)

    def init(params: PyTree) -> FollowAlignmentState:
        del params
        return FollowAlignmentState(jnp.zeros((), jnp.int32), jnp.asarray(prescribed, jnp.float32))

    def update(
        updates: PyTree,
        state: Any,
        params: PyTree | None = None,
        *,
        alignment: Float[Array, "2 3"] | Sequence[Any] | None = None,
        **_: Any,
    ) -> tuple[PyTree, FollowAlignmentState]:
        del params
        if alignment is None:
            raise ValueError("update was called without `alignment`: pass α, ω and u of hidden layers and readout")
        step, measured = state.step + 1, jnp.asarray(alignment, jnp.float32)
        due = step % every == 0
        exponents = jax.lax.cond(due, follow, lambda old, _: old, state.exponents, measured)
        factors = ratio ** (jnp.asarray(prescribed, jnp.float32) - exponents)

        def scaled(role: int, update: jax.Array) -> jax.Array:
            return update if role < 0 else (update * factors[role]).astype(update.dtype)

        return jax.tree.map(scaled, role_of, updates), FollowAlignmentState(step, exponents)

    return optax.GradientTransformationExtraArgs(init, update)


def _solve(like: Assessment, alignment: Alignment, chain: int) -> Assessment:
    network = like.parameterization.with_hidden_layers(chain) if like.parameterization.hidden else like.parameterization
    return solve_by_role(network, like.family, alignment)


def _rates(case: Assessment) -> np.ndarray:
    assert case.rates is not None
    embedding, *hidden, readout = case.rates
    return np.array([float(embedding), float(hidden[0]) if hidden else 0.0, float(readout)])
