"""Measurements: the alignment of any model's layers, coordinate checks, and the exponents that they imply."""

from widthwise.coordinates import AlignmentPoint as AlignmentPoint
from widthwise.measure.alignment import LayerMeasurement as LayerMeasurement
from widthwise.measure.alignment import Measurement as Measurement
from widthwise.measure.alignment import by_role as by_role
from widthwise.measure.alignment import log_alignment_ratio as log_alignment_ratio
from widthwise.measure.alignment import measure as measure
from widthwise.measure.capture import Captured as Captured
from widthwise.measure.capture import Product as Product
from widthwise.measure.capture import capture as capture
from widthwise.measure.capture import weights_of as weights_of
from widthwise.measure.coordinates import CoordinateCheck as CoordinateCheck
from widthwise.measure.coordinates import LayerCheck as LayerCheck
from widthwise.measure.coordinates import advice as advice
from widthwise.measure.coordinates import check_coordinates as check_coordinates
from widthwise.measure.coordinates import check_depths as check_depths
from widthwise.measure.coordinates import warning as warning
from widthwise.measure.implied import MeasuredAlignment as MeasuredAlignment
from widthwise.measure.implied import implied as implied
from widthwise.measure.implied import slopes as slopes
from widthwise.measure.implied import summarize as summarize
from widthwise.measure.probe import Probe as Probe
from widthwise.measure.probe import log_spaced as log_spaced
from widthwise.measure.subject import Subject as Subject
