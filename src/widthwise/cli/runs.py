"""A run in a folder of its own: checkpoints while it trains, and a JSON file with its result once it has ended.

What has ended is read from that file and never trained again.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from widthwise.cli.running import StatusLine, stoppable
from widthwise.data import Evaluation
from widthwise.study.export import replacing
from widthwise.train import Checkpoints, Inputs, Lanes, Progress, Result, Spec, load_inputs, train

Value = TypeVar("Value")


def open_data(spec: Spec, status: StatusLine) -> Inputs:
    """Open the data of a run, and show how far it is tokenized."""
    return load_inputs(spec, progress=lambda done: status.show(f"tokenizing: {done / 1e6:.1f} MB"))


def train_in(
    folder: Path,
    lanes: Lanes,
    evaluation: Evaluation,
    status: StatusLine,
    *,
    label: str = "",
    log: Callable[[Progress], object] = lambda _: None,
    **options: Any,
) -> list[Result]:
    """Train lanes, or resume them from the checkpoints in a folder, until the end or a request to stop.

    Progress is shown after a label, and logged. Further options are those of `widthwise.train.train`.
    """
    first: tuple[float, int] | None = None

    def progress(now: Progress) -> None:
        nonlocal first
        first = first or (time.monotonic(), now.step)  # the time before goes into compiling and tells nothing
        log(now)
        status.show(label + progress_line(now, seconds=time.monotonic() - first[0], steps=now.step - first[1]))

    with stoppable() as stop, Checkpoints(folder / "checkpoints", say=status.say) as checkpoints:
        results = train(lanes, evaluation, checkpoints=checkpoints, progress=progress, stop=stop, **options)
        status.show("saving")
    return results


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a path in errors that name no file, as those about a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_result(path: Path, read: Callable[[Any], Value]) -> Value | None:
    """Return what `read` makes of the JSON in a file, None if there is no file; raise ValueError if it fails."""
    if not path.exists():
        return None
    try:
        return read(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{str(path)!r} cannot be read: delete it to train again") from None


def write_result(path: Path, values: Any) -> None:
    """Write values as JSON, so that the file is either there in full or not at all."""
    with naming(path), replacing(path) as partial:
        partial.write_text(json.dumps(values, indent=2))


def progress_line(now: Progress, *, seconds: float, steps: int) -> str:
    """Describe in one line how far training has come, and the time left if the last `steps` took `seconds`."""
    losses = [loss for loss in now.losses if math.isfinite(loss)]
    evaluated = [loss for loss in now.eval_losses if math.isfinite(loss)]
    parts = [
        f"step {now.step}/{now.steps}",
        f"loss {min(losses):.4f}" if losses else "diverged",
        *([f"eval {min(evaluated):.4f}"] if evaluated else []),
    ]
    if now.tokens_per_second:
        parts.append(f"{now.tokens_per_second:,.0f} tokens/s")
    if steps:
        left = seconds / steps * (now.steps - now.step)
        parts.append(f"{int(left // 60)}:{int(left % 60):02} left")
    return "  ".join(parts)
