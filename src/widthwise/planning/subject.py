"""The subject of a coordinate check: a planned model with an optimizer and a loss.

The programs that do not depend on the optimizer are kept with the model, since most of what a check takes is their
compilation, and a check is rarely alone: next comes one with another optimizer or learning rate.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from widthwise.coordinates.blocks import measures_of
from widthwise.measure import Measurement, Subject, measure
from widthwise.measure.capture import capture
from widthwise.scaling.depth import Blocks
from widthwise.theory import without_multipliers
from widthwise.trace.paths import PyTree

if TYPE_CHECKING:
    from widthwise.planning.plan import Plan

Loss = Callable[[Any, Any], jax.Array]


class Programs(NamedTuple):
    """What is compiled once for all optimizers: initial parameters, gradients, and measurements."""

    draw: Callable[[jax.Array], PyTree]
    gradients: Callable[[PyTree, Any], PyTree]
    look: Callable[[PyTree, PyTree, Any], Measurement]

    @classmethod
    def of(cls, plan: "Plan", loss: Loss) -> "Programs":
        """Return the programs of a planned model."""
        objective = _objective(plan, loss)

        def look(initial: PyTree, params: PyTree, batch: Any) -> Measurement:
            return measure(objective, initial, params, batch)

        return cls(jax.jit(plan.initial), jax.jit(jax.grad(objective)), jax.jit(look))


def _objective(plan: "Plan", loss: Loss) -> Callable[[PyTree, Any], jax.Array]:
    def objective(stored: PyTree, batch: Any) -> jax.Array:
        model = plan.builder.at(plan.width)  # in the compiled function, where its own parameters are never drawn
        return loss(model.callable(plan.acting(stored)), batch)

    return objective


def _sizes(plan: "Plan", loss: Loss, blocks: Blocks) -> Callable[[PyTree, PyTree, Any], Any]:
    """Return the program that measures sizes and changes under names that are the same at every depth."""

    def rms(x: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.mean(jnp.square(x.astype(jnp.promote_types(x.dtype, jnp.float32)))))

    def sizes(initial: PyTree, params: PyTree, batch: Any) -> dict[str, tuple[jax.Array, jax.Array]]:
        before, after = (capture(_objective(plan, loss), each, batch)[1] for each in (initial, params))
        found: dict[str, tuple[jax.Array, jax.Array]] = {}
        for name, measured in measures_of(plan, blocks, list(after)).items():
            now = [after[use].outputs for use in measured.uses]
            change = [x - before[use].outputs for x, use in zip(now, measured.uses, strict=True)]
            found[name] = measured.size(now, rms), measured.size(change, rms)
        return found

    return jax.jit(sizes)


def subject_of(
    plan: "Plan",
    optimizer: optax.GradientTransformation,
    loss: Loss,
    batch: Any,
    *,
    blocks: Blocks | None = None,
) -> Subject:
    """Return a planned model, ready for training on one batch.

    Args:
        plan: The plan.
        optimizer: The optimizer.
        loss: The loss, from the model and the batch.
        batch: The batch.
        blocks: To measure sizes over depth, the parameters of the model's blocks.
    """
    programs: Programs = plan.builder.once(("programs", plan.width, loss), lambda: Programs.of(plan, loss))

    @jax.jit
    def update(gradients: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree]:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    begin = jax.jit(optimizer.init)

    def start(seed: int) -> tuple[PyTree, PyTree]:
        params = programs.draw(jax.random.key(seed))
        return params, begin(params)

    look = programs.look
    if blocks is not None:
        look = plan.builder.once(("sizes over depth", plan.width, loss, blocks), lambda: _sizes(plan, loss, blocks))

    return Subject(
        exponents=plan.exponents if plan.multipliers else without_multipliers(plan.exponents),
        roles={parameter.path: parameter.role for parameter in plan.parameters},
        products=tuple(p.path for p in plan.parameters if p.role is not None and p.axes.inputs),
        start=start,
        step=lambda params, state, index: update(programs.gradients(params, batch), state, params),
        measure=lambda initial, params: look(initial, params, batch),
        apart=plan.beside_muon,
    )
