"""Optimizer families: how the size of an update depends on rate, gradient and parameter (§2.1, appendix).

With learning rate n^-c, gradient n^-g and initialization n^-b, the first update has size n^-d, where
d = c + gradient_power·g + parameter_power·b. That is all the theory needs to know about an optimizer, so a new family
is a new value. Sign descent, for example, is `OptimizerFamily(name="sign")`.
"""

from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from widthwise.theory.exact import exact


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFamily:
    """The powers of gradient and parameter to which updates are proportional.

    Attributes:
        name: The name to print.
        gradient_power: 1 if updates are proportional to the gradient, 0 if the gradient is normalized. Any value from 0
            up is allowed.
        parameter_power: 1 if updates are multiplied by the size of the parameter they change, else 0.
    """

    name: str
    gradient_power: Fraction = Fraction(0)
    parameter_power: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gradient_power", exact(self.gradient_power))
        if self.gradient_power < 0:
            raise ValueError(f"gradient_power of {self.name!r} is {self.gradient_power}: expected 0 or more")
        if self.parameter_power not in (0, 1):
            raise ValueError(f"parameter_power of {self.name!r} is {self.parameter_power}: expected 0 or 1")

    def update(self, *, b: Fraction, c: Fraction, g: Fraction) -> Fraction:
        """Return d; the update has size n^-d."""
        return self.growth(c=c, g=g) + self.parameter_power * b

    def rate(self, *, b: Fraction, d: Fraction, g: Fraction) -> Fraction:
        """Return the c for which the update has size n^-d: the inverse of `update`."""
        return d - self.gradient_power * g - self.parameter_power * b

    def growth(self, *, c: Fraction, g: Fraction) -> Fraction:
        """Return the exponent of the factor by which parameter scaling multiplies a weight at every step."""
        return c + self.gradient_power * g

    @property
    def rate_correction(self) -> Fraction:
        """How much c decreases per unit of θ when a layer moves to (a + θ, b − θ) and must train as before.

        The effective update n^-(a + d) must not change. Moving adds θ to a and to g and subtracts θ from b.
        """
        return 1 + self.gradient_power - self.parameter_power


SGD = OptimizerFamily(name="sgd", gradient_power=Fraction(1))
ADAM = OptimizerFamily(name="adam")
ADAFACTOR = OptimizerFamily(name="adafactor", parameter_power=1)

FAMILIES = MappingProxyType({f.name: f for f in (SGD, ADAM, ADAFACTOR)})
"""The families by name. Adam with parameter scaling belongs to Adafactor's."""
