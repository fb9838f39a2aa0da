"""The same network, stored differently: whole cases moved within their equivalence class (§3.2).

Every class has a member whose multipliers are all 1. Initialization, learning rate and epsilon alone carry it, so a
model can be called as it is.
"""

from collections.abc import Sequence

from widthwise.theory.checker import Assessment, check
from widthwise.theory.equivalence import compare, move
from widthwise.theory.exact import Exact


def move_case(case: Assessment, theta: Sequence[Exact]) -> Assessment:
    """Move each layer by its own θ, with the learning rates that make it train as before."""
    before = case.parameterization
    after = move(before, theta)
    return check(after, compare(before, after).rates(case.rates or (), case.family), case.family, case.alignment)


def without_multipliers(case: Assessment) -> Assessment:
    """Return the equivalent case whose multipliers are all 1.

    >>> from widthwise.theory import ADAM, FULL, MUP, solve
    >>> plain = without_multipliers(solve(MUP, ADAM, FULL))
    >>> [str(layer.b) for layer in plain.parameterization.layers], [str(c) for c in plain.rates]
    (['0', '1/2', '1'], ['0', '1', '1'])
    """
    return move_case(case, [-layer.a for layer in case.parameterization.layers])
