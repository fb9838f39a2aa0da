"""An assessment as JSON values: exact exponents of n, as strings ("-1/2" means n^-1/2).

Only `residual` keeps the sign of the theory: it is r_L itself, so "1/2" means a change of n^-1/2. `slack` is the
distance to a bound.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from widthwise.theory.checker import Assessment

Json: TypeAlias = dict[str, Any]


def to_json(case: Assessment) -> Json:
    """Return an assessment as values for `json.dumps`.

    If hidden layers differ, `"hidden"` is a list, first layer first. Quantities that do not exist because the network
    is unstable at initialization are None.

    >>> from widthwise.theory import ADAM, FULL, STANDARD, solve
    >>> to_json(solve(STANDARD, ADAM, FULL))["exponents"]["hidden"]
    {'init_std': '-1/2', 'multiplier': '0', 'gradient': '-1/2', 'learning_rate': '-1'}
    """
    verdict = case.verdict
    layers = [_layer(case, index) for index in range(len(case.parameterization.layers))]
    return {
        "parameterization": case.parameterization.name,
        "optimizer": case.family.name,
        "alignment": {name: _alignment(case, name) for name in ("alpha", "omega", "u")},
        "exponents": {"embedding": layers[0], "hidden": _one_or_all(layers[1:-1]), "readout": layers[-1]},
        "verdict": {
            "stable_at_init": verdict.stable_at_init,
            "stable": verdict.stable,
            "nontrivial": verdict.nontrivial,
            "feature_learning": verdict.feature_learning,
            "residual": None if verdict.residual is None else str(verdict.residual),
        },
        "constraints": [
            {"name": c.name, "layer": c.layer, "slack": str(c.slack), "binding": c.binding} for c in case.constraints
        ],
    }


def _layer(case: Assessment, index: int) -> dict[str, str | None]:
    layer = case.parameterization.layers[index]
    return {
        "init_std": str(-layer.b),
        "multiplier": str(-layer.a),
        "gradient": str(-case.gradients.at_init[index]) if case.gradients else None,
        "learning_rate": str(-case.rates[index]) if case.rates else None,
    }


def _alignment(case: Assessment, name: str) -> Json:
    *hidden, readout = (str(getattr(layer, name)) for layer in case.alignment.layers(len(case.parameterization.hidden)))
    return {"hidden": _one_or_all(hidden), "readout": readout}


def _one_or_all(values: Sequence[Any]) -> Any:
    return values[0] if values and all(value == values[0] for value in values) else list(values)
