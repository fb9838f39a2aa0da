"""Muon of Optax for the hidden matrices of a plan, with AdamW for its other parameters.

`optax.contrib.muon` decides by the number of axes what it orthogonalizes, and by their order what is `out` and `in`:
an embedding is a matrix, a stack of layers is not, and layers that store outputs first have their factor turned around.
A plan knows the inputs and outputs of every parameter, so it states them all.
"""

from collections.abc import Mapping
from typing import Any

import optax
import optax.contrib

from widthwise.planning.apply import map_with
from widthwise.scaling import Parameter
from widthwise.scaling.orthogonal import formula_of
from widthwise.theory import Family
from widthwise.trace.paths import PyTree

CONSISTENT_RMS = 0.2
"""The constant in front of √max(out, in) with which Muon's updates are about as large as Adam's."""


def muon_direction(
    parameters: Mapping[str, Parameter], family: Family, *, consistent_rms: float | None, options: Mapping[str, Any]
) -> optax.GradientTransformation:
    """Return Muon and Adam, without learning rates and decay."""
    _refuse_other_factors(family, consistent_rms)
    for name, why in _REFUSED.items():
        if options.get(name):
            raise ValueError(f"{name}={options[name]} {why}: expected the options of Muon without it")
    if consistent_rms is None and formula_of(family) == "sqrt(max(out,in))":
        consistent_rms = CONSISTENT_RMS

    def numbers(parameter: Parameter, _: Any) -> Any:
        axes = parameter.axes
        return optax.contrib.MuonDimensionNumbers(axes.inputs, axes.outputs) if parameter.muon else None

    return optax.contrib.muon(
        -1.0,  # which Optax multiplies by -1
        muon_weight_dimension_numbers=lambda params: map_with(numbers, parameters, params),
        consistent_rms=consistent_rms,
        **options,
    )


def labels(parameters: Mapping[str, Parameter], params: PyTree) -> PyTree:
    """Return the name of the optimizer of every parameter: "muon" or "adam"."""
    return map_with(lambda parameter, _: "muon" if parameter.muon else "adam", parameters, params)


_REFUSED = {
    "adaptive": "makes updates proportional to gradients, which no plan for Muon follows",
    "muon_weight_dimension_numbers": "follows from the plan, where rules change it",
}


def _refuse_other_factors(family: Family, consistent_rms: float | None) -> None:
    formula = formula_of(family)
    if formula == "sqrt(out/in)":
        raise ValueError(
            f"the plan is for Muon with a factor of {formula}, which Optax does not have: expected a plan with "
            "optimizer='muon', for sqrt(max(1,out/in)), or 'muon_max', for sqrt(max(out,in))"
        )
    if consistent_rms is not None and formula != "sqrt(max(out,in))":
        raise ValueError(
            f"consistent_rms={consistent_rms} multiplies updates by sqrt(max(out,in)), and the plan is for {formula}: "
            "pass optimizer='muon_max' to plan(...), since rates scale differently with width"
        )
