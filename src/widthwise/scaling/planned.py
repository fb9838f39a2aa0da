"""What a plan is in every framework: the parameters of a model at two widths, and what changes between them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from widthwise.scaling.factors import Factors
from widthwise.scaling.grown import ONLY_WIDTH, Grown
from widthwise.scaling.orthogonal import family_of, is_beside_muon
from widthwise.scaling.parameters import Parameter
from widthwise.scaling.table import ChangedNumber, PlanTable, table_of
from widthwise.theory import INDEPENDENT, Assessment, DecayRule, OptimizerFamily


@dataclass(frozen=True, kw_only=True)
class Planned(ABC):
    """What changes for every parameter of a model between the base width and another width.

    Attributes:
        width: The width of the model.
        base_width: The width at which the learning rate was tuned.
        exponents: The exponents of the theory.
        parameters: The parameters, with the part that each plays.
        factors: The factors of each parameter, by path.
        numbers: Numbers inside the model that change with its width.
        sums: The terms of sums over products of two activations, at the base width and here, where they become more.
        decay_rule: How weight decay changes with width.
        multipliers: Whether parameters are stored differently from how they act.
        grown: The axes beside width: depth, batch size, and number of tokens.
        options: What else was asked for, to plan the same model at another width.
    """

    width: int
    base_width: int
    exponents: Assessment
    parameters: tuple[Parameter, ...]
    factors: Mapping[str, Factors]
    numbers: tuple[ChangedNumber, ...] = ()
    sums: tuple[tuple[int, int], ...] = ()
    decay_rule: DecayRule = INDEPENDENT
    multipliers: bool = False
    grown: Grown = ONLY_WIDTH
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __str__(self) -> str:
        return str(self.explain())

    @property
    @abstractmethod
    def is_traced(self) -> bool:
        """Whether the forward pass was traced."""

    @property
    def own_notes(self) -> tuple[str, ...]:
        """What a user should look at in this framework."""
        return ()

    def family_of(self, parameter: Parameter) -> OptimizerFamily:
        """Return the family of the optimizer that trains a parameter: in a mixture, one of several."""
        return family_of(parameter, self.exponents.family)

    @property
    def beside_muon(self) -> tuple[str, ...]:
        """The paths of parameters that start as hidden matrices do, but that another optimizer than Muon trains."""
        return tuple(p.path for p in self.parameters if is_beside_muon(p, self.exponents.family))

    def b2(self, b2: float) -> float:
        """Return Adam's β₂ from that at the base point; only a rule for the batch size changes it."""
        factor = self.grown.everywhere.one_minus_b2
        if factor == 1:
            return b2
        found = 1 - (1 - b2) * factor
        if not 0 <= found < 1:
            raise ValueError(
                f"β₂ = {b2} becomes {found:.4g} at a batch size of {self.grown.batch}, where 1 - β₂ is multiplied by "
                f"{factor:.4g}: expected a smaller batch, a larger β₂, or another batch_rule"
            )
        return found

    def explain(self, *, learning_rate: float | None = None, epsilon: float | None = None) -> PlanTable:
        """Return a table of what is planned for every parameter.

        Args:
            learning_rate: The learning rate at the base width; None to show factors.
            epsilon: The epsilon at the base width; None to show factors.
        """
        return table_of(self, learning_rate=learning_rate, epsilon=epsilon)
