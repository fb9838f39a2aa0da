"""Which runs to train next: learning rates at every width, and what narrows the exponent of the optimal one."""

from widthwise.search.ask_tell import Search as Search
from widthwise.search.ask_tell import SearchPoint as SearchPoint
from widthwise.search.own import sweep as sweep
from widthwise.search.result import SweepResult as SweepResult
