"""The subject of a coordinate check: a model at one width, ready for training, as three functions.

The check does not depend on a training loop; any loop can provide its step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import optax

from widthwise.measure.alignment import Measurement, measure
from widthwise.parameterize import Prescription, PyTree, Rule, prescribe
from widthwise.parameterize.axes import Convention, no_convention
from widthwise.parameterize.roles import NO_RULES
from widthwise.theory import Assessment


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model at one width, ready for training with a constant learning rate.

    Attributes:
        plan: The prescription.
        start: Returns the stored parameters and the rest of the training state for a seed.
        step: Takes a training step: maps parameters, state and step number to parameters and state.
        measure: Measures the layers, given the initial and the current stored parameters.
    """

    plan: Prescription
    start: Callable[[int], tuple[PyTree, PyTree]]
    step: Callable[[PyTree, PyTree, int], tuple[PyTree, PyTree]]
    measure: Callable[[PyTree, PyTree], Measurement]

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

        def start(seed: int) -> tuple[PyTree, PyTree]:
            params = initial(seed)
            return params, optimizer.init(params)

        return cls(
            plan=plan,
            start=start,
            step=lambda params, state, index: step(params, state),
            measure=look,
        )


def own_model(
    build: Callable[[int, int], PyTree],
    *,
    model: Callable[[PyTree, Any], Any],
    loss: Callable[[Any, Any], Any],
    examples: tuple[Any, Any],
    exponents: Assessment,
    optimizer: Callable[[Prescription], optax.GradientTransformation],
    base_width: int,
    convention: Convention = no_convention,
    rules: Mapping[str, Rule] = NO_RULES,
) -> Callable[[int], Subject]:
    """Create the subjects of `check_coordinates` for your own model.

    Args:
        build: Returns freshly initialized parameters for a width and a seed.
        model: The forward pass, from parameters and inputs to logits.
        loss: The loss, from logits and targets to a number.
        examples: Inputs and targets, used for training and measuring.
        exponents: The exponents: `solve(MUP, ADAM, FULL)`, or `check(...)` for your own.
        optimizer: Creates the optimizer from a prescription, e.g. `lambda plan: adam(1e-3, plan)`.
        base_width: The width at which the learning rate was tuned.
        convention: Which axes are inputs and which are outputs, as for `prescribe`.
        rules: Roles, axes and constants of particular leaves, as for `prescribe`.
    """
    base = build(base_width, 0)

    def subject(width: int) -> Subject:
        # Roles are found by comparing two widths, and `width` may be the base width.
        other = base if width != base_width else jax.eval_shape(lambda: build(2 * base_width, 0))
        plan = prescribe(
            build(width, 0),
            exponents=exponents,
            width=width,
            base_width=base_width,
            other=other,
            base=base,
            convention=convention,
            rules=rules,
        )
        return Subject.of(
            plan,
            lambda seed: plan.rescale(build(width, seed)),
            model=model,
            loss=loss,
            examples=examples,
            optimizer=optimizer(plan),
        )

    return subject
