"""Limits: which constraints keep the learning rate of a layer from being raised.

A larger rate enlarges the update of its layer, and every term that contains the update. If one of those is the largest
term, the output of the layer changes more. Then the terms that inherit this change one layer up grow too, and so on up
to the logits. A constraint without slack whose term grows is a limit. Following the growth through the network is
exact; trying a slightly larger rate would require choosing how much larger.
"""

from collections.abc import Iterable

from widthwise.theory.checker import Assessment, families_of
from widthwise.theory.constraints import BOUNDED_GROWTH, Constraint
from widthwise.theory.parameterization import Role


def limits(case: Assessment) -> tuple[tuple[Constraint, ...], ...]:
    """Return, for every layer, the constraints that are violated as soon as its rate is raised.

    Every solved rate has at least one. Among given rates, a layer without any could learn faster, unless it already
    violates a constraint.

    >>> from widthwise.theory import MUP, NONE, SGD, solve
    >>> readout = limits(solve(MUP, SGD, NONE))[-1]  # limited by the gradients it feeds, not by the logits
    >>> [f"{c.name} ({c.layer})" for c in readout if c.name.endswith("update")]
    ['stable_activations.update (embedding)', 'stable_activations.update (hidden)']
    """
    if case.rates is None or case.residuals is None:
        return ()
    *below, readout = case.parameterization.labels
    terms = {(c.layer, c.name.rpartition(".")[2]): c for c in case.constraints}

    def of(label: str, *names: str) -> list[Constraint]:
        return [terms[label, name] for name in names if (label, name) in terms]

    above = _tight(of(readout, "joint", "inherited"))  # violated if the output of the layer below changes more
    found: list[list[Constraint]] = []
    for label, residual in zip(reversed(below), reversed(case.residuals), strict=True):
        updated, inherited = of(label, "update", "joint"), of(label, "joint", "inherited")
        own = _tight([*of(label, BOUNDED_GROWTH), *updated])
        found.append(own + (above if _reaches(residual, updated) else []))
        above = _tight(inherited) + (above if _reaches(residual, inherited) else [])
    found.reverse()

    last = _tight(of(readout, BOUNDED_GROWTH, "update", "joint"))
    if _feeds_gradients(case):
        families = families_of(case.parameterization, case.family)
        fed = [constraints for family, constraints in zip(families, found, strict=False) if family.gradient_power]
        seen = dict.fromkeys(constraint for constraints in fed for constraint in constraints)
        last += [constraint for constraint in seen if constraint not in last]
    return (*map(tuple, found), tuple(last))


def _tight(constraints: Iterable[Constraint]) -> list[Constraint]:
    return [constraint for constraint in constraints if constraint.binding]


def _reaches(residual: object, terms: Iterable[Constraint]) -> bool:
    return any(term.value == residual for term in terms)


def _feeds_gradients(case: Assessment) -> bool:
    """Return whether a larger readout rate enlarges the gradients of all other layers."""
    layer = case.parameterization.readout
    assert case.rates is not None
    return case.family.at(Role.READOUT).update(b=layer.b, c=case.rates[-1], g=layer.a) <= layer.b
