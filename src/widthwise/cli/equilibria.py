"""Rows of a table of what weight decay leads to, as width or depth grows."""

from collections.abc import Sequence

from widthwise.theory import Equilibrium

MISSING = "–"

_SETTLED = ("size", "size /\ninit", "eff.\nrate", "const.\nat α")
HEADINGS = ("decay", "layer", "step\nremoves", "steps", "", *_SETTLED, "", *_SETTLED)


def decay_rows(
    labels: Sequence[str], independent: Sequence[Equilibrium | None], aligned: Sequence[Equilibrium | None]
) -> list[list[str]]:
    """Return a row for each layer or kind of parameter, without the name of the rule.

    Args:
        labels: What each row is about.
        independent: Where updates that are independent from step to step lead.
        aligned: Where updates that agree lead.
    """
    return [
        [label, "no decay"]
        if one is None or other is None
        else [label, str(-one.removed), str(one.removed), "", *_settled(one), "", *_settled(other)]
        for label, one, other in zip(labels, independent, aligned, strict=True)
    ]


def _settled(found: Equilibrium) -> list[str]:
    negatives = (found.size, found.since_init, found.effective_rate)
    alignment = MISSING if found.alignment is None else str(found.alignment)
    return [*(MISSING if value is None else str(-value) for value in negatives), alignment]
