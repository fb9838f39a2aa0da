"""Keeps Orbax, TensorStore and TensorBoard from reporting again, in pages, an error that is raised anyway.

When one of many reads or writes fails, the others are abandoned, and each of them complains on standard error: a
damaged checkpoint of a small model fills a thousand lines. A writer of TensorBoard files fails in a thread first.
"""

import functools
import logging
import sys
import threading
import warnings
from typing import Any


@functools.cache
def hush() -> None:
    """Discard what the libraries log, and what they report from abandoned reads and writes, and from threads."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="orbax")
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
    unraisable, in_thread = sys.unraisablehook, threading.excepthook

    def report(what: Any) -> None:
        if not _abandoned(what):
            unraisable(what)

    def report_in_thread(what: Any) -> None:
        if not (type(what.thread).__module__.startswith("tensorboardX") and isinstance(what.exc_value, OSError)):
            in_thread(what)

    sys.unraisablehook, threading.excepthook = report, report_in_thread


def _abandoned(what: Any) -> bool:
    code = getattr(what.object, "cr_code", None)
    from_orbax = code is not None and "orbax" in code.co_filename
    return from_orbax or str(what.exc_value) == "Event loop is closed"
