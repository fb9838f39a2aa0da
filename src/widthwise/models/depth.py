"""What exponents in depth prescribe for the transformer.

A residual branch is linear in its last weight, so its multiplier is a multiplier of that parameter, and the model is
called as it is. Nothing outside of blocks changes with depth.
"""

from dataclasses import replace

import jax

from widthwise.models.transformer import Transformer
from widthwise.parameterize import Prescription
from widthwise.theory import DepthExponents


def deepen(model: Transformer, plan: Prescription, exponents: DepthExponents, *, ratio: float) -> Prescription:
    """Return a prescription for another depth.

    Args:
        model: The model.
        plan: What is prescribed at the base depth.
        exponents: The exponents in depth.
        ratio: The depth over the base depth.
    """
    scales, layout = plan.scales, plan.layout
    branch, init, matrix, vector, epsilon = (
        ratio ** -float(getattr(exponents, name))
        for name in ("branch", "init", "matrix_rate", "vector_rate", "epsilon")
    )

    def scaled(column: object, factors: list[float]) -> object:
        return layout.tree([x * factor for x, factor in zip(jax.tree.leaves(column), factors, strict=True)])

    inside = [leaf.path.startswith("blocks/") for leaf in layout.leaves]
    matrices = [bool(leaf.axes.inputs) for leaf in layout.leaves]
    last = [leaf.path.endswith(model.branch_ends) for leaf in layout.leaves]
    pairs = list(zip(inside, matrices, strict=True))
    return replace(
        plan,
        scales=replace(
            scales,
            multiplier=scaled(scales.multiplier, [branch if end else 1.0 for end in last]),
            init_std=scaled(scales.init_std, [init if within and many else 1.0 for within, many in pairs]),
            learning_rate=scaled(
                scales.learning_rate, [(matrix if many else vector) if within else 1.0 for within, many in pairs]
            ),
            epsilon=scaled(scales.epsilon, [epsilon if within else 1.0 for within in inside]),
        ),
    )
