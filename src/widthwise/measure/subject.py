"""The subject of a coordinate check: a model at one width, ready for training, as three functions.

The check does not depend on a training loop; any loop can provide its step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import optax

from widthwise.measure.alignment import Measurement, measure
from widthwise.parameterize import Prescription, PyTree
from widthwise.theory import Assessment, Role


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model at one width, ready for training with a constant learning rate.

    Attributes:
        exponents: The prescribed exponents.
        roles: The roles of the parameters by path; None for those that are not scaled.
        products: The paths of scaled weights that act in products, and should be measured.
        start: Returns the stored parameters and the rest of the training state for a seed.
        step: Takes a training step: maps parameters, state and step number to parameters and state.
        measure: Measures the layers, given the initial and the current stored parameters; over depth, sizes by name.
        apart: The paths of weights whose updates do not have the exponents of their role.
    """

    exponents: Assessment
    roles: Mapping[str, Role | None]
    products: tuple[str, ...]
    start: Callable[[int], tuple[PyTree, PyTree]]
    step: Callable[[PyTree, PyTree, int], tuple[PyTree, PyTree]]
    measure: Callable[[PyTree, PyTree], Any]
    apart: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Prescription,
        initial: Callable[[int], PyTree],
        *,
        model: Callable[[PyTree, Any], Any],
        loss: Callable[[Any, Any], Any],
        examples: tuple[Any, Any],
        optimizer: optax.GradientTransformation,
    ) -> "Subject":
        """Create a subject from a model and an optimizer; it trains on the same examples at every step."""
        inputs, targets = examples

        @jax.jit
        def step(params: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
            gradients = jax.grad(lambda stored: loss(model(plan.effective(stored), inputs), targets))(params)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        @jax.jit
        def look(initial: PyTree, params: PyTree) -> Measurement:
            return measure(model, plan.effective(initial), plan.effective(params), inputs)

        begin = jax.jit(optimizer.init)

        def start(seed: int) -> tuple[PyTree, PyTree]:
            params = initial(seed)
            return params, begin(params)

        return cls(
            **described(plan),
            start=start,
            step=lambda params, state, index: step(params, state),
            measure=look,
        )


def described(plan: Prescription) -> dict[str, Any]:
    """Return what a subject states about its parameters, for a prescription."""
    return {
        "exponents": plan.exponents,
        "roles": {leaf.path: leaf.role for leaf in plan.layout.leaves},
        "products": tuple(leaf.path for leaf in plan.layout.leaves if leaf.role and leaf.axes.inputs),
    }
