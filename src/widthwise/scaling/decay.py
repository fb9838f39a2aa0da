"""From a rule of weight decay to numbers: a factor on what a step removes from one parameter."""

from widthwise.theory import DecayRule, Role

MOST_DECAY = 0.05
"""The largest fraction of a weight that decay may remove in one step; more is always a mistake about its meaning."""


def decay_factor(rule: DecayRule, role: Role | None, *, rate: float, growth: float) -> float:
    """Return the factor on the part of a parameter that a step removes; 0 for no decay.

    Args:
        rule: The rule.
        role: The role of the parameter; None if it does not grow.
        rate: The factor on its learning rate.
        growth: How much it has grown since the base width.

    >>> from widthwise.theory import DECAY_RULES
    >>> [decay_factor(rule, Role.HIDDEN, rate=1 / 4, growth=4) for rule in DECAY_RULES.values()]
    [1.0, 0.25, 0.5, 0.25]
    """
    power = 0 if role is None else rule.power(role)
    return 0.0 if power is None else (rate if rule.coupled else 1.0) * float(growth) ** float(power)
