"""From the uses and sizes of parameters to the factors that a width asks for. Knows no framework."""

from widthwise.scaling.axes import Axes as Axes
from widthwise.scaling.decay import decay_factor as decay_factor
from widthwise.scaling.factors import Factors as Factors
from widthwise.scaling.factors import find_factors as find_factors
from widthwise.scaling.parameters import Parameter as Parameter
from widthwise.scaling.parameters import Part as Part
from widthwise.scaling.parameters import Traced as Traced
from widthwise.scaling.parameters import find_parameters as find_parameters
from widthwise.scaling.planned import Planned as Planned
from widthwise.scaling.rules import NO_RULES as NO_RULES
from widthwise.scaling.rules import UNSCALED as UNSCALED
from widthwise.scaling.rules import Rule as Rule
from widthwise.scaling.rules import Rules as Rules
from widthwise.scaling.rules import match_rules as match_rules
from widthwise.scaling.table import ChangedNumber as ChangedNumber
from widthwise.scaling.table import PlanRow as PlanRow
from widthwise.scaling.table import PlanTable as PlanTable
from widthwise.scaling.table import table_of as table_of
from widthwise.scaling.text import text_table as text_table
from widthwise.scaling.uses import Kind as Kind
from widthwise.scaling.uses import Use as Use
