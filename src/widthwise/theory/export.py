"""An assessment as JSON values: exact exponents of n, as strings ("-1/2" means n^-1/2).

Only `residual` keeps the sign of the theory: it is r_L itself, so "1/2" means a change of n^-1/2. `slack` is the
distance to a bound, and `constant_output_at` an alignment.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from widthwise.theory.checker import Assessment
from widthwise.theory.decay import (
    ALIGNED_UPDATES,
    INDEPENDENT_UPDATES,
    DecayRule,
    Equilibrium,
    depth_equilibria,
    equilibria,
)
from widthwise.theory.depth import MATRICES, VECTORS, DepthAssessment

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


def decay_to_json(case: Assessment, rule: DecayRule) -> Json:
    """Return what a rule of weight decay leads to in every layer, as values for `json.dumps`.

    Layers that do not decay, and cases that are unstable at initialization, are None. In equilibrium, `independent` is
    for updates that are independent from step to step, `aligned` for updates that point the same way.

    >>> from widthwise.theory import ADAM, FULL, SQRT, STANDARD, solve
    >>> hidden = decay_to_json(solve(STANDARD, ADAM, FULL), SQRT)["layers"]["hidden"]
    >>> hidden["removed_per_step"], hidden["independent"]["size"]
    ('-1/2', '-3/4')
    """
    count = len(case.parameterization.layers)
    if case.rates is None or case.gradients is None:
        layers: list[Json | None] = [None] * count
    else:
        both = (equilibria(case, rule, persistence=p) for p in (INDEPENDENT_UPDATES, ALIGNED_UPDATES))
        layers = [_decay(*pair) for pair in zip(*both, strict=True)]
    return {
        "rule": rule.name,
        "layers": {"embedding": layers[0], "hidden": _one_or_all(layers[1:-1]), "readout": layers[-1]},
    }


def depth_to_json(case: DepthAssessment, rules: Sequence[DecayRule] = ()) -> Json:
    """Return what changes with depth, as values for `json.dumps`: exponents of L, the number of residual blocks.

    With rules of weight decay, `"decay"` says what they lead to inside blocks.

    >>> from widthwise.theory import COMPLETEP, SGD, assess_depth
    >>> depth_to_json(assess_depth(COMPLETEP, SGD))["exponents"]
    {'branch': '-1', 'init_std': '0', 'matrix_learning_rate': '1', 'vector_learning_rate': '1', 'epsilon': '-1'}
    """
    exponents, verdict = case.exponents, case.verdict
    kinds = (MATRICES, VECTORS)

    def decay(rule: DecayRule) -> Json:
        both = (depth_equilibria(case, rule, persistence=p) for p in (INDEPENDENT_UPDATES, ALIGNED_UPDATES))
        found = (_decay(*pair) for pair in zip(*both, strict=True))
        return {"rule": rule.name, "blocks": dict(zip(kinds, found, strict=True))}

    return {
        "rule": case.rule.name,
        "source": case.rule.source,
        "optimizer": case.family.name,
        "agreement": str(case.agreement),
        "exponents": {
            "branch": str(-exponents.branch),
            "init_std": str(-exponents.init),
            "matrix_learning_rate": str(-exponents.matrix_rate),
            "vector_learning_rate": str(-exponents.vector_rate),
            "epsilon": str(-exponents.epsilon),
        },
        "sizes": {
            "stream": str(-case.stream),
            "stream_change": str(-case.stream_change),
            "block_change": str(-case.block_change),
        },
        "verdict": {
            "stable_at_init": verdict.stable_at_init,
            "stable": verdict.stable,
            "nontrivial": verdict.nontrivial,
            "every_block": verdict.every_block,
        },
        "limits": {kind: [constraint.name for constraint in case.limits(kind)] for kind in kinds},
        "constraints": [
            {"name": c.name, "layer": c.layer, "slack": str(c.slack), "binding": c.binding} for c in case.constraints
        ],
        **({"decay": [decay(rule) for rule in rules]} if rules else {}),
    }


def _decay(independent: Equilibrium | None, aligned: Equilibrium | None) -> Json | None:
    if independent is None or aligned is None:
        return None
    return {
        "removed_per_step": str(-independent.removed),
        "steps": str(independent.removed),
        "independent": _equilibrium(independent),
        "aligned": _equilibrium(aligned),
    }


def _equilibrium(found: Equilibrium) -> dict[str, str | None]:
    return {
        "size": _power(found.size),
        "size_over_init": _power(found.since_init),
        "effective_rate": _power(found.effective_rate),
        "output": _power(found.output),
        "constant_output_at": None if found.alignment is None else str(found.alignment),
    }


def _power(negative: Fraction | None) -> str | None:
    return None if negative is None else str(-negative)


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
