"""Sweeps: what to run, where the results are kept, and what is tried next."""

from widthwise.sweep.curves import Curve as Curve
from widthwise.sweep.export import to_csv as to_csv
from widthwise.sweep.export import to_json_lines as to_json_lines
from widthwise.sweep.records import Asked as Asked
from widthwise.sweep.records import Outcome as Outcome
from widthwise.sweep.records import Row as Row
from widthwise.sweep.records import Status as Status
from widthwise.sweep.store import Study as Study
