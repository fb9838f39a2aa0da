"""Numbers with their uncertainty: pure functions on NumPy arrays, frozen results."""

from widthwise.fit.intervals import CONFIDENCE as CONFIDENCE
from widthwise.fit.intervals import Estimate as Estimate
from widthwise.fit.intervals import mean_of as mean_of
from widthwise.fit.intervals import student as student
from widthwise.fit.lines import Line as Line
from widthwise.fit.lines import exponent as exponent
from widthwise.fit.lines import fit_line as fit_line
