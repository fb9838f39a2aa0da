"""What a coordinate check works on: a model at one width, ready to be trained, as three functions.

The check knows nothing of training loops: whoever has one gives its step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import optax

from widthwise.measure.alignment import Measurement, measure
from widthwise.parameterize import Prescription, Rule, prescribe
from widthwise.parameterize.axes import Convention, no_convention
from widthwise.parameterize.roles import NO_RULES
from widthwise.theory import Assessment

PyTree: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model at one width, ready to be trained with a constant learning rate.

    Attributes:
        plan: What is prescribed for it.
        start: Gives stored parameters and the rest of the training state for a seed.
        step: Takes a training step: parameters, state and the step's number to parameters and state.
        measure: Measures the layers, given stored parameters at the start and now.
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
        """Make one from a model and an optimizer; it trains on the same examples at every step."""
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
    """Make what `check_coordinates` asks for from a model of your own.

    Args:
        build: Gives freshly initialized parameters for a width and a seed.
        model: The forward pass: parameters and inputs to logits.
        loss: Logits and targets to a number.
        examples: Inputs and targets, to train and to measure on.
        exponents: What to prescribe: `solve(MUP, ADAM, FULL)`, or `check(...)` for exponents of your own.
        optimizer: Makes the optimizer from a prescription, e.g. `lambda plan: adam(1e-3, plan)`.
        base_width: The width at which the learning rate was tuned.
        convention: Which axes are inputs and which are outputs, as for `prescribe`.
        rules: What you know better about some leaves, as for `prescribe`.
    """
    base = build(base_width, 0)

    def subject(width: int) -> Subject:
        # Roles are found by comparing two widths, and the base width may be the one that is asked for.
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
