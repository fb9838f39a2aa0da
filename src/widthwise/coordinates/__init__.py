"""The verdict of a coordinate check: how the sizes of layers scale with width, from measurements of any framework."""

from widthwise.coordinates.depth import DepthCheck as DepthCheck
from widthwise.coordinates.depth import judge_depth as judge_depth
from widthwise.coordinates.measured import FIELDS as FIELDS
from widthwise.coordinates.measured import AlignmentPoint as AlignmentPoint
from widthwise.coordinates.measured import Measured as Measured
from widthwise.coordinates.measured import weights_of as weights_of
from widthwise.coordinates.result import CoordinateCheck as CoordinateCheck
from widthwise.coordinates.result import Expectation as Expectation
from widthwise.coordinates.result import LayerCheck as LayerCheck
from widthwise.coordinates.result import Term as Term
from widthwise.coordinates.result import advice as advice
from widthwise.coordinates.result import warning as warning
from widthwise.coordinates.verdict import checked_widths as checked_widths
from widthwise.coordinates.verdict import judge as judge

WIDTHS = (64, 128, 256, 512)
DEPTHS = (2, 4, 8, 16)
SEEDS = 3
STEPS = 10
TOLERANCE = 0.15
