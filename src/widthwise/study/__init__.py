"""Studies: what was requested, what came of it, and what that says about the optimal learning rate."""

from widthwise.study.encoding import History as History
from widthwise.study.export import from_json_lines as from_json_lines
from widthwise.study.export import to_csv as to_csv
from widthwise.study.export import to_json_lines as to_json_lines
from widthwise.study.records import Outcome as Outcome
from widthwise.study.records import Request as Request
from widthwise.study.records import Row as Row
from widthwise.study.records import Status as Status
from widthwise.study.setting import Setting as Setting
from widthwise.study.store import Study as Study
