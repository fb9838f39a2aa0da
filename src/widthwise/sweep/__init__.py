"""Sweeps: what to run, where the results are kept, and what is tried next."""

from widthwise.sweep.encoding import History as History
from widthwise.sweep.export import to_csv as to_csv
from widthwise.sweep.export import to_json_lines as to_json_lines
from widthwise.sweep.setting import Setting as Setting
from widthwise.sweep.setting import settings as settings
from widthwise.sweep.store import Outcome as Outcome
from widthwise.sweep.store import Request as Request
from widthwise.sweep.store import Row as Row
from widthwise.sweep.store import Status as Status
from widthwise.sweep.store import Study as Study
