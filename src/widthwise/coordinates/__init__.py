"""The verdict of a coordinate check: how the sizes of layers scale with width, from measurements of any framework."""

from widthwise.coordinates.measured import FIELDS as FIELDS
from widthwise.coordinates.measured import Measured as Measured
from widthwise.coordinates.measured import weights_of as weights_of
from widthwise.coordinates.verdict import CoordinateCheck as CoordinateCheck
from widthwise.coordinates.verdict import Expectation as Expectation
from widthwise.coordinates.verdict import LayerCheck as LayerCheck
from widthwise.coordinates.verdict import Term as Term
from widthwise.coordinates.verdict import advice as advice
from widthwise.coordinates.verdict import checked_widths as checked_widths
from widthwise.coordinates.verdict import judge as judge
from widthwise.coordinates.verdict import warning as warning

WIDTHS = (64, 128, 256, 512)
SEEDS = 3
STEPS = 10
TOLERANCE = 0.15
