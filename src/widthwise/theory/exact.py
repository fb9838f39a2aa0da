"""Exact exponents: how numbers are read into the theory, and how they are written.

Everything in `theory/` is a `fractions.Fraction`, so a constraint either holds or does not; it never nearly holds. A
float is read as the decimal it prints as (0.1 is 1/10), which is what the user typed or measured.
"""

import re
from fractions import Fraction
from numbers import Real
from typing import TypeAlias

Exact: TypeAlias = Fraction | int | float | str
"""The types accepted as an exponent: `Fraction(3, 4)`, `1`, `0.75` or `"3/4"`."""

HALF = Fraction(1, 2)

_NUMBER = re.compile(r"[+-]?(\d{1,30}/\d{1,30}|(\d{1,30}(\.\d{0,30})?|\.\d{1,30})(e[+-]?\d{1,2})?)", re.IGNORECASE)


def exact(value: Exact) -> Fraction:
    """Read a number as an exact fraction.

    >>> exact("3/4"), exact(0.1), exact(1)
    (Fraction(3, 4), Fraction(1, 10), Fraction(1, 1))
    """
    if isinstance(value, Fraction):
        return value
    given: object = value  # despite the annotation, numbers of other libraries and mistakes arrive here too
    written = ""
    if isinstance(given, str):
        written = given.strip()
    elif isinstance(given, Real) and given is not True and given is not False:
        written = str(given)
    try:
        if _NUMBER.fullmatch(written):
            return Fraction(written)
    except ZeroDivisionError:
        pass
    raise ValueError(f"{given!r} is not a number: expected a fraction such as 3/4, 0.75 or -1")


def power_of_n(exponent: Fraction, variable: str = "n") -> str:
    """Format n, or another variable, to the power of an exponent.

    >>> power_of_n(Fraction(-1, 2)), power_of_n(Fraction(1)), power_of_n(Fraction(0))
    ('n^-1/2', 'n', '1')
    """
    if exponent == 0:
        return "1"
    return variable if exponent == 1 else f"{variable}^{exponent}"
