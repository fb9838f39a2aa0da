"""Exact exponents: how numbers enter the theory, and how they are written down.

Everything in `theory/` is a `fractions.Fraction`, so a constraint is met or missed, never nearly met.
A float is read as the decimal it prints as (0.1 is 1/10): what a user typed or measured, not its binary neighbour.
"""

import math
from fractions import Fraction
from typing import TypeAlias

Exact: TypeAlias = Fraction | int | float | str
"""What may be given where an exponent is expected: `Fraction(3, 4)`, `1`, `0.75` or `"3/4"`."""

HALF = Fraction(1, 2)


def exact(value: Exact) -> Fraction:
    """Read a number as an exact fraction.

    >>> exact("3/4"), exact(0.1), exact(1)
    (Fraction(3, 4), Fraction(1, 10), Fraction(1, 1))
    """
    if isinstance(value, Fraction):
        return value
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError
        return Fraction(repr(value) if isinstance(value, float) else value)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"{value!r} is not a number: expected a fraction such as 3/4, 0.75 or -1") from None


def power_of_n(exponent: Fraction) -> str:
    """Write n to an exponent for people.

    >>> power_of_n(Fraction(-1, 2)), power_of_n(Fraction(1)), power_of_n(Fraction(0))
    ('n^-1/2', 'n', '1')
    """
    if exponent == 0:
        return "1"
    return "n" if exponent == 1 else f"n^{exponent}"
