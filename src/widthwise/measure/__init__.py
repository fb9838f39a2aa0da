"""Measuring: alignment of any model's layers, coordinate checks, and the exponents that measurements imply."""

from widthwise.measure.alignment import LayerMeasurement as LayerMeasurement
from widthwise.measure.alignment import Measurement as Measurement
from widthwise.measure.alignment import log_alignment_ratio as log_alignment_ratio
from widthwise.measure.alignment import measure as measure
from widthwise.measure.capture import Product as Product
from widthwise.measure.capture import Use as Use
from widthwise.measure.capture import capture as capture
from widthwise.measure.probe import Probe as Probe
from widthwise.measure.probe import log_spaced as log_spaced
