"""Equivalence classes of parameterizations ("Equivalence classes", §3.2, and its figure); nothing is trained.

Everything is derived by the theory: where a parameterization lies, which share a class, what is stable at
initialization, and whether the rates that the solver finds for one member are those that make it train as another.
"""

from fractions import Fraction
from itertools import combinations

from widthwise import theory
from widthwise.experiments.experiment import Experiment, Reading
from widthwise.experiments.results import Results
from widthwise.report.exhibits import Plane, PlanePoint, Planes, Table
from widthwise.report.findings import Finding, Judgement
from widthwise.report.showing import called
from widthwise.theory import EquivalenceClass, Parameterization, Role, compare
from widthwise.theory.constraints import at_init

PRESETS = tuple(theory.PARAMETERIZATIONS.values())
CLASSES = tuple(dict.fromkeys(EquivalenceClass.of(preset) for preset in PRESETS))


def read(results: Results) -> Reading:
    """Derive the classes, how they differ, and what is stable."""
    del results  # the theory needs none
    planes = Planes(
        name="planes",
        title="Parameterizations and their equivalence classes",
        caption=(
            "Each parameterization at the exponents a of its multiplier n^−a and b of its initialization n^−b. Along a "
            "dashed line a + b is the same: there the network starts as the same function. The region that is stable "
            "at initialization is shaded."
        ),
        planes=tuple(_plane(place, role) for place, role in enumerate(Role)),
    )
    table = Table.of(
        "exponents",
        "Exponents and classes",
        "a, b and a + b of every layer; parameterizations of one class share every a + b.",
        [_row(preset) for preset in PRESETS],
    )
    return Reading(findings=_findings(), exhibits=(planes, table))


def _findings() -> tuple[Finding, ...]:
    differing = {role for first, second in combinations(PRESETS, 2) for role in compare(first, second).differing}
    unstable = [
        f"{called(preset.name)} in the {constraint.layer}"
        for preset in PRESETS
        for constraint in at_init(preset)
        if not constraint.satisfied
    ]
    trained = [
        compare(first, second).equivalent_in_training(
            _rates(first, family, alignment), _rates(second, family, alignment), family
        )
        for shared in CLASSES
        for first, second in combinations(shared.presets, 2)
        for family in theory.FAMILIES.values()
        for alignment in (theory.FULL, theory.NONE)
    ]
    return (
        Finding(
            claim="the four parameterizations occupy two equivalence classes",
            of="derived",
            verdict=Judgement.of(len(CLASSES) == 2),
            measured=f"{len(CLASSES)}: {'; '.join(map(_members, CLASSES))}",
            paper="2: standard and NTK; muP and mean-field",
        ),
        Finding(
            claim="the classes differ only in the readout",
            of="derived",
            verdict=Judgement.of(differing == {Role.READOUT.value}),
            measured=f"they differ in the {', '.join(sorted(differing))}, where a + b is "
            + " and ".join(str(shared.sums[-1]) for shared in CLASSES),
            paper="a + b of the readout: 1/2 and 1",
        ),
        Finding(
            claim="all are stable at initialization",
            of="derived",
            verdict=Judgement.of(not unstable),
            measured=f"unstable: {', '.join(unstable) or 'none'}",
        ),
        Finding(
            claim="with the right learning rates, members of a class train alike",
            of="derived: every optimizer family, full and no alignment",
            verdict=Judgement.of(all(trained)),
            measured=f"the largest stable rates are the right ones in {sum(trained)} of {len(trained)} cases",
        ),
    )


def _rates(
    preset: Parameterization, family: theory.OptimizerFamily, alignment: theory.Alignment
) -> tuple[Fraction, ...]:
    rates = theory.solve(preset, family, alignment).rates
    assert rates is not None
    return rates


def _members(shared: EquivalenceClass) -> str:
    return " and ".join(called(preset.name) for preset in shared.presets)


def _plane(place: int, role: Role) -> Plane:
    constraints = [at_init(preset)[place] for preset in PRESETS]
    layers = {preset.name: preset.layers[place] for preset in PRESETS}
    # What is bounded is n^-value, and value rises by as much as a + b: here, whatever the preset, is where it is 0.
    (stable,) = {layer.total - one.value for layer, one in zip(layers.values(), constraints, strict=True)}
    points = (PlanePoint(parameterization=name, a=float(layer.a), b=float(layer.b)) for name, layer in layers.items())
    exact = constraints[0].bound is theory.Bound.EXACTLY
    return Plane(role=role.value, points=tuple(points), stable_total=float(stable), exact=exact)


def _row(preset: Parameterization) -> dict[str, str]:
    row = {"parameterization": called(preset.name), "class": _members(EquivalenceClass.of(preset))}
    for role, layer in zip(Role, preset.layers, strict=True):
        for what, value in (("a", layer.a), ("b", layer.b), ("a + b", layer.total)):
            row[f"{role.value} {what}"] = str(value).replace("-", "−")
    return row


EXPERIMENT = Experiment(
    name="equivalence",
    title="Which parameterizations are the same network?",
    claim=(
        "The four parameterizations occupy two equivalence classes at initialization, standard with NTK and muP with "
        "mean-field, which differ only in the readout (§3.2)."
    ),
    sizes={},
    read=read,
)
