"""Attention that falls as 1/d with the size of heads, folded into the parameters that make queries.

Queries and keys become aligned in training, so that with heads that grow, muP divides their product by d, where models
divide it by √d. What is missing is a factor of (d / d_base)^-1/2 on queries. The model is not touched: the factor goes
into the parameters that queries are proportional to, as that of tied logits goes into a norm.

Queries are found in the trace: what enters a product of two activations, summed over an axis that grows. In such a
product either side could take the factor; it is the left one, the queries of `scaled_dot_product_attention`, unless
only the right one can.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from widthwise.scaling.uses import Meeting

Attention: TypeAlias = Literal["1/d"]
"""How attention scores fall with the size of heads, where it is not as the model itself does it."""

_BY_HAND = "multiply queries by (head size / head size at the base width)^-1/2 in the model, and leave attention= out"


def check_attention(attention: str | None) -> None:
    """Raise unless it is a known way to scale attention."""
    if attention not in (None, "1/d"):
        raise ValueError(f"attention is {attention!r}: expected '1/d', or None to leave it as the model has it")


def find_queries(here: Sequence[Meeting], base: Sequence[Meeting], spent: Collection[str]) -> dict[str, Fraction]:
    """Return the parameters that make queries, with the growth of the size of heads.

    Args:
        here: The products of two activations.
        base: The same at the base width.
        spent: Parameters that a factor on queries must not go into.
    """
    if len(here) != len(base):
        raise ValueError(f"the model multiplies activations differently at the base width: {_BY_HAND}")
    grown = [Fraction(meeting.terms, before.terms) for meeting, before in zip(here, base, strict=True)]
    found: dict[str, Fraction] = {}
    for meeting, growth in zip(here, grown, strict=True):
        if growth != 1:
            found |= dict.fromkeys(_side(meeting, spent), growth)
    for meeting, growth in zip(here, grown, strict=True):
        factors = [
            {found.get(path, Fraction(1)) for path in side} or {Fraction(1)} for side in (meeting.left, meeting.right)
        ]
        if factors not in ([{growth}, {1}], [{1}, {growth}]):
            raise _refusal(sorted(path for path in meeting.left | meeting.right if path in found)[0])
    return found


def grown_sums(here: Sequence[Meeting] | None, base: Sequence[Meeting] | None) -> tuple[tuple[int, int], ...]:
    """Return the terms of products of two activations at the base width and here, where they differ, each pair once."""
    if here is None or base is None or len(here) != len(base):
        return ()
    pairs = [(before.terms, meeting.terms) for meeting, before in zip(here, base, strict=True)]
    return tuple(dict.fromkeys((before, now) for before, now in pairs if before != now))


def _side(meeting: Meeting, spent: Collection[str]) -> frozenset[str]:
    """Return the parameters of the side that takes the factor."""
    for side, other in ((meeting.left, meeting.right), (meeting.right, meeting.left)):
        if side and not side & other and not side & frozenset(spent):
            return side
    raise _refusal(*sorted(meeting.left or meeting.right)[:1])


def _refusal(path: str | None = None) -> ValueError:
    what = (
        "queries and keys are not proportional to any parameter"
        if path is None
        else f"{path!r} makes queries, and what it makes is used for something else too, such as keys"
    )
    return ValueError(f"attention='1/d' cannot be folded into the model, since {what}: {_BY_HAND}")
